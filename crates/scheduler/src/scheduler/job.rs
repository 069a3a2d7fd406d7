//! A job as the scheduler keeps it.

use crate::decision::Placed;
use crate::model::{GpuType, JobSpec, Millis, NodeId, Spot};
use crate::quota::Place;
use crate::waiting::{Lane, Shape};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// In its class.
    Waiting,
    /// Before all classes: it has waited too long, or lost its nodes through no fault of its own.
    First,
    /// Told to stop and not gone yet. Waits when it is.
    Leaving,
    Running,
}

#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) spec: JobSpec,
    pub(crate) queue: Place,
    pub(crate) tenant: Place,
    /// The order of submission.
    pub(crate) sequence: u64,
    pub(crate) state: State,
    /// What the policy called it.
    pub(crate) tag: u32,
    pub(crate) class: u32,
    pub(crate) lane: Lane,
    /// What it takes of spot capacity now.
    pub(crate) spot: Spot,
    pub(crate) submitted: Millis,
    /// Since when it waits.
    pub(crate) queued: Millis,
    pub(crate) first_start: Option<Millis>,
    pub(crate) preemptions: u32,
    /// Goes first once it has left: nodes were taken from it, or it leaves spot for its deadline.
    pub(crate) outranks: bool,
    /// Of earlier runs and widths: time, and GPU-seconds.
    pub(crate) ran: Millis,
    pub(crate) service: f64,
    /// Of this run.
    pub(crate) started: Millis,
    /// Until when work is safe in a checkpoint.
    pub(crate) saved: Millis,
    /// Since when it has the width it has.
    pub(crate) counted: Millis,
    pub(crate) resized: Millis,
    pub(crate) placement: Vec<Placed>,
    pub(crate) gpu_type: GpuType,
    /// Nodes that it was told to leave.
    pub(crate) leaving: Vec<NodeId>,
    /// Where it stands among the running.
    pub(crate) index: u32,
    /// Told apart from an earlier job in the same slot, and from itself before it last queued.
    pub(crate) generation: u32,
}

impl Job {
    pub(crate) fn shape(&self) -> Shape {
        Shape {
            queue: self.queue,
            ask: self.spec.per_node,
            nodes: self.spec.nodes,
            zones: self.spec.zones,
            spot: self.spot,
            topology: self.spec.topology,
            time_limit: self.spec.time_limit,
            tag: self.tag,
        }
    }

    /// GPUs of `nodes` shares; a core counts as a sixteenth where there are none.
    pub(crate) fn gpus(&self, nodes: usize) -> f64 {
        let ask = &self.spec.per_node;
        let each = ask.gpus().max(f64::from(ask.cpu) / 16_000.0).max(0.01);
        each * nodes as f64
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state == State::Running
    }

    pub(crate) fn ran_by(&self, now: Millis) -> Millis {
        let this = if self.is_running() { now.saturating_sub(self.started) } else { 0 };
        self.ran + this
    }

    pub(crate) fn service_by(&self, now: Millis) -> f64 {
        if !self.is_running() {
            return self.service;
        }
        let since = now.saturating_sub(self.counted) as f64 / 1000.0;
        self.service + since * self.gpus(self.placement.len())
    }

    /// GPU-milliseconds that stopping it now would lose.
    pub(crate) fn at_stake(&self, now: Millis) -> u64 {
        let since = now.saturating_sub(self.saved.max(self.started)) as f64;
        (since * self.gpus(self.placement.len())) as u64
    }
}
