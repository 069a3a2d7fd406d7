//! The right edge of a growing tree: all that is needed to append to it and to know its root.

use super::Hash;

/// The roots of the complete subtrees that a tree of `size` leaves consists of, largest first: one
/// for each bit of `size`. Appending and the root cost O(log n), and so does the space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    peaks: Vec<Hash>,
}

impl Frontier {
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    pub fn append(&mut self, leaf: Hash) {
        let fits = self.append_subtree(0, leaf);
        debug_assert!(fits, "a leaf fits everywhere below 2^64 of them");
    }

    /// Appends the complete subtree of `2^level` leaves with root `root`. Answers false, and does
    /// nothing, where such a subtree cannot begin: it must start at a multiple of its own size.
    pub fn append_subtree(&mut self, level: u32, root: Hash) -> bool {
        let Some(width) = 1u64.checked_shl(level) else { return false };
        let Some(size) = self.size.checked_add(width) else { return false };
        if !self.size.is_multiple_of(width) {
            return false;
        }
        let mut merged = root;
        let mut left = self.size >> level;
        // Each trailing one-bit is a complete subtree just as large, waiting for its sibling.
        while left & 1 == 1 {
            if let Some(sibling) = self.peaks.pop() {
                merged = Hash::node(&sibling, &merged);
            }
            left >>= 1;
        }
        self.peaks.push(merged);
        self.size = size;
        true
    }

    #[must_use]
    pub fn root(&self) -> Hash {
        self.peaks
            .iter()
            .rev()
            .copied()
            .reduce(|right, left| Hash::node(&left, &right))
            .unwrap_or_else(Hash::of_nothing)
    }

    /// The peaks one after the other; the size says how many there are and how large.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.peaks.iter().flat_map(|peak| peak.0).collect()
    }

    /// Reads what [`Frontier::to_bytes`] wrote; none if the length does not fit the size.
    #[must_use]
    pub fn from_bytes(size: u64, bytes: &[u8]) -> Option<Self> {
        let (peaks, rest) = bytes.as_chunks::<32>();
        let fits = rest.is_empty() && peaks.len() == size.count_ones() as usize;
        fits.then(|| Self { size, peaks: peaks.iter().copied().map(Hash).collect() })
    }
}

impl FromIterator<Hash> for Frontier {
    fn from_iter<I: IntoIterator<Item = Hash>>(leaves: I) -> Self {
        let mut frontier = Self::default();
        for leaf in leaves {
            frontier.append(leaf);
        }
        frontier
    }
}

/// The root over `leaves`, for a range that need not begin at the start of the log.
#[must_use]
pub fn root_of(leaves: &[Hash]) -> Hash {
    leaves.iter().copied().collect::<Frontier>().root()
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use proptest::prelude::*;

    use super::super::naive;
    use super::*;

    proptest! {
        #[test]
        fn the_root_is_the_defined_one(count in 0u64..600) {
            let leaves = naive::leaves(count);
            let frontier: Frontier = leaves.iter().copied().collect();
            prop_assert_eq!(frontier.root(), naive::root(&leaves));
            prop_assert_eq!(root_of(&leaves), naive::root(&leaves));
        }

        #[test]
        fn a_frontier_survives_its_bytes_and_grows_on(first in 0u64..300, more in 0u64..300) {
            let leaves = naive::leaves(first + more);
            let (before, after) = leaves.split_at(first as usize);
            let frontier: Frontier = before.iter().copied().collect();
            let mut again = Frontier::from_bytes(first, &frontier.to_bytes()).unwrap();
            prop_assert_eq!(&again, &frontier);
            for leaf in after {
                again.append(*leaf);
            }
            prop_assert_eq!(again.root(), naive::root(&leaves));
        }
    }

    #[test]
    fn bytes_of_another_size_are_refused() {
        let frontier: Frontier = naive::leaves(5).into_iter().collect();
        let bytes = frontier.to_bytes();
        for (size, bytes) in [(4, &bytes[..]), (7, &bytes), (5, &bytes[1..]), (0, &bytes)] {
            assert_eq!(Frontier::from_bytes(size, bytes), None, "{size}, {} bytes", bytes.len());
        }
    }

    #[test]
    fn a_subtree_must_be_aligned_and_must_fit() {
        let leaf = Hash::leaf(b"");
        let mut frontier = Frontier::default();
        assert!(frontier.append_subtree(2, leaf));
        assert!(!frontier.append_subtree(3, leaf) && !frontier.append_subtree(64, leaf));
        assert_eq!(frontier.size(), 4);
        assert!(!Frontier::default().append_subtree(200, leaf));
        let mut full = Frontier::from_bytes(1 << 63, &leaf.0).unwrap();
        assert!(!full.append_subtree(63, leaf), "2^64 leaves are one too many");
    }
}
