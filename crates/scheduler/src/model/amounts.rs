//! How much of each resource: a small vector, one dimension for each thing a quota can govern.

use super::gpu::{GpuType, MAX_GPU_TYPES};

/// CPU, memory, all GPUs, and GPUs of each type.
pub const DIMENSIONS: usize = 3 + MAX_GPU_TYPES;

/// No limit. Far from the end of the range, so that sums of several do not wrap.
pub const UNLIMITED: u64 = u64::MAX / 1024;

/// What a dimension measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dimension {
    /// Thousandths of a core.
    Cpu,
    /// MiB.
    Memory,
    /// Parts of GPUs of any type; [`super::GPU_PARTS`] are one.
    Gpu,
    /// Parts of GPUs of one type.
    GpuOf(GpuType),
}

impl Dimension {
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::Cpu => 0,
            Self::Memory => 1,
            Self::Gpu => 2,
            Self::GpuOf(kind) => 3 + usize::from(kind.0),
        }
    }

    #[must_use]
    pub fn at(index: usize) -> Self {
        match index {
            0 => Self::Cpu,
            1 => Self::Memory,
            2 => Self::Gpu,
            other => Self::GpuOf(GpuType((other - 3) as u8)),
        }
    }
}

/// An amount in each dimension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Amounts(pub [u64; DIMENSIONS]);

impl Amounts {
    pub const ZERO: Self = Self([0; DIMENSIONS]);
    pub const UNLIMITED: Self = Self([UNLIMITED; DIMENSIONS]);

    #[must_use]
    pub fn with(mut self, dimension: Dimension, amount: u64) -> Self {
        self.0[dimension.index()] = amount;
        self
    }

    #[must_use]
    pub fn get(&self, dimension: Dimension) -> u64 {
        self.0[dimension.index()]
    }

    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].saturating_add(other.0[i]).min(UNLIMITED)))
    }

    /// What is left; nothing where `other` is more.
    #[must_use]
    pub fn less(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| {
            if self.0[i] >= UNLIMITED { UNLIMITED } else { self.0[i].saturating_sub(other.0[i]) }
        }))
    }

    #[must_use]
    pub fn least(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].min(other.0[i])))
    }

    #[must_use]
    pub fn times(&self, count: u64) -> Self {
        Self(std::array::from_fn(|i| self.0[i].saturating_mul(count).min(UNLIMITED)))
    }

    #[must_use]
    pub fn fits(&self, room: &Self) -> bool {
        (0..DIMENSIONS).all(|i| self.0[i] <= room.0[i])
    }

    /// The first dimension of which `room` has too little for this.
    #[must_use]
    pub fn short_of(&self, room: &Self) -> Option<Dimension> {
        (0..DIMENSIONS).find(|&i| self.0[i] > room.0[i]).map(Dimension::at)
    }
}
