//! In which order jobs run: one small seam, and the policies behind it.
//!
//! Quotas, priorities, placement and the rules of preemption are the scheduler's and the same for
//! all; a policy gives each job a score and says who may displace whom.

mod drf;
mod fifo;
pub mod gittins;
mod las;
mod srtf;
mod themis;

use std::fmt::Debug;

pub use drf::Drf;
pub use fifo::Fifo;
pub use gittins::Gittins;
pub use las::{Las, Tiresias};
pub use srtf::Srtf;
pub use themis::Themis;

use crate::model::Millis;

/// How a job stands, for a policy to judge.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standing {
    pub now: Millis,
    pub submitted: Millis,
    /// The order of submission; no two jobs share one.
    pub sequence: u64,
    pub first_start: Option<Millis>,
    /// How long it has run, all runs together.
    pub ran: Millis,
    /// GPU-seconds it has had.
    pub service: f64,
    /// GPUs of the whole gang; a core counts as a sixteenth where there are none.
    pub gpus: f64,
    pub tenant: u32,
    /// What the policy called it when it came.
    pub tag: u32,
    /// The weighted dominant share of its tenant.
    pub share: f64,
    pub running: bool,
    pub preemptions: u32,
    /// What everybody present asks for, over what there is; at least 1.
    pub contention: f64,
    /// How long it will have run in the end. Only oracles look.
    pub oracle: Option<Millis>,
}

impl Standing {
    /// Seconds left to run, for oracles.
    pub(crate) fn remaining(&self) -> f64 {
        let total = self.oracle.unwrap_or(self.ran);
        total.saturating_sub(self.ran) as f64 / 1000.0
    }
}

/// What happens when the first in order cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Everybody behind it waits.
    Blocks,
    /// It is promised nodes; others start only where that does not delay it.
    Reserves,
    /// Others start if they can.
    Skipped,
}

/// A policy. Smaller scores run first; equal ones in the order of submission.
pub trait Order: Debug + Send + Sync {
    fn name(&self) -> &'static str;

    fn head(&self) -> Head {
        Head::Skipped
    }

    /// A number that the policy wants to see with a new job from now on. Jobs of different numbers
    /// are different classes, so there should be few.
    fn tag(&mut self, _job: &Standing) -> u32 {
        0
    }

    /// The score of a job as it stands.
    fn score(&self, job: &Standing) -> f64;

    /// Whether jobs that never ran can have different scores though tenant, GPUs and tag are
    /// the same.
    fn tells_fresh_jobs_apart(&self) -> bool {
        false
    }

    /// Whether scores of waiting jobs change by themselves with time.
    fn drifts(&self) -> bool {
        false
    }

    /// Whether scores depend on what tenants hold.
    fn compares_shares(&self) -> bool {
        false
    }

    /// Whether it stops running jobs for the sake of its order at all.
    fn preempts(&self) -> bool {
        true
    }

    /// Whether rounds rank and place everybody anew, instead of exchanging whom it pays to.
    fn replans(&self) -> bool {
        false
    }

    /// Whether a running job may be stopped, at a round, for a waiting one with the first score.
    /// Must be false both ways round for some pair or other, or jobs would take turns for ever.
    fn displaces(&self, _waiting: (f64, u64), _running: (f64, u64)) -> bool {
        false
    }

    /// How long a job runs at least before it is displaced.
    fn minimum_run(&self, _job: &Standing) -> Millis {
        0
    }

    /// How long a job waits, since it was submitted or stopped, before it goes before all others.
    fn patience(&self, _job: &Standing) -> Option<Millis> {
        None
    }

    /// The part of the GPUs that must stay free when this job starts into free room.
    fn headroom(&self, _job: &Standing) -> f64 {
        0.0
    }

    /// A job has ended by itself.
    fn finished(&mut self, _job: &Standing) {}

    /// Called at every round with all jobs, or with a sample where there are very many: each stands
    /// for `weight`. True if scores are others now.
    fn learn(&mut self, _live: &mut dyn Iterator<Item = Standing>, _weight: f64) -> bool {
        false
    }

    /// How much longer a job will run, as far as the policy can tell.
    fn expected_rest(&self, _job: &Standing) -> Option<Millis> {
        None
    }
}

/// The names that [`by_name`] knows, as they are shown.
pub const NAMES: [&str; 9] =
    ["fifo", "fifo-backfill", "srtf", "tiresias", "tiresias-calm", "las", "drf", "themis", "falaj"];

/// A policy by its name.
#[must_use]
pub fn by_name(name: &str) -> Option<Box<dyn Order>> {
    Some(match name {
        "fifo" => Box::new(Fifo::strict()),
        "fifo-backfill" => Box::new(Fifo::backfilling()),
        "srtf" => Box::new(Srtf),
        "tiresias" => Box::new(Tiresias::published()),
        "tiresias-calm" => Box::new(Tiresias::exchanging()),
        "las" => Box::new(Las::default()),
        "drf" => Box::new(Drf),
        "themis" => Box::new(Themis),
        "falaj" => Box::new(Gittins::default()),
        _ => return None,
    })
}
