//! A run of neighbouring leaves, shrunk to the fewest subtree roots that can stand for it.
//!
//! An export that leaves entries out (other tenants', or those a filter does not match) carries a
//! span in their place, so that what it does contain is still provable against the signed root.

use super::{Frontier, Hash};

/// The leaves `from..to` as the roots of the largest aligned subtrees that tile the range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    from: u64,
    to: u64,
    nodes: Vec<(u32, Hash)>,
}

impl Span {
    #[must_use]
    pub const fn starting_at(from: u64) -> Self {
        Self { from, to: from, nodes: Vec::new() }
    }

    #[must_use]
    pub const fn len(&self) -> u64 {
        self.to - self.from
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.to == self.from
    }

    pub fn push(&mut self, leaf: Hash) {
        self.to += 1;
        self.nodes.push((0, leaf));
        while let [.., (left_level, left), (level, right)] = self.nodes[..] {
            let parent = 1u64 << (level + 1);
            if left_level != level || !self.to.is_multiple_of(parent) {
                break;
            }
            let merged = Hash::node(&left, &right);
            self.nodes.truncate(self.nodes.len() - 2);
            self.nodes.push((level + 1, merged));
        }
    }

    #[must_use]
    pub fn nodes(&self) -> Vec<Hash> {
        self.nodes.iter().map(|(_, hash)| *hash).collect()
    }
}

impl Frontier {
    /// Appends a span of `len` leaves given by the roots that tile it. Answers false if there are
    /// not exactly as many roots as the range has tiles; the frontier is then of no further use.
    #[must_use]
    pub fn append_span(&mut self, len: u64, nodes: &[Hash]) -> bool {
        let from = self.size();
        let Some(to) = from.checked_add(len) else { return false };
        let mut nodes = nodes.iter();
        while self.size() < to {
            let level = largest_tile(self.size(), to);
            let Some(node) = nodes.next() else { return false };
            if !self.append_subtree(level, *node) {
                return false;
            }
        }
        nodes.next().is_none()
    }
}

/// The level of the largest aligned subtree that begins at `from` and ends at or before `to`.
fn largest_tile(from: u64, to: u64) -> u32 {
    let room = (to - from).ilog2();
    if from == 0 { room } else { room.min(from.trailing_zeros()) }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use proptest::prelude::*;

    use super::super::naive;
    use super::*;

    proptest! {
        #[test]
        fn a_span_stands_for_its_leaves(before in 0u64..200, hidden in 0u64..300, after in 0u64..50) {
            let leaves = naive::leaves(before + hidden + after);
            let mut frontier = Frontier::default();
            let mut span = Span::starting_at(before);
            for (index, leaf) in (0..).zip(&leaves) {
                if index < before {
                    frontier.append(*leaf);
                } else if index < before + hidden {
                    span.push(*leaf);
                }
            }
            prop_assert_eq!(span.len(), hidden);
            prop_assert!(span.nodes().len() <= 2 * 9);
            prop_assert!(frontier.append_span(hidden, &span.nodes()));
            for leaf in &leaves[(before + hidden) as usize..] {
                frontier.append(*leaf);
            }
            prop_assert_eq!(frontier.root(), naive::root(&leaves));
        }

        #[test]
        fn hostile_lengths_are_survived(size in any::<u64>(), len in any::<u64>(), count in 0usize..70) {
            let peaks = vec![7; 32 * size.count_ones() as usize];
            let mut frontier = Frontier::from_bytes(size, &peaks).unwrap();
            let _ = frontier.append_span(len, &vec![Hash([9; 32]); count]);
        }
    }

    #[test]
    fn too_few_or_too_many_roots_are_refused() {
        let nodes = naive::leaves(3);
        for (len, count, fits) in
            [(3, 2, true), (3, 1, false), (3, 3, false), (0, 0, true), (0, 1, false)]
        {
            assert_eq!(
                Frontier::default().append_span(len, &nodes[..count]),
                fits,
                "{len}, {count}"
            );
        }
    }
}
