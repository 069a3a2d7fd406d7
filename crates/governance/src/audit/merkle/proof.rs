//! Inclusion and consistency proofs, RFC 9162 sections 2.1.3 and 2.1.4.
//!
//! The makers ask a closure for the root over a range of leaves, so that they need no tree in
//! memory; the checkers need only hashes.

use std::ops::Range;

use super::{Hash, split};

/// The path from leaf `index` to the root of the tree of `size` leaves; none without such a leaf.
pub fn inclusion_proof<E>(
    index: u64,
    size: u64,
    mut root_over: impl FnMut(Range<u64>) -> Result<Hash, E>,
) -> Result<Option<Vec<Hash>>, E> {
    if index >= size {
        return Ok(None);
    }
    let (mut low, mut high) = (0, size);
    let mut path = Vec::new();
    while high - low > 1 {
        let middle = low + split(high - low);
        if index < middle {
            path.push(root_over(middle..high)?);
            high = middle;
        } else {
            path.push(root_over(low..middle)?);
            low = middle;
        }
    }
    path.reverse();
    Ok(Some(path))
}

/// Whether `path` leads from `leaf` at `index` to `root` over `size` leaves.
#[must_use]
pub fn verify_inclusion(index: u64, size: u64, leaf: Hash, path: &[Hash], root: Hash) -> bool {
    if index >= size {
        return false;
    }
    let (mut node, mut last) = (index, size - 1);
    let mut hash = leaf;
    for sibling in path {
        if last == 0 {
            return false;
        }
        if node & 1 == 1 || node == last {
            hash = Hash::node(sibling, &hash);
            // On the right edge, levels at which the node stands alone have no sibling.
            while node & 1 == 0 && node != 0 {
                node >>= 1;
                last >>= 1;
            }
        } else {
            hash = Hash::node(&hash, sibling);
        }
        node >>= 1;
        last >>= 1;
    }
    last == 0 && hash == root
}

/// Proof that the tree of `new` leaves begins with the tree of `old`; none if `old` is larger.
pub fn consistency_proof<E>(
    old: u64,
    new: u64,
    mut root_over: impl FnMut(Range<u64>) -> Result<Hash, E>,
) -> Result<Option<Vec<Hash>>, E> {
    if old > new {
        return Ok(None);
    }
    if old == 0 || old == new {
        return Ok(Some(Vec::new()));
    }
    let (mut low, mut high) = (0, new);
    let mut path = Vec::new();
    while old < high {
        let middle = low + split(high - low);
        if old <= middle {
            path.push(root_over(middle..high)?);
            high = middle;
        } else {
            path.push(root_over(low..middle)?);
            low = middle;
        }
    }
    // The old root itself need not be sent where the verifier has it.
    if low > 0 {
        path.push(root_over(low..high)?);
    }
    path.reverse();
    Ok(Some(path))
}

/// Whether `path` shows that the tree with `new_root` extends the one with `old_root`.
#[must_use]
pub fn verify_consistency(
    (old, old_root): (u64, Hash),
    (new, new_root): (u64, Hash),
    path: &[Hash],
) -> bool {
    if old > new {
        return false;
    }
    if old == new {
        return path.is_empty() && old_root == new_root;
    }
    if old == 0 {
        // Everything extends the empty tree.
        return path.is_empty() && old_root == Hash::of_nothing();
    }
    let (mut node, mut last) = (old - 1, new - 1);
    while node & 1 == 1 {
        node >>= 1;
        last >>= 1;
    }
    let mut path = path.iter();
    let start = if old.is_power_of_two() { Some(&old_root) } else { path.next() };
    let Some(&start) = start else { return false };
    let (mut old_hash, mut new_hash) = (start, start);
    for sibling in path {
        if last == 0 {
            return false;
        }
        if node & 1 == 1 || node == last {
            old_hash = Hash::node(sibling, &old_hash);
            new_hash = Hash::node(sibling, &new_hash);
            while node & 1 == 0 && node != 0 {
                node >>= 1;
                last >>= 1;
            }
        } else {
            new_hash = Hash::node(&new_hash, sibling);
        }
        node >>= 1;
        last >>= 1;
    }
    last == 0 && old_hash == old_root && new_hash == new_root
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::super::{naive, root_of};
    use super::*;

    fn over(leaves: &[Hash]) -> impl FnMut(Range<u64>) -> Result<Hash, Infallible> {
        |range| Ok(root_of(&leaves[range.start as usize..range.end as usize]))
    }

    #[test]
    fn every_leaf_of_every_small_tree_is_provable() {
        for size in 1..=40 {
            let leaves = naive::leaves(size);
            let root = naive::root(&leaves);
            for index in 0..size {
                let path = inclusion_proof(index, size, over(&leaves)).unwrap().unwrap();
                let leaf = leaves[index as usize];
                assert!(verify_inclusion(index, size, leaf, &path, root), "{index} of {size}");
                assert!(!verify_inclusion(index, size, Hash::leaf(b"other"), &path, root));
                assert!(
                    !verify_inclusion((index + 1) % size, size, leaf, &path, root) || size == 1
                );
            }
            assert_eq!(inclusion_proof(size, size, over(&leaves)).unwrap(), None);
        }
    }

    #[test]
    fn every_prefix_of_every_small_tree_is_consistent() {
        for new in 0..=40 {
            let leaves = naive::leaves(new);
            let new_root = naive::root(&leaves);
            for old in 0..=new {
                let old_root = naive::root(&leaves[..old as usize]);
                let path = consistency_proof(old, new, over(&leaves)).unwrap().unwrap();
                assert!(
                    verify_consistency((old, old_root), (new, new_root), &path),
                    "{old}, {new}"
                );
                let forged = Hash::leaf(b"forged");
                assert!(!verify_consistency((old, forged), (new, new_root), &path));
                assert!(old == 0 || !verify_consistency((old, old_root), (new, forged), &path));
            }
        }
    }

    proptest! {
        #[test]
        fn a_changed_path_proves_nothing(
            size in 2u64..300, index in any::<u64>(), at in any::<usize>(), bit in 0usize..256,
        ) {
            let leaves = naive::leaves(size);
            let root = naive::root(&leaves);
            let index = index % size;
            let leaf = leaves[index as usize];
            let mut path = inclusion_proof(index, size, over(&leaves)).unwrap().unwrap();
            prop_assert!(verify_inclusion(index, size, leaf, &path, root));
            let mut longer = path.clone();
            longer.push(root);
            prop_assert!(!verify_inclusion(index, size, leaf, &longer, root));
            prop_assert!(!verify_inclusion(index, size, leaf, &path[1..], root));
            let at = at % path.len();
            path[at].0[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!verify_inclusion(index, size, leaf, &path, root));
        }

        #[test]
        fn hostile_sizes_are_survived(
            a in any::<u64>(), b in any::<u64>(), path in prop::collection::vec(any::<[u8; 32]>(), 0..70),
        ) {
            let path: Vec<_> = path.into_iter().map(Hash).collect();
            let root = Hash::leaf(b"");
            prop_assert!(!verify_inclusion(a, b, root, &path, root) || b == 1);
            let _ = verify_consistency((a, root), (b, root), &path);
        }
    }
}
