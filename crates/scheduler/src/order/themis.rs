//! Finish-time fairness in the manner of Themis, by an oracle: who will have been slowed down most
//! against an equal share of the cluster goes first.

use super::{Order, Standing};

#[derive(Clone, Copy, Debug)]
pub struct Themis;

impl Order for Themis {
    fn name(&self) -> &'static str {
        "themis"
    }

    fn score(&self, job: &Standing) -> f64 {
        let total = job.oracle.unwrap_or(job.ran).max(1) as f64 / 1000.0;
        let so_far = job.now.saturating_sub(job.submitted) as f64 / 1000.0;
        -(so_far + job.remaining()) / (total * job.contention)
    }

    fn tells_fresh_jobs_apart(&self) -> bool {
        true
    }

    fn drifts(&self) -> bool {
        true
    }

    fn replans(&self) -> bool {
        true
    }

    fn displaces(&self, waiting: (f64, u64), running: (f64, u64)) -> bool {
        waiting.0 < running.0
    }
}
