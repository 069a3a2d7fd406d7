//! A machine and where it stands.

use super::gpu::GpuType;

/// The most GPUs a node may have: devices are named by the bits of a word.
pub const MAX_GPUS: u8 = 16;

/// A node by its number. Numbers are given by the caller and should be dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A residency zone by its number, below 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Zone(pub u8);

/// The zones in which a job may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneSet(pub u64);

impl ZoneSet {
    pub const ANY: Self = Self(u64::MAX);

    #[must_use]
    pub fn of(zones: &[Zone]) -> Self {
        Self(zones.iter().fold(0, |set, zone| set | 1 << (zone.0 & 63)))
    }

    #[must_use]
    pub fn has(self, zone: Zone) -> bool {
        self.0 >> (zone.0 & 63) & 1 == 1
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    pub id: NodeId,
    /// Thousandths of a core.
    pub cpu: u32,
    /// MiB.
    pub memory: u32,
    pub gpus: u8,
    pub gpu_type: GpuType,
    /// Whether its GPUs may be cut into MIG slices.
    pub mig: bool,
    pub zone: Zone,
    pub rack: u32,
    /// The `NVLink` domain, or whatever else joins nodes more closely than a rack.
    pub block: u32,
    /// May be taken away at any time.
    pub spot: bool,
    /// Of a GPU for an hour (of a core where there is no GPU), in millionths of the currency.
    pub price: u64,
}

impl NodeSpec {
    /// A plain node of 8 GPUs, 64 cores and 512 GiB, for tests and simulations to start from.
    #[must_use]
    pub fn plain(id: u32) -> Self {
        Self {
            id: NodeId(id),
            cpu: 64_000,
            memory: 512 * 1024,
            gpus: 8,
            gpu_type: GpuType(0),
            mig: false,
            zone: Zone(0),
            rack: id / 16,
            block: id / 4,
            spot: false,
            price: 2_000_000,
        }
    }
}
