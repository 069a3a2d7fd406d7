//! GPUs: whole, a fraction that shares its memory and time, or a MIG slice that shares nothing.

/// A GPU in parts, such that both hundredths and sevenths are whole numbers of them.
pub const GPU_PARTS: u64 = 700;

/// How many types of GPUs one cluster may have. Each is a dimension of every quota.
pub const MAX_GPU_TYPES: usize = 5;

/// A type of GPU by its number; whoever calls knows the names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuType(pub u8);

/// A slice of a partitioned GPU, by the sevenths of its processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MigProfile {
    G1,
    G2,
    G3,
    G4,
    G7,
}

impl MigProfile {
    pub const ALL: [Self; 5] = [Self::G1, Self::G2, Self::G3, Self::G4, Self::G7];

    #[must_use]
    pub fn sevenths(self) -> u64 {
        match self {
            Self::G1 => 1,
            Self::G2 => 2,
            Self::G3 => 3,
            Self::G4 => 4,
            Self::G7 => 7,
        }
    }

    /// The eighths of memory that the slice takes at each place where the hardware allows it, the
    /// best place first: the one that spoils the fewest places of larger slices.
    #[must_use]
    pub fn places(self) -> &'static [u8] {
        match self {
            Self::G1 => &[1 << 6, 1 << 4, 1 << 5, 1 << 2, 1 << 3, 1 << 0, 1 << 1],
            Self::G2 => &[0b0011_0000, 0b0000_1100, 0b0000_0011],
            Self::G3 => &[0b1111_0000, 0b0000_1111],
            Self::G4 => &[0b0000_1111],
            Self::G7 => &[0b1111_1111],
        }
    }
}

/// What a job wants of the GPUs of each of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GpuAsk {
    None,
    Whole(u8),
    /// Parts of one GPU, fewer than [`GPU_PARTS`]. Not isolated from others on the device.
    Fraction(u16),
    Mig(MigProfile),
}

impl GpuAsk {
    #[must_use]
    pub fn parts(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Whole(count) => u64::from(count) * GPU_PARTS,
            Self::Fraction(parts) => u64::from(parts),
            Self::Mig(profile) => profile.sevenths() * (GPU_PARTS / 7),
        }
    }
}
