//! Who runs where and when: the scheduler as a pure state machine, and a simulator that drives it.
//!
//! `(cluster, queues, jobs, order, time) → decisions`. Events go in ([`Event`]), decisions come out
//! ([`Decision`]); whoever calls does what was decided and tells what came of it.
//!
//! Must hold:
//! - No input, output, clock, randomness or thread: the same events give the same decisions. No
//!   hash map is ever walked.
//! - A gang is placed whole or not at all, and no device is given twice.
//! - No queue holds more than its quota and what it may borrow; a zone that a job does not allow is
//!   never used.
//! - Every pass accounts for every waiting job, by the [class](waiting) it belongs to.
//!
//! Not here: jobs in a database, processes, executors, prices of anything.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "amounts and times are far below 2^52; scores and shares are ratios of them"
)]
#![allow(
    clippy::trivially_copy_pass_by_ref,
    clippy::similar_names,
    reason = "shares are walked over by reference; a slot and its spot are different things"
)]

pub mod cluster;

pub mod decision;
pub mod demand;
pub mod event;
pub mod model;
pub mod order;
pub mod quota;
pub mod ranked;
pub mod scheduler;
pub mod simulate;
pub mod usage;
pub mod waiting;
pub mod why;

pub use decision::{Decision, Placed, Refusal, StopReason};
pub use demand::{Demand, NodeStanding};
pub use event::{Event, Restored, RunningAt};
pub use model::{
    Amounts, Ask, GpuAsk, GpuType, JobId, JobSpec, MigProfile, Millis, NodeId, NodeSpec, QueueId,
    QueueSpec, Quota, Spot, Topology, Width, Zone, ZoneSet,
};
pub use order::Order;
pub use scheduler::{Scheduler, Settings};
pub use usage::HalfLife;
