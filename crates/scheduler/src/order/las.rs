//! Least attained service: who has had little goes first. Knows no durations.

use super::{Order, Standing};
use crate::model::Millis;

const HOUR: f64 = 3600.0;

/// Tiresias, discretised: a job falls to a lower level after 1, 10 and 100 GPU-hours; inside a level
/// by the time of its first start, so that levels do not shuffle themselves (Gu et al., NSDI 2019).
#[derive(Clone, Copy, Debug)]
pub struct Tiresias {
    replans: bool,
}

impl Tiresias {
    #[must_use]
    pub fn published() -> Self {
        Self { replans: true }
    }

    /// The same order, with our way of exchanging jobs at rounds.
    #[must_use]
    pub fn exchanging() -> Self {
        Self { replans: false }
    }
}

/// More than any time of a trace in milliseconds, to keep levels apart.
const LEVEL: f64 = 1e15;

impl Order for Tiresias {
    fn name(&self) -> &'static str {
        if self.replans { "tiresias" } else { "tiresias-calm" }
    }

    fn score(&self, job: &Standing) -> f64 {
        let hours = job.service / HOUR;
        let level = [1.0, 10.0, 100.0].iter().filter(|&&edge| hours >= edge).count();
        level as f64 * LEVEL + job.first_start.unwrap_or(job.submitted) as f64
    }

    fn tells_fresh_jobs_apart(&self) -> bool {
        true
    }

    fn replans(&self) -> bool {
        self.replans
    }

    fn displaces(&self, waiting: (f64, u64), running: (f64, u64)) -> bool {
        waiting < running
    }
}

/// Attained service as it is, with a minimum run so that jobs do not take turns at every round.
#[derive(Clone, Copy, Debug)]
pub struct Las {
    pub minimum_run: Millis,
}

impl Default for Las {
    fn default() -> Self {
        Self { minimum_run: 30 * 60 * 1000 }
    }
}

impl Order for Las {
    fn name(&self) -> &'static str {
        "las"
    }

    fn score(&self, job: &Standing) -> f64 {
        job.service
    }

    fn replans(&self) -> bool {
        true
    }

    fn displaces(&self, waiting: (f64, u64), running: (f64, u64)) -> bool {
        waiting.0 < running.0
    }

    fn minimum_run(&self, _job: &Standing) -> Millis {
        self.minimum_run
    }
}
