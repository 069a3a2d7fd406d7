//! Dominant resource fairness: the tenant with the smallest share goes next, first come first
//! served inside.

use super::{Order, Standing};

#[derive(Clone, Copy, Debug)]
pub struct Drf;

impl Order for Drf {
    fn name(&self) -> &'static str {
        "drf"
    }

    fn score(&self, job: &Standing) -> f64 {
        job.share
    }

    fn compares_shares(&self) -> bool {
        true
    }

    fn displaces(&self, waiting: (f64, u64), running: (f64, u64)) -> bool {
        waiting.0 < running.0
    }
}
