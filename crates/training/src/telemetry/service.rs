//! What is asked about the use of jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use falaj_base::{Error, Result, Timestamp};
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use schemars::JsonSchema;
use serde::Serialize;

use super::board::Board;
use super::config::Whom;
use super::hints::{self, Asked, Hint, Used};
use super::reading::Sample;
use super::store::{self, Of, Past};
use super::summary::{Summary, SummaryShown};
use crate::job::{Definition, Job, resource};
use crate::name::{JobId, QueueName, StartId};
use crate::{JOB_READ, Training};

/// Starts that one answer tells of at most.
const STARTS: usize = 1000;
/// Starts of a project that a report looks at, and jobs that it tells of.
const LOOKED_AT: usize = 20_000;
const TOLD: usize = 1000;
/// A sample of so many rounds ago, and of this long ago, is of nothing that runs here.
const FORGOTTEN: u32 = 10;
const FORGOTTEN_AFTER: Duration = Duration::from_mins(5);
/// How much of its limit of memory the kernel may count for files that were read.
const FULL: f64 = 0.9;
const MILLIONTHS: f64 = 1_000_000.0;

/// What a start uses and has used.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StartTelemetry {
    pub task: u32,
    /// Counted from 1.
    pub attempt: u32,
    /// Whether it goes on.
    pub running: bool,
    /// Since when it is idle by its rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
    /// GPUs of it that were idle for as long as the rule says.
    pub gpus_idle: usize,
    /// The newest sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<Sample>,
    pub summary: SummaryShown,
}

/// What the starts of a job use and have used.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Telemetry {
    pub job: JobId,
    /// Those that run first, then the newest.
    pub starts: Vec<StartTelemetry>,
}

/// What jobs of one name should ask for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct JobHints {
    pub name: String,
    /// The newest of them.
    pub job: JobId,
    pub queue: String,
    /// How many starts were looked at.
    pub starts: usize,
    pub hints: Vec<Hint>,
}

impl Training {
    /// What a job uses now, and what its starts have used.
    pub async fn telemetry(&self, call: &Call, id: &str, task: Option<u32>) -> Result<Telemetry> {
        let job = self.seen(call, id, &JOB_READ).await?;
        if let Some(task) = task.filter(|task| *task >= job.tasks.count) {
            return Err(Error::invalid("task", task, format!("below {}", job.tasks.count)));
        }
        let id = job.id;
        let kept = self.db().read(move |tx| store::of_job(tx, id, task, STARTS)).await?;
        let whom = Whom {
            pool: job.pool.as_str(),
            tenant: call.place.tenant.as_str(),
            queue: job.definition.queue.as_ref().map_or("", |queue| queue.as_str()),
        };
        let after = self.config().telemetry.policy(&whom).after.get();
        let before = self.db().now() - after;
        let mut found: BTreeMap<StartId, StartTelemetry> = kept
            .into_iter()
            .map(|(id, open, idle, summary)| (id, shown(id, open, idle, &summary, before)))
            .collect();
        // What this server has read meanwhile is newer.
        for (id, entry) in self.fresh_board().of_job(id) {
            if task.is_none_or(|task| task == id.task.task) {
                let now = shown(id, true, entry.idle_since, &entry.summary, before);
                found.insert(id, now);
            }
        }
        let mut starts: Vec<_> = found.into_values().collect();
        starts.sort_by_key(|it| (!it.running, it.task, std::cmp::Reverse(it.attempt)));
        starts.truncate(STARTS);
        Ok(Telemetry { job: job.id, starts })
    }

    /// The board without what is too old to be of starts that run here.
    pub(super) fn fresh_board(&self) -> &Board {
        let old = (self.config().telemetry.every.get() * FORGOTTEN).max(FORGOTTEN_AFTER);
        let board = self.board();
        board.forget_before(self.db().now() - old);
        board
    }

    /// Since when jobs of the project do not use what they have.
    pub(crate) async fn idle_jobs(&self, call: &Call) -> Result<BTreeMap<JobId, Timestamp>> {
        let project = call.place.id;
        self.db().read(move |tx| store::idle(tx, project)).await
    }

    /// A job, with what is known of its use.
    pub(crate) async fn shown(&self, call: &Call, id: &str) -> Result<Job> {
        let mut job = self.seen(call, id, &JOB_READ).await?;
        if job.state.is_placed() {
            job.idle_since = self.idle_jobs(call).await?.get(&job.id).copied();
        }
        Ok(job)
    }

    /// Refuses `reclaim = false` where its rule does not allow that.
    pub(crate) fn may_keep(&self, call: &Call, definition: &Definition, pool: usize) -> Result<()> {
        let whom = Whom {
            pool: self.pool_list().list[pool].name.as_str(),
            tenant: call.place.tenant.as_str(),
            queue: definition.queue.as_ref().map_or("", |queue| queue.as_str()),
        };
        if definition.reclaim || self.config().telemetry.policy(&whom).allow_protected {
            return Ok(());
        }
        let allowed = "absent or true: the rule of its pool and queue lets no job keep what it does \
                       not use (`training.telemetry`)";
        Err(Error::invalid("reclaim", false, allowed))
    }

    /// What jobs of the same name as this one should ask for.
    pub async fn job_hints(&self, call: &Call, id: &str) -> Result<JobHints> {
        let job = self.seen(call, id, &JOB_READ).await?;
        let (project, most) = (call.place.id, self.config().telemetry.hints.starts);
        let of = Of { name: Some(job.name.clone()), queue: None };
        let past = self.db().read(move |tx| store::past(tx, project, &of, (most, most))).await?;
        let queue = job.definition.queue.as_ref().map_or("", |queue| queue.as_str()).to_owned();
        let asked = Asked::of(&job.definition);
        let used: Vec<Used> = past.iter().map(used).collect();
        let hints = hints::hints(&asked, &used, &self.config().telemetry.hints);
        Ok(JobHints { name: job.name, job: job.id, queue, starts: used.len(), hints })
    }

    /// What jobs of a project, or of one queue of it, should ask for; those that would save the most
    /// first.
    pub async fn hints(&self, call: &Call, queue: Option<QueueName>) -> Result<Vec<JobHints>> {
        call.ctx.authorize(&JOB_READ, &call.place.resource()).await?;
        let (project, config) = (call.place.id, self.config().telemetry.hints);
        let of = Of { name: None, queue: queue.map(|queue| queue.to_string()) };
        let read = move |tx: &mut Tx<'_>| store::past(tx, project, &of, (LOOKED_AT, config.starts));
        let past = self.db().read(read).await?;
        let mut by_name: BTreeMap<String, Vec<Past>> = BTreeMap::new();
        for start in past {
            by_name.entry(start.name.clone()).or_default().push(start);
        }
        let mut all: Vec<JobHints> =
            by_name.into_values().filter_map(|starts| report(&starts, &config)).collect();
        all.retain(|it| {
            let of = resource(&call.place, &it.job.to_string(), false);
            !it.hints.is_empty() && call.ctx.allows(&JOB_READ, &of)
        });
        let saves =
            |it: &JobHints| it.hints.iter().filter_map(|hint| hint.saves_per_hour).sum::<f64>();
        all.sort_by(|a, b| saves(b).total_cmp(&saves(a)).then_with(|| a.name.cmp(&b.name)));
        all.truncate(TOLD);
        Ok(all)
    }
}

fn report(starts: &[Past], config: &super::config::HintsConfig) -> Option<JobHints> {
    // The newest is first.
    let newest = starts.first()?;
    let asked = newest.asked.as_ref()?;
    let used: Vec<Used> = starts.iter().map(used).collect();
    Some(JobHints {
        name: newest.name.clone(),
        job: newest.job,
        queue: newest.queue.clone(),
        starts: used.len(),
        hints: hints::hints(asked, &used, config),
    })
}

fn shown(
    id: StartId,
    running: bool,
    idle_since: Option<Timestamp>,
    summary: &Summary,
    before: Timestamp,
) -> StartTelemetry {
    StartTelemetry {
        task: id.task.task,
        attempt: id.attempt,
        running,
        idle_since: idle_since.filter(|_| running),
        gpus_idle: if running { summary.gpus_idle(before) } else { 0 },
        now: summary.last.clone().filter(|_| running),
        summary: summary.shown(),
    }
}

/// What a start used of each of its nodes.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "amounts are far below 2^52"
)]
fn used(past: &Past) -> Used {
    let nodes = f64::from(past.nodes);
    let summary = past.summary.as_ref();
    let mean_cores = past.cpu_seconds.filter(|_| past.ran_seconds > 0.0);
    let mean_cores = mean_cores.map(|seconds| seconds / past.ran_seconds / nodes);
    let memory = summary.and_then(|it| it.memory.peak()).map(|mib| mib * 1_048_576.0);
    let limit = past.asked.as_ref().map_or(0.0, |it| it.memory_bytes as f64 * nodes);
    // What the kernel counts at the limit is what was read from files; readings leave that out.
    let peak = match (past.peak_memory.map(|bytes| bytes as f64), memory) {
        (Some(kernel), Some(read)) if kernel > limit * FULL => Some(read),
        (Some(kernel), None) if kernel > limit * FULL => None,
        (Some(kernel), _) => Some(kernel),
        (None, read) => read,
    };
    let gpus = summary.filter(|it| it.gpu.count() > 0);
    Used {
        seconds: past.ran_seconds,
        succeeded: past.state == crate::job::State::Succeeded.as_str(),
        out_of_memory: past.out_of_memory,
        price: past.price as f64 / MILLIONTHS,
        mean_cores,
        high_cores: summary.and_then(|it| it.cpu.high()).map(|cores| cores / nodes),
        peak_memory_bytes: peak.map(|bytes| (bytes / nodes) as u64),
        gpus_busy: gpus.map(|it| it.gpus.iter().filter(|gpu| gpu.busy_seconds > 0.0).count()),
        gpu_mean: gpus.and_then(|it| it.gpu.mean()),
        gpu_high: gpus.and_then(|it| it.gpu.high()),
        gpu_memory_part: gpus.and_then(|it| {
            let total = it.last.as_ref()?.gpus.first()?.memory_bytes as f64;
            let peak = it.gpus.iter().map(|gpu| gpu.peak_memory_bytes).max()? as f64;
            (total > 0.0).then_some(peak / total)
        }),
    }
}
