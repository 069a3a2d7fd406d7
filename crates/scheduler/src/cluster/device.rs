//! One GPU: free, given whole, shared by fractions, or cut into slices. Never two of these at once.

use crate::model::{GPU_PARTS, MigProfile};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    Free,
    Whole,
    /// Parts in use.
    Shared(u16),
    /// Eighths of its memory in use, by bit.
    Cut(u8),
}

impl Device {
    /// Parts that a fraction could still have, if others share it already.
    pub(crate) fn shared_room(self) -> u16 {
        match self {
            Self::Shared(used) => GPU_PARTS as u16 - used,
            _ => 0,
        }
    }

    /// Where a slice could go.
    pub(crate) fn place_for(self, profile: MigProfile) -> Option<u8> {
        let used = match self {
            Self::Free => 0,
            Self::Cut(used) => used,
            _ => return None,
        };
        profile.places().iter().copied().find(|place| place & used == 0)
    }
}
