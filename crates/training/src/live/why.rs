//! Why a task is where it is, in words.

use std::sync::PoisonError;

use falaj_base::{Result, Timestamp};
use falaj_scheduler::why::{Change, FairWait, Rule, Waits, Why as Told};
use falaj_scheduler::{JobId as Number, Millis, NodeId};
use schemars::JsonSchema;
use serde::Serialize;

use super::flight::Launched;
use super::memory::Memory;
use super::{Live, STALE};
use crate::Training;
use crate::job::{Job, State, amount, explain};
use crate::name::TaskId;
use crate::pool::Pools;
use crate::queue::tree::QueueKey;

/// Why a task is where it is.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Why {
    pub task: u32,
    pub state: State,
    /// The reason, as a sentence.
    pub why: String,
    /// The rule that blocks it: `quota`, `budget`, `no-room`, `kept`, `headroom`, `behind`, `no-node`,
    /// `never`, `away`, `engine`, `in-line`; absent where none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<&'static str>,
    /// What would let it start, everything else being as it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// Tasks that go before it, and the GPUs they ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus_ahead: Option<f64>,
    /// When it may start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
    /// When the scheduler last looked at it, or at one like it that goes before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub considered_at: Option<Timestamp>,
}

/// When a task may start: likely, and between which times.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Start {
    pub earliest: Timestamp,
    pub likely: Timestamp,
    pub latest: Timestamp,
}

/// Answers that are remembered.
const REMEMBERED: usize = 10_000;

fn time(at: Millis) -> Timestamp {
    Timestamp::from_micros(i64::try_from(at).unwrap_or(i64::MAX / 1000).saturating_mul(1000))
}

impl Live {
    /// What the scheduler says of a task; nothing if this server does not schedule.
    async fn told(&self, task: TaskId, now: Timestamp, pools: &Pools) -> Option<Why> {
        let passed = *self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        if passed.is_none_or(|passed| now.since(passed) > STALE) {
            return None;
        }
        // A pass that waits for a slow disk lets nobody wait for an answer.
        let Some(memory) = self.mind().await else { return self.told_before(task, now) };
        let why = self.tell_of(memory.as_ref()?, task, pools);
        drop(memory);
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= REMEMBERED {
            answers.clear();
        }
        if let Some(why) = &why {
            answers.insert(task, (now, why.clone()));
        }
        why
    }

    /// What was told of a task the last time that somebody asked, if that was a moment ago.
    fn told_before(&self, task: TaskId, now: Timestamp) -> Option<Why> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, mut why) = answers.get(&task)?.clone();
        if now.since(at) > STALE {
            return None;
        }
        why.why = format!("{} (as of {at}: a pass is under way)", why.why);
        Some(why)
    }

    fn tell_of(&self, memory: &Memory, task: TaskId, pools: &Pools) -> Option<Why> {
        let number = memory.number(task)?;
        let state = memory.jobs.get(&task.job)?.state_of(task.task);
        let held = memory.jobs.get(&task.job).and_then(|live| live.held.as_ref());
        if let Some(held) = held.filter(|held| held.tasks.contains(&task.task)) {
            if held.needs.is_some() {
                return Some(Why { rule: Some("budget"), ..plain(task, state, held.why.clone()) });
            }
            let why = format!("it was taken in, and cannot run as things are now: {}", held.why);
            return Some(Why { rule: Some("never"), ..plain(task, state, why) });
        }
        let flight = memory.flight_of(task);
        if flight.is_some_and(|flight| flight.launched == Launched::Elsewhere) {
            let why = "it was started by another server, on its own machine, and that server is away: it \
                       is heard of again when that one schedules; if it is gone for good, \
                       `falaj job lost` says so";
            return Some(Why { rule: Some("away"), ..plain(task, state, why.to_owned()) });
        }
        let words = Words { memory, pools };
        let starting = flight.filter(|flight| flight.state == State::Starting);
        if let Some((since, said)) = starting.and_then(|flight| self.away(flight.pool)) {
            let why = format!(
                "it has its nodes, and the engine of its pool does not answer since {since}: {said}"
            );
            return Some(Why { rule: Some("away"), ..plain(task, state, why) });
        }
        if let Some(said) = starting.and_then(|flight| flight.waits.as_ref()) {
            let why =
                format!("it has its nodes, and the engine of its pool has not started it: {said}");
            return Some(Why { rule: Some("engine"), ..plain(task, state, why) });
        }
        Some(match memory.scheduler.why(number)? {
            Told::Running { since, nodes } => {
                plain(task, state, format!("it has {nodes} nodes since {}", time(since)))
            }
            Told::Leaving => {
                plain(task, state, "it was told to save its work and leave its nodes".to_owned())
            }
            Told::Waiting(waits) => words.waiting(task, state, &waits),
        })
    }
}

fn plain(task: TaskId, state: State, why: String) -> Why {
    Why {
        task: task.task,
        state,
        why,
        rule: None,
        changes: Vec::new(),
        ahead: None,
        gpus_ahead: None,
        start: None,
        considered_at: None,
    }
}

/// The scheduler's numbers in words.
struct Words<'a> {
    memory: &'a Memory,
    pools: &'a Pools,
}

impl Words<'_> {
    fn waiting(&self, task: TaskId, state: State, waits: &Waits) -> Why {
        let (rule, mut why) = self.rule(task, &waits.rule);
        if waits.outranks {
            why.push_str(
                "; it has waited so long, or lost so much, that it goes before all others",
            );
        }
        if let Some(fair) = waits.fair {
            let FairWait { used, ahead } = fair;
            let others = if ahead == 1 {
                "1 task of others goes".to_owned()
            } else {
                format!("{ahead} tasks of others go")
            };
            why = format!(
                "{why}; its queue lives on what others own, where those go first who have had less: it \
                 has used {:.1} % of the cluster of late, and {others} before it",
                used * 100.0
            );
        }
        Why {
            task: task.task,
            state,
            why,
            rule: Some(rule),
            changes: waits.changes.iter().map(|change| self.change(change)).collect(),
            ahead: Some(waits.ahead),
            gpus_ahead: Some(waits.gpus_ahead),
            start: waits.start.map(|start| Start {
                earliest: time(start.earliest),
                likely: time(start.likely),
                latest: time(start.latest),
            }),
            considered_at: Some(time(waits.considered)),
        }
    }

    fn rule(&self, task: TaskId, rule: &Rule) -> (&'static str, String) {
        match rule {
            Rule::InLine => ("in-line", "nothing blocks it: the next pass may start it".to_owned()),
            Rule::Quota { queue, dimension, needs, room, holders } => {
                let key = queue.and_then(|queue| self.memory.tree.key(queue));
                let whose = key.map_or_else(|| "what all tenants have".to_owned(), QueueKey::shown);
                let mut text = format!(
                    "{whose} leaves room for {}, and it needs {}",
                    amount(*dimension, *room, self.pools),
                    amount(*dimension, *needs, self.pools)
                );
                let own = self.memory.jobs.get(&task.job).map(|live| live.job.tenant);
                let held: Vec<String> = holders
                    .iter()
                    .filter_map(|holder| {
                        let key = self.memory.tree.key(holder.queue)?;
                        let whose = if Some(key.tenant()) == own {
                            key.shown()
                        } else {
                            "another tenant".to_owned()
                        };
                        let holds = amount(*dimension, holder.holds, self.pools);
                        let borrowed = if holder.borrows > 0 {
                            format!(
                                ", {} of them borrowed",
                                amount(*dimension, holder.borrows, self.pools)
                            )
                        } else {
                            String::new()
                        };
                        Some(format!("{whose} holds {holds}{borrowed}"))
                    })
                    .collect();
                if !held.is_empty() {
                    text = format!("{text}; {}", held.join(", "));
                }
                ("quota", text)
            }
            Rule::NoNode => ("no-node", "no node that it may use is up".to_owned()),
            Rule::NoRoom { nodes, needs, holders } => {
                let mut text = format!("{nodes} of the {needs} nodes that it needs have room");
                let held = self.jobs(task, holders);
                if !held.is_empty() {
                    text = format!("{text}; in its way: {}", held.join(", "));
                }
                ("no-room", text)
            }
            Rule::KeptFor { job, at } => {
                let whom = self.job(task, *job);
                let until =
                    at.map_or_else(String::new, |at| format!(", who may start at {}", time(at)));
                ("kept", format!("there would be room on nodes that are kept for {whom}{until}"))
            }
            Rule::Headroom => {
                let text = "there is room, but what is left is kept free for short jobs";
                ("headroom", text.to_owned())
            }
            Rule::Behind { job } => {
                ("behind", format!("{} goes before it and cannot start", self.job(task, *job)))
            }
            Rule::Never(refusal) => {
                let text = self.memory.jobs.get(&task.job).map(|live| {
                    let (definition, pool) = (&live.job.definition, live.job.pool.as_str());
                    let error = explain(refusal, definition, pool, (&self.memory.tree, self.pools));
                    error.message().to_owned()
                });
                ("never", text.unwrap_or_default())
            }
        }
    }

    fn change(&self, change: &Change) -> String {
        match change {
            Change::FewerGpus { per_node } => format!("asking for {per_node} GPUs on each node"),
            Change::FewerNodes { nodes } => format!("asking for {nodes} nodes"),
            Change::JobsEnd { jobs, node, by, known } => {
                let sure = if *known { "by" } else { "likely by" };
                let node = self.node(*node);
                let count = jobs.len();
                let what = if count == 1 { "task" } else { "tasks" };
                format!("{count} {what} on node {node} ending, {sure} {}", time(*by))
            }
            Change::MoreQuota { queue, dimension, by } => {
                let whose = self.memory.tree.key(*queue).map_or_else(String::new, QueueKey::shown);
                format!("{} more for {whose}", amount(*dimension, *by, self.pools))
            }
            Change::AllowSpot => "being allowed on spot nodes".to_owned(),
            Change::MoreZones => "being allowed in more zones".to_owned(),
            Change::AnyGpuType => "taking any type of GPU".to_owned(),
        }
    }

    fn node(&self, id: NodeId) -> &str {
        self.pools.node(id).map_or("?", |node| node.name.as_str())
    }

    /// A job as somebody of the same project may know it; others have no name.
    fn job(&self, asks: TaskId, number: Number) -> String {
        let other = self.memory.task(number);
        let project = |task: TaskId| self.memory.jobs.get(&task.job).map(|live| live.job.project);
        match other {
            Some(other) if project(other) == project(asks) => other.job.to_string(),
            _ => "a job of another project".to_owned(),
        }
    }

    fn jobs(&self, asks: TaskId, numbers: &[Number]) -> Vec<String> {
        let mut names: Vec<String> = numbers.iter().map(|it| self.job(asks, *it)).collect();
        names.sort();
        names.dedup();
        names
    }
}

impl Training {
    /// Why a task is where it is.
    pub(crate) async fn why_is(&self, job: &Job, task: u32) -> Result<Why> {
        let id = TaskId { job: job.id, task };
        let now = self.db().now();
        if let Some(why) = self.live().told(id, now, self.pool_list()).await {
            return Ok(why);
        }
        let kept = self.db().read(move |tx| crate::job::store::task(tx, id)).await?;
        let (state, reason) = match kept {
            Some((state, row)) => (state, row.reason),
            None => (if job.tasks.count == 1 { job.state } else { State::Pending }, None),
        };
        let reason = reason.or_else(|| job.reason.clone());
        let why = match reason {
            Some(reason) => reason,
            None if state == State::Succeeded => "it is done".to_owned(),
            None => "the scheduler has not looked at it yet".to_owned(),
        };
        Ok(plain(id, state, why))
    }
}
