//! Starting: written down first, then launched.
//!
//! Must hold: right before an executor is asked, whoever asks is still the one who schedules, and the
//! start is neither over nor to end. It has its token from then on, and not before.

use std::collections::BTreeMap;
use std::sync::Arc;

use falaj_base::{Ctx, Error, Name, Result, Secret, Timestamp, code};
use falaj_executors::{ExecutorError, Launch, Limits};
use falaj_governance::residency::Residency;
use falaj_governance::tenancy::Project;
use falaj_scheduler::JobId as Number;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use serde_json::json;

use super::busy::{Task, Work};
use super::flight::{Flight, Launched};
use super::memory::{Memory, by_name_of};
use super::purse::running;
use super::{inbox, rebuild, told};
use crate::budget::Running;
use crate::cost::Rates;
use crate::job::store::{self as jobs, TaskRow};
use crate::job::{Attempt, Job, State, Tally, resource};
use crate::launch::{Gang, ranks, shares_gpus};
use crate::name::{JobId, StartId};
use crate::{JOB_RUN, Training};

/// Starts that are written down in one transaction.
const AT_ONCE: usize = 200;

/// A start that is about to be written down.
struct New {
    number: Number,
    id: StartId,
    row: TaskRow,
    attempt: Attempt,
    pool: usize,
    zone: Name,
    zones: Vec<Name>,
    whole: (State, Tally),
    borrows: bool,
    rates: Rates,
    /// The same as budgets count it.
    costs: Running,
    /// This one, if its own machine runs it.
    server: Option<String>,
    of: falaj_base::Resource,
}

/// What is to become of a start that was decided.
enum Weighed {
    Start(Box<New>),
    /// Its job has cost what it may.
    Spent(JobId),
    /// There is no money for it now; it waits for some.
    Unaffordable,
    /// It is not wanted any more.
    Gone,
}

/// What is needed to launch a start, whoever wrote it down.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) id: StartId,
    pub(crate) job: Job,
    pub(crate) project: Arc<Project>,
    pub(crate) run: Option<String>,
    pub(crate) flight: Flight,
    /// Who schedules, as the database knows it.
    pub(crate) holder: String,
}

impl Training {
    /// Starts what was decided and is not kept waiting by others who leave.
    /// False if there was no money for some of it.
    pub(super) async fn start_those_due(&self, memory: &mut Memory) -> Result<bool> {
        let mut afforded = true;
        loop {
            let flights = &memory.flights;
            let ready = |due: &super::memory::Due| {
                due.after.iter().all(|start| !flights.contains_key(start))
            };
            let mut batch = Vec::new();
            let mut left = Vec::new();
            for due in std::mem::take(&mut memory.due) {
                if batch.len() < AT_ONCE && ready(&due) { batch.push(due) } else { left.push(due) }
            }
            memory.due = left;
            if batch.is_empty() {
                return Ok(afforded);
            }
            afforded &= self.start_batch(memory, batch).await?;
        }
    }

    async fn start_batch(
        &self,
        memory: &mut Memory,
        batch: Vec<super::memory::Due>,
    ) -> Result<bool> {
        let ctx = Ctx::system(super::NAME);
        let now = self.db().now();
        let mut news: Vec<New> = Vec::with_capacity(batch.len());
        let mut spent = Vec::new();
        let mut afforded = true;
        for due in batch {
            match self.weigh(memory, &due, now)? {
                Weighed::Start(new) => {
                    ctx.authorize(&JOB_RUN, &new.of).await?;
                    news.push(*new);
                }
                Weighed::Spent(job) => spent.push(job),
                Weighed::Unaffordable => afforded = false,
                Weighed::Gone => {}
            }
        }
        let write = move |tx: &mut Tx<'_>| {
            let mut outcomes = Vec::with_capacity(news.len());
            for new in news {
                // What the rules allow may have changed since it was submitted.
                let allowed = new
                    .zones
                    .iter()
                    .try_for_each(|to| Residency::require(tx, &new.zone, to).map(drop));
                if let Err(error) = allowed {
                    if error.kind().is_ours() {
                        return Err(error);
                    }
                    outcomes.push((new, Some(error.message().to_owned())));
                    continue;
                }
                write_start(tx, &ctx, &new)?;
                outcomes.push((new, None));
            }
            Ok(outcomes)
        };
        let outcomes = self.commit(memory, write).await?;
        memory.taking_off.clear();
        for (new, refused) in outcomes {
            if let Some(live) = memory.jobs.get(&new.id.task.job) {
                // From here on it is counted as all that fly are.
                memory.ledger.withdraw(live.place(), &new.costs);
            }
            if let Some(text) = refused {
                self.give_up(memory, new.id.task, &text).await?;
                continue;
            }
            self.take_off(memory, new);
        }
        for job in spent {
            self.end_spent(memory, job, now).await?;
        }
        Ok(afforded)
    }

    /// Whether a start that was decided can be made, and what it is then.
    fn weigh(
        &self,
        memory: &mut Memory,
        due: &super::memory::Due,
        now: Timestamp,
    ) -> Result<Weighed> {
        // The money that was kept for it is asked for once more: a budget may have been cut meanwhile.
        if let Some((place, start)) = memory.promised.remove(&due.number) {
            memory.ledger.release(place, &start);
        }
        // One that was found to lack money takes others of its job with it.
        if !memory.scheduler.knows(due.number) {
            return Ok(Weighed::Gone);
        }
        let Some(task) = memory.task(due.number) else { return Ok(Weighed::Gone) };
        let pools = self.pool_list();
        let Some(pool) = due.placement.first().and_then(|at| pools.node(at.node)) else {
            return Ok(Weighed::Gone);
        };
        let pool = pool.pool;
        let Some(live) = memory.jobs.get_mut(&task.job) else { return Ok(Weighed::Gone) };
        let (state, mut row) =
            live.tasks.get(&task.task).cloned().unwrap_or((State::Pending, TaskRow::default()));
        if !state.may_become(State::Starting) {
            return Ok(Weighed::Gone);
        }
        let rates = Rates::of(&live.job.definition.resources, &due.placement, pools, self.config());
        let costs = running(&live.job, rates.price, now);
        if live.budget.is_some_and(|own| own.is_spent(now)) {
            return Ok(Weighed::Spent(task.job));
        }
        // What the scheduler itself moved runs, as far as its owner can tell.
        let goes_on = memory.going_on.contains(&task);
        if !goes_on && !self.affordable(memory, task.job, &costs, now) {
            return Ok(Weighed::Unaffordable);
        }
        let Some(live) = memory.jobs.get_mut(&task.job) else { return Ok(Weighed::Gone) };
        memory.ledger.begin(live.place(), &costs);
        memory.taking_off.insert(due.number);
        row.attempts += 1;
        row.reason = None;
        let id = StartId { task, attempt: row.attempts };
        let nodes = by_name_of(&due.placement, pools);
        let world = u32::from(live.job.definition.resources.ranks())
            .saturating_mul(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
        let placed = due.placement.iter().filter_map(|at| pools.node(at.node));
        let mut zones: Vec<Name> = placed.map(|node| node.zone.clone()).collect();
        zones.dedup();
        let tally = live.job.tasks;
        let of = resource(&live.project, &task.job.to_string(), false);
        Ok(Weighed::Start(Box::new(New {
            number: due.number,
            id,
            row,
            attempt: Attempt {
                task: task.task,
                attempt: id.attempt,
                state: State::Starting,
                pool: pools.list[pool].name.clone(),
                nodes,
                world_size: world,
                isolation: None,
                resumed_from: None,
                end: None,
                exit_code: None,
                started_at: now,
                ended_at: None,
                cpu_seconds: None,
                peak_memory_bytes: None,
                cost: 0.0,
                stacks: None,
            },
            pool,
            zone: live.project.zone.clone(),
            zones,
            whole: (tally.state(State::Starting), tally),
            borrows: due.borrows,
            rates,
            costs,
            server: if pools.list[pool].is_server {
                Some(self.server_id()?.to_owned())
            } else {
                None
            },
            of,
        })))
    }

    /// Notes a start that was written down, and launches it.
    fn take_off(&self, memory: &mut Memory, new: New) {
        let New { number, id, row, attempt, pool, whole, rates, .. } = new;
        let now = self.db().now();
        let Some(live) = memory.jobs.get_mut(&id.task.job) else { return };
        live.job.state = whole.0;
        live.job.started_at.get_or_insert(now);
        live.tasks.insert(id.task.task, (State::Starting, row));
        let flight = Flight {
            id,
            number,
            pool,
            world: attempt.world_size,
            price: rates.price,
            state: State::Starting,
            purpose: None,
            nodes: attempt.nodes,
            launched: Launched::Asking,
            since: attempt.started_at,
            saves_until: None,
            notified: None,
            told: false,
            tell_at: None,
            then: None,
            stacks: None,
            launches: 0,
            waits: None,
        };
        memory.pay_from_now(&flight);
        memory.going_on.remove(&id.task);
        memory.flights.insert(id, flight);
        self.launch(memory, id);
    }

    /// Asks the executor of a start, beside the pass. What comes of it is in the mail.
    pub(super) fn launch(&self, memory: &mut Memory, id: StartId) {
        let Some(live) = memory.jobs.get(&id.task.job) else { return };
        let Some((_, row)) = live.tasks.get(&id.task.task) else { return };
        let Some(flight) = memory.flights.get_mut(&id) else { return };
        if let Some(until) = self.left_alone(flight.pool, self.db().now()) {
            flight.launched = Launched::AgainAt(until);
            return;
        }
        flight.launched = Launched::Asking;
        // Asked for before we began anew: what comes of that is in the mail.
        let Some(begun) = self.live().busy.begin(Task::Ask(id)) else { return };
        flight.launches += 1;
        let permits = self.live().busy.permits(Work::Launch(flight.pool));
        let plan = Plan {
            id,
            job: live.job.clone(),
            project: live.project.clone(),
            run: row.run.clone(),
            flight: flight.clone(),
            holder: memory.holder.clone(),
        };
        let training = self.clone();
        tokio::spawn(async move {
            let permit = permits.acquire_owned().await;
            let asking = training.clone();
            // In a task of its own: whatever goes wrong in there, it is asked again.
            let outcome = tokio::spawn(async move { asking.ask(plan).await }).await;
            let outcome =
                outcome.unwrap_or_else(|error| Err(ExecutorError::Away(error.to_string())));
            drop((permit, begun));
            training.live().mail().launched.push((id, outcome));
            training.live().wake();
        });
    }

    async fn ask(&self, plan: Plan) -> Result<(), ExecutorError> {
        let away = |error: Error| ExecutorError::Away(error.chain());
        let refused = |error: Error| {
            // Nobody is refused because somebody else schedules by now.
            if error.kind().is_ours() || *error.code() == code::CONFLICT {
                away(error)
            } else {
                ExecutorError::Refused(error.message().to_owned())
            }
        };
        let Some(pool) = self.pool_list().list.get(plan.flight.pool) else {
            return Err(ExecutorError::Refused("its pool is not there any more".to_owned()));
        };
        let executor = pool.executor.clone();
        // Before anything is done for it, and again right before it is launched.
        let (id, holder) = (plan.id, plan.holder.clone());
        let wanted = move |tx: &mut Tx<'_>| is_wanted(tx, id, &holder);
        self.db().read(wanted).await.map_err(away)?;
        let composed = self.compose(&plan, pool.is_server).await;
        let (mut launch, resumed) = composed.map_err(refused)?;
        let token = self.token_for(&plan, resumed).await.map_err(refused)?;
        if let Some(token) = token {
            launch.secrets.insert("MLFLOW_TRACKING_TOKEN".to_owned(), token.clone());
            launch.secrets.insert("FALAJ_TOKEN".to_owned(), token);
        }
        let asked = tokio::task::spawn_blocking(move || executor.launch(&launch)).await;
        asked.unwrap_or_else(|error| Err(ExecutorError::Away(error.to_string())))
    }

    /// The whole start, as an executor takes it, without its token; and the step that it goes on from.
    async fn compose(&self, plan: &Plan, is_server: bool) -> Result<(Launch, Option<i64>)> {
        let Plan { id, job, project, flight, .. } = plan;
        let definition = &job.definition;
        let resources = &definition.resources;
        let run = self.run_of(plan).await?;
        let resume = self.resume_from(plan).await?;
        let resumed = resume.as_ref().map(|found| found.step);
        let pools = self.pool_list();
        let attempt = id.outside()?;
        let executor = pools.list.get(flight.pool).map(|pool| &pool.executor);
        let hosts = executor.and_then(|engine| engine.hosts(&attempt, flight.nodes.len()));
        let hosts = hosts.unwrap_or_default();
        let said: Vec<Option<String>> = {
            let all = self.addresses();
            let of = |node: &str| all.get(&(flight.pool, node.to_owned())).cloned();
            flight.nodes.iter().map(|at| of(&at.node)).collect()
        };
        let nodes: Vec<_> = flight
            .nodes
            .iter()
            .enumerate()
            .map(|(place, at)| {
                let known = pools.node_named(flight.pool, &at.node);
                let address = known.map_or(at.node.as_str(), |node| node.address.as_str());
                let address = said.get(place).and_then(Option::as_deref).unwrap_or(address);
                let address = hosts.get(place).map_or(address, String::as_str);
                let first = known.map_or(0, |node| node.first_gpu);
                (at.node.as_str(), address, at.devices << first.min(15))
            })
            .collect();
        let task = format!("{}-{}", id.task.job, id.task.task);
        let gang = Gang {
            framework: definition.framework,
            nodes,
            ranks_per_node: resources.ranks(),
            port: if is_server { free_port() } else { likely_port(id) },
            cpu_millis: resources.cpu_millis(),
            run_id: &task,
            attempt: id.attempt,
            retries: definition.retries,
            apart: executor.is_some_and(|engine| engine.keeps_gpus_apart()),
        };
        let places = ranks(&gang);
        let mut env = definition.env.clone();
        self.tell(&mut env, plan, run.as_deref());
        if let Some(folder) = self.checkpoint_folder(job, id.task.task) {
            env.insert("CHECKPOINT_DIR".to_owned(), folder.to_string_lossy().into_owned());
            let every = definition.checkpoint.as_ref().and_then(|it| it.every);
            if let Some(every) = every {
                env.insert("CHECKPOINT_EVERY".to_owned(), every.get().as_secs().to_string());
            }
        }
        if let Some(found) = resume {
            env.insert("RESUME_FROM".to_owned(), found.path);
            env.insert("FALAJ_RESUME_STEP".to_owned(), found.step.to_string());
        }
        let secrets = self.secrets(project, definition)?;
        let ranks_each = u32::from(resources.ranks()).max(1);
        let launch = Launch {
            attempt,
            name: job.name.clone(),
            command: definition.command.clone(),
            image: definition.image.clone(),
            slice: resources.mig.map(|slice| slice.as_str().to_owned()),
            folder: definition.folder.as_ref().map(Into::into),
            env,
            secrets,
            ranks: places,
            shares_gpus: shares_gpus(definition.framework),
            limits: Limits {
                cpu_millis: (resources.cpu_millis() / ranks_each).max(1),
                memory_mib: (resources.memory_mib() / ranks_each).max(1),
                time: definition.time_limit.map(falaj_base::HumanDuration::get),
            },
            grace: self.config().grace.get(),
            gang_grace: self.config().gang_grace.get(),
        };
        Ok((launch, resumed))
    }

    /// What every rank of every start is told.
    fn tell(&self, env: &mut BTreeMap<String, String>, plan: &Plan, run: Option<&str>) {
        let Plan { id, job, project, .. } = plan;
        let mut set = |name: &str, value: String| drop(env.insert(name.to_owned(), value));
        set("FALAJ_JOB_ID", job.id.to_string());
        set("FALAJ_JOB_NAME", job.name.clone());
        set("FALAJ_TASK", id.task.task.to_string());
        set("FALAJ_TASKS", job.tasks.count.to_string());
        // An executor may have a use of its own for the first.
        set("FALAJ_ATTEMPT", id.attempt.to_string());
        set("FALAJ_START", id.attempt.to_string());
        set("FALAJ_TENANT", project.tenant.to_string());
        set("FALAJ_PROJECT", project.name.to_string());
        let Some(reach) = self.reach() else { return };
        let place = format!("{}/t/{}/{}", reach.url, project.tenant, project.name);
        set("FALAJ_URL", reach.url.clone());
        set("FALAJ_REPORT_URL", format!("{place}/api/jobs/{}/report", job.id));
        set("MLFLOW_TRACKING_URI", place);
        if let Some(certificate) = &reach.certificate {
            let path = certificate.to_string_lossy().into_owned();
            set("MLFLOW_TRACKING_SERVER_CERT_PATH", path.clone());
            set("FALAJ_CACERT", path);
        }
        if let Some(run) = run {
            set("MLFLOW_RUN_ID", run.to_owned());
        }
        if let Some(experiment) = &job.experiment_id {
            set("MLFLOW_EXPERIMENT_ID", experiment.clone());
        }
    }

    /// The last look before a launch, and a token for it, noted with its start so that it ends with it.
    async fn token_for(&self, plan: &Plan, resumed: Option<i64>) -> Result<Option<Secret>> {
        let id = plan.id;
        let token = self.token(&plan.job, &plan.project)?;
        let holder = plan.holder.clone();
        let secret = token.as_ref().map(|token| token.secret.clone());
        let kept = self.db().write(move |tx| {
            tx.lock_shared(rebuild::LOCK)?;
            is_wanted(tx, id, &holder)?;
            if let Some(resumed) = resumed {
                jobs::resumed(tx, id, resumed)?;
            }
            let Some(token) = token else { return Ok(false) };
            if !token.keep(tx)? {
                return Ok(false);
            }
            jobs::add_token(tx, id, &token.id().to_string())?;
            Ok(true)
        });
        Ok(if kept.await? { secret } else { None })
    }
}

/// Whether a start is still to be launched, by this one.
fn is_wanted(tx: &mut Tx<'_>, id: StartId, holder: &str) -> Result<()> {
    let not = |why: &str| Error::new(&code::CONFLICT, why.to_owned());
    if !inbox::leads(tx, holder)? {
        return Err(not("somebody began anew meanwhile"));
    }
    let start = jobs::find_start(tx, id.task, Some(id.attempt))?;
    if !start.is_some_and(|start| start.open == 2 && start.purpose.is_none()) {
        return Err(not("it is to end before it began"));
    }
    Ok(())
}

fn write_start(tx: &mut Tx<'_>, ctx: &Ctx, new: &New) -> Result<()> {
    jobs::put_task(tx, new.id.task, State::Starting, &new.row)?;
    jobs::insert_start(tx, new.id, &new.attempt, &new.rates, new.server.as_deref())?;
    jobs::progress(tx, new.id.task.job, (new.whole.0, &new.whole.1), None)?;
    let detail = json!({
        "attempt": new.id.attempt,
        "nodes": new.attempt.nodes,
        "borrows": new.borrows,
    });
    jobs::note_decision(tx, new.id.task, "start", &detail)?;
    let change = Change::new(&JOB_RUN, &new.of)
        .event("job.starting", &told(new.id.task, State::Starting))
        .detail("task", new.id.task.task)
        .detail("attempt", new.id.attempt);
    tx.record(ctx, change)
}

/// A port of this machine that nobody uses now.
fn free_port() -> u16 {
    let bound = std::net::TcpListener::bind(("127.0.0.1", 0));
    let port = bound.and_then(|listener| listener.local_addr()).map(|address| address.port());
    port.unwrap_or(29_500)
}

/// A port that others of the same node hardly have: who is there cannot be asked from here.
fn likely_port(id: &StartId) -> u16 {
    let text = id.to_string();
    let sum = text.bytes().fold(7u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    20_000 + u16::try_from(sum % 10_000).unwrap_or(0)
}
