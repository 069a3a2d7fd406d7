//! The crash harness: does *acknowledged* mean *durable*, and *failed* mean *nothing happened*?
//!
//! Sixteen clients write all kinds of things through the front door. Everything they were told is
//! kept in a [`ledger`], outside the server. Then the server dies, starts again on what is left,
//! and is [checked](check) against the ledger:
//! - every acknowledged write is there, as it was acknowledged;
//! - a write whose answer never came is there completely (with its event and its audit entry) or
//!   not at all, and repeating it with its Idempotency-Key makes it happen exactly once;
//! - the audit log verifies, offline, against its signed checkpoint.
//!
//! Beside them a few clients [train](training), in MLflow's own protocol.
//!
//! Two ways to die, because they find different faults. [`kill`] is `kill -9`: it finds torn
//! multi-step changes, but proves nothing about fsync, since the page cache outlives the process.
//! [`power`] runs on a file system image and carries on from a copy of the image taken while it
//! was in use: what was not fsynced is not in the copy. With durability switched off, [`power`]
//! must find losses, and the check against the ledger must find them by itself, or neither would
//! prove anything.
//!
//! [`full`] takes the room away instead of the power.

pub mod audit;
pub mod check;
pub mod full;
pub mod kill;
pub mod ledger;
pub mod mounted;
pub mod power;
pub mod training;
pub mod workload;
pub mod write;

use std::time::Duration;

/// How many clients write at the same time.
pub const CLIENTS: usize = 16;

/// What one cycle saw.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub acknowledged: usize,
    pub unanswered: usize,
    pub repeated: usize,
    /// How many of the acknowledged and of the repeated were of trainers.
    pub trained: usize,
    pub retrained: usize,
    /// From the start of the process to ready.
    pub restart: Duration,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.unanswered += other.unanswered;
        self.repeated += other.repeated;
        self.trained += other.trained;
        self.retrained += other.retrained;
        self.restart = self.restart.max(other.restart);
    }

    /// What a check of the trainers saw.
    pub fn add_trained(&mut self, other: Self) {
        self.add(Self { trained: other.acknowledged, retrained: other.repeated, ..other });
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} acknowledged ({} of them by trainers), {} unanswered, {} repeated ({}), slowest \
             restart {} ms",
            self.acknowledged,
            self.trained,
            self.unanswered,
            self.repeated,
            self.retrained,
            self.restart.as_millis()
        )
    }
}
