//! The default: a Gittins index learnt from what each tenant's jobs did before.
//!
//! The chance to finish in the next stretch of time, given how long a job has run, is learnt from
//! jobs that finished and from those that have not yet ([`history`]). A job's score is the GPU-time
//! it must be given per completion that this buys, at the best moment to stop: the smaller, the more
//! completions per GPU-hour. No duration is known or asked for. GPUs of gangs that need several nodes
//! count less: such a gang finds room only where several nodes are free at once, and would wait for
//! ever among equals.
//!
//! What keeps it calm and fair: a job that was started runs for a while before it can be displaced;
//! who displaces another must be better by a margin; jobs that have run for long stop taking turns;
//! a little of the cluster stays free, so that short jobs start at once instead of displacing
//! somebody; and who waits too long goes before all others.

mod history;

use history::{History, Leaning};

use super::{Order, Standing};
use crate::model::Millis;

const MINUTE: Millis = 60 * 1000;
/// GPUs that mostly are on one node.
const NODE: f64 = 8.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// What a job runs at least before it is displaced.
    pub minimum_run: Millis,
    /// How many times better the score of a displacing job must be.
    pub margin: f64,
    /// How long a job waits at most before it goes first.
    pub patience: Millis,
    /// Jobs that have run so long are alike, and first come, first served among themselves: taking
    /// turns would only make all of them late.
    pub settled: Millis,
    /// The part of the GPUs left free for jobs that promise to be short,
    pub headroom: f64,
    /// and from which score on a job does not, in GPU-seconds.
    pub long: f64,
    /// A batch ends when nothing of it was submitted for so long,
    pub batch_pause: Millis,
    /// or when its first is so old.
    pub batch_span: Millis,
    /// Finished jobs of a batch that count as much as the history of its group.
    pub batch_prior: f64,
    /// Finished jobs of a group that count as much as the history of its size.
    pub prior: f64,
    /// Finished jobs of a size that count as much as what is usual.
    pub usual: f64,
    /// Finished jobs after which older ones weigh a third.
    pub memory: f64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            minimum_run: 30 * MINUTE,
            margin: 2.0,
            patience: 7 * 24 * 60 * MINUTE,
            settled: 72 * 60 * MINUTE,
            headroom: 0.02,
            long: 4.0 * 3600.0,
            batch_pause: 3 * 60 * MINUTE,
            batch_span: 24 * 60 * MINUTE,
            batch_prior: 4.0,
            prior: 20.0,
            usual: 20.0,
            memory: 1000.0,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Gittins {
    tuning: Tuning,
    history: History,
}

impl Gittins {
    #[must_use]
    pub fn new(tuning: Tuning) -> Self {
        Self { tuning, history: History::default() }
    }
}

impl Order for Gittins {
    fn name(&self) -> &'static str {
        "falaj"
    }

    fn tag(&mut self, job: &Standing) -> u32 {
        self.history.batch(job, self.tuning.batch_pause, self.tuning.batch_span)
    }

    fn score(&self, job: &Standing) -> f64 {
        let job = &Standing { ran: job.ran.min(self.tuning.settled), ..*job };
        let gpus = if job.gpus > NODE { (NODE * job.gpus).sqrt() } else { job.gpus };
        self.history.cost(job) * gpus
    }

    fn displaces(&self, waiting: (f64, u64), running: (f64, u64)) -> bool {
        waiting.0 * self.tuning.margin < running.0
    }

    fn minimum_run(&self, _job: &Standing) -> Millis {
        self.tuning.minimum_run
    }

    fn patience(&self, _job: &Standing) -> Option<Millis> {
        Some(self.tuning.patience)
    }

    fn headroom(&self, job: &Standing) -> f64 {
        if self.score(job) > self.tuning.long { self.tuning.headroom } else { 0.0 }
    }

    fn finished(&mut self, job: &Standing) {
        self.history.finished(job, self.tuning.memory);
    }

    fn learn(&mut self, live: &mut dyn Iterator<Item = Standing>, weight: f64) -> bool {
        let Tuning { usual, prior, batch_prior, .. } = self.tuning;
        self.history.learn(live, weight, &Leaning { usual, prior, batch_prior })
    }

    fn expected_rest(&self, job: &Standing) -> Option<Millis> {
        Some((self.history.rest(job) * 1000.0) as Millis)
    }
}
