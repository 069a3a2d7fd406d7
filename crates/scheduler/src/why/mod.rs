//! Why a job waits: the first rule that blocks it, who holds what it needs, what would have to
//! change, its place in line and when it may start.
//!
//! Everything is computed from the state as it is, so the answer is true at the moment it is given,
//! not what some pass remembered; when that job's class was last looked at is told with it.

mod holders;
mod line;

use crate::decision::Refusal;
use crate::model::{Dimension, JobId, Millis, NodeId, QueueId};
use crate::scheduler::{Scheduler, State};
use crate::waiting::Verdict;

/// What is known about a job that has not ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    Running {
        since: Millis,
        nodes: usize,
    },
    /// Told to stop, and saving its work.
    Leaving,
    Waiting(Waits),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Waits {
    pub rule: Rule,
    pub changes: Vec<Change>,
    /// Jobs that go before it, as the order stands.
    pub ahead: usize,
    /// GPUs that those ask for.
    pub gpus_ahead: f64,
    pub start: Option<Estimate>,
    /// When a pass last looked at it, or at one like it that goes before.
    pub considered: Millis,
    /// It has waited so long that it goes before all others.
    pub outranks: bool,
    /// Its queue lives on what others own, and others who do have had less.
    pub fair: Option<FairWait>,
}

/// Who goes before a job because its queue has had more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FairWait {
    /// What its queue has used of late, as a share of the cluster.
    pub used: f64,
    /// Jobs of queues that have and have had less, and go before it for that.
    pub ahead: usize,
}

/// The first rule that blocks it.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// Nothing does: the next pass starts it, or it is behind others of its class.
    InLine,
    /// A queue above it, or its own, may hold no more.
    Quota {
        queue: Option<QueueId>,
        dimension: Dimension,
        needs: u64,
        room: u64,
        /// The queues below the same one that hold most, with how much of it they borrow.
        holders: Vec<QueueHolder>,
    },
    /// No node that it may use is up.
    NoNode,
    /// Fewer nodes have room than it needs.
    NoRoom { nodes: u16, needs: u16, holders: Vec<JobId> },
    /// There would be room, but on nodes kept for another.
    KeptFor { job: JobId, at: Option<Millis> },
    /// There is room, but what is left is kept free for short jobs.
    Headroom,
    /// The first in line cannot start and the policy lets nobody pass.
    Behind { job: JobId },
    /// It could not run on anything that is known by now.
    Never(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueHolder {
    pub queue: QueueId,
    pub holds: u64,
    pub borrows: u64,
}

/// Something that would let it start, everything else being as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Asking for fewer GPUs on each node.
    FewerGpus {
        per_node: u8,
    },
    FewerNodes {
        nodes: u16,
    },
    /// These jobs end. `by` is known if all have a time limit, an expectation otherwise.
    JobsEnd {
        jobs: Vec<JobId>,
        node: NodeId,
        by: Millis,
        known: bool,
    },
    /// A larger quota of this queue, by so much.
    MoreQuota {
        queue: QueueId,
        dimension: Dimension,
        by: u64,
    },
    /// Being allowed to use spot capacity.
    AllowSpot,
    /// Being allowed in more zones. Whether its data may go there is not decided here.
    MoreZones,
    /// Another type of GPU would do.
    AnyGpuType,
}

/// When a job may start: likely, and between which times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    pub earliest: Millis,
    pub likely: Millis,
    pub latest: Millis,
}

impl Scheduler {
    /// Why a job is where it is; `None` if it is not known or has ended.
    #[must_use]
    pub fn why(&self, id: JobId) -> Option<Why> {
        let slot = *self.ids.get(&id)?;
        let job = self.job(slot)?;
        match job.state {
            State::Running => Some(Why::Running { since: job.started, nodes: job.placement.len() }),
            State::Leaving => Some(Why::Leaving),
            State::Waiting | State::First => {
                let rule = self.blocking_rule(slot, job);
                let line = self.ahead_of(slot, job);
                let (ahead, gpus_ahead) = (line.jobs, line.gpus);
                let fair = (line.fairer > 0).then(|| FairWait {
                    used: self.quota.used(job.queue, self.cluster.capacity()),
                    ahead: line.fairer,
                });
                let changes = self.changes(slot, job, &rule);
                let first = job.state == State::First;
                let start = self.estimate(slot, job, &rule, &changes, gpus_ahead);
                let considered =
                    if first { self.passed } else { self.waiting.class(job.class).considered };
                let waits = Waits {
                    rule,
                    changes,
                    ahead,
                    gpus_ahead,
                    start,
                    considered,
                    outranks: first,
                    fair,
                };
                Some(Why::Waiting(waits))
            }
        }
    }

    /// When the job of the oldest look was looked at: no waiting job is ever further back.
    #[must_use]
    pub fn longest_unconsidered(&self) -> Option<Millis> {
        let classes = self.waiting.active().iter().map(|&at| self.waiting.class(at).considered);
        classes.min()
    }

    fn verdict(&self, first: bool, class: u32) -> Verdict {
        if first { self.first_verdict } else { self.waiting.class(class).verdict }
    }
}
