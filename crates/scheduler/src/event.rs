//! What the scheduler is told.

use crate::model::{JobId, JobSpec, Millis, NodeId, NodeSpec, QueueId, QueueSpec, Quota};

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
    /// Nothing but time has passed.
    Tick,
}
