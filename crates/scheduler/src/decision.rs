//! What the scheduler decides.

use crate::model::{Dimension, JobId, Millis, NodeId, QueueId};

/// A node's share of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placed {
    pub node: NodeId,
    /// Its GPUs, by bit.
    pub devices: u16,
    /// The eighths of the one GPU's memory, for a MIG slice.
    pub slice: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Start the whole gang there, once everybody in `after` has left those nodes.
    Start { job: JobId, placement: Vec<Placed>, after: Vec<JobId>, borrows: bool },
    /// Let it save, then stop it. It keeps its place in line and its progress.
    Stop { job: JobId, why: StopReason, for_job: Option<JobId>, lost_gpu_ms: u64 },
    /// An elastic job goes on with exactly these nodes.
    Resize { job: JobId, placement: Vec<Placed>, after: Vec<JobId>, for_job: Option<JobId> },
    /// Let it save, stop it, and start it again on these nodes, so that others free up for a larger
    /// job. It goes on at once.
    Move { job: JobId, placement: Vec<Placed>, after: Vec<JobId>, for_job: JobId, lost_gpu_ms: u64 },
    /// It can never run as asked; it is forgotten.
    Refuse { job: JobId, why: Refusal },
}

impl Decision {
    #[must_use]
    pub fn job(&self) -> JobId {
        match self {
            Self::Start { job, .. }
            | Self::Stop { job, .. }
            | Self::Resize { job, .. }
            | Self::Move { job, .. }
            | Self::Refuse { job, .. } => *job,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopReason {
    /// It lived on what another queue owns, who needs it now.
    Reclaimed,
    /// Something of its own queue is more urgent.
    Priority,
    /// The order of the policy: others have had less, or will be done sooner.
    Order,
    /// Somebody has waited too long.
    Starvation,
    /// One of its nodes is gone.
    NodeLost,
    /// A quota became smaller than what was held.
    QuotaCut,
    /// Its deadline allows no more risk, and it runs on capacity that may vanish.
    LeavesSpot,
}

/// Why a job can never run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    UnknownQueue(QueueId),
    /// Jobs go to the leaves of the tree.
    QueueHasChildren(QueueId),
    Duplicate,
    /// A field that contradicts itself or another one.
    Invalid(&'static str),
    /// No known node that it may use is large enough.
    NoNodeLargeEnough,
    /// Nodes are large enough, but there are fewer than it needs.
    TooFewNodes {
        needs: u16,
        there_are: u16,
    },
    /// No zone that it allows has any node.
    NoNodeInZones,
    /// More than its queue could ever have.
    OverQuota {
        queue: QueueId,
        dimension: Dimension,
        needs: u64,
        at_most: u64,
    },
    DeadlinePassed {
        deadline: Millis,
    },
}
