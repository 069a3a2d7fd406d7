//! A job as it is asked for.

use super::Millis;
use super::amounts::{Amounts, Dimension};
use super::gpu::{GPU_PARTS, GpuAsk, GpuType};
use super::node::ZoneSet;
use super::queue::QueueId;

/// A job by its number, given by the caller and never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// What the job wants on each of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ask {
    /// Thousandths of a core.
    pub cpu: u32,
    /// MiB.
    pub memory: u32,
    pub gpu: GpuAsk,
    /// Any type if absent; a gang has one type throughout.
    pub gpu_type: Option<GpuType>,
}

impl Ask {
    /// What a node's share of this counts against quotas, on GPUs of `kind`.
    #[must_use]
    pub fn amounts(&self, kind: GpuType) -> Amounts {
        let mut amounts = Amounts::ZERO
            .with(Dimension::Cpu, self.cpu.into())
            .with(Dimension::Memory, self.memory.into());
        let parts = self.gpu.parts();
        if parts > 0 {
            amounts = amounts.with(Dimension::Gpu, parts).with(Dimension::GpuOf(kind), parts);
        }
        amounts
    }

    /// GPUs of one node's share, as a number.
    #[must_use]
    pub fn gpus(&self) -> f64 {
        self.gpu.parts() as f64 / GPU_PARTS as f64
    }
}

/// How many nodes: exactly `min` if both are the same, elastic otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Width {
    pub min: u16,
    pub max: u16,
}

impl Width {
    #[must_use]
    pub fn exactly(nodes: u16) -> Self {
        Self { min: nodes, max: nodes }
    }
}

/// Whether capacity that may vanish will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spot {
    Never,
    /// Spot where there is some, anything else otherwise.
    Allowed,
    /// Waits for spot as long as its deadline can still be met without, then takes no more risk.
    /// Needs a deadline and a time limit.
    UntilDeadlineNears,
}

/// What should hold a gang's nodes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    Rack,
    Block,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topology {
    Anywhere,
    Prefer(Level),
    Require(Level),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpec {
    pub id: JobId,
    pub queue: QueueId,
    /// Higher goes first.
    pub priority: i16,
    pub per_node: Ask,
    pub nodes: Width,
    /// Where it may run; never elsewhere.
    pub zones: ZoneSet,
    pub spot: Spot,
    pub topology: Topology,
    /// When it must have finished.
    pub deadline: Option<Millis>,
    /// It runs no longer than this; lets it backfill, and others be promised a start.
    pub time_limit: Option<Millis>,
    /// Once started it is not stopped before this has passed, for nobody.
    pub minimum_run: Millis,
    /// How long it will really run. Only oracles read it, and only a simulator knows.
    pub oracle: Option<Millis>,
}

impl JobSpec {
    /// `gpus` whole GPUs on one node and nothing special.
    #[must_use]
    pub fn plain(id: u64, queue: u32, gpus: u8) -> Self {
        Self {
            id: JobId(id),
            queue: QueueId(queue),
            priority: 0,
            per_node: Ask { cpu: 0, memory: 0, gpu: GpuAsk::Whole(gpus), gpu_type: None },
            nodes: Width::exactly(1),
            zones: ZoneSet::ANY,
            spot: Spot::Never,
            topology: Topology::Anywhere,
            deadline: None,
            time_limit: None,
            minimum_run: 0,
            oracle: None,
        }
    }
}
