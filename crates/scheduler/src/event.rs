//! What the scheduler is told.

use crate::decision::Placed;
use crate::model::{JobId, JobSpec, Millis, NodeId, NodeSpec, QueueId, QueueSpec, Quota};
use crate::usage::Seconds;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A queue is new, or has another place or quota. Parents come before children.
    QueueSet(QueueSpec),
    QuotaChanged(QueueId, Quota),
    /// A node is there, for the first time or again.
    NodeUp(NodeSpec),
    /// A node is gone with everything on it. Gangs that it held part of start again from their last
    /// checkpoint, before jobs that never ran.
    NodeDown(NodeId),
    /// A node takes nothing new.
    NodeDrained(NodeId),
    Submitted(JobSpec),
    /// A job that was there before whoever calls began anew, as it was left.
    Restored(Box<Restored>),
    /// A run of it came to nothing (it failed, or its machine did) and it is to start again, before
    /// all others if `first`.
    Again {
        job: JobId,
        first: bool,
    },
    /// Every rank has a checkpoint of what was done until `of`.
    Checkpointed {
        job: JobId,
        of: Millis,
    },
    /// A job that was decided to stop has left its nodes.
    Stopped(JobId),
    /// A job that was decided to go on with other nodes does so.
    Resized(JobId),
    /// It ended by itself, well or not.
    Finished(JobId),
    /// It was withdrawn and is on no node any more.
    Cancelled(JobId),
    /// What jobs of a queue that have ended used before whoever calls began anew, and what those that
    /// run used until now: resource-seconds, as far as they have not faded.
    Used {
        queue: QueueId,
        seconds: Seconds,
    },
    /// Nothing but time has passed.
    Tick,
}

/// A job as it was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    pub spec: JobSpec,
    pub submitted: Millis,
    /// How long it has run, this run not counted.
    pub ran: Millis,
    /// Where it runs, if it does.
    pub running: Option<RunningAt>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningAt {
    pub placement: Vec<Placed>,
    pub since: Millis,
    /// Until when its work is safe in a checkpoint.
    pub saved: Millis,
}
