//! Shortest remaining time first, by an oracle. The GPUs count: what is short is the GPU-time.

use super::{Order, Standing};

#[derive(Clone, Copy, Debug)]
pub struct Srtf;

impl Order for Srtf {
    fn name(&self) -> &'static str {
        "srtf"
    }

    fn score(&self, job: &Standing) -> f64 {
        job.remaining() * job.gpus
    }

    fn tells_fresh_jobs_apart(&self) -> bool {
        true
    }

    fn replans(&self) -> bool {
        true
    }

    fn displaces(&self, waiting: (f64, u64), running: (f64, u64)) -> bool {
        waiting.0 < running.0
    }
}
