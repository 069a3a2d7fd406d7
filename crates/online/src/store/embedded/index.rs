//! Where in a file the row of a key begins, by the key's hash.
//!
//! Tables of slots, one after the other: the upper half of a hash chooses the table, the lower half the
//! slot to begin at, and those behind it follow up to one that is empty. A slot is six bytes, two of
//! the hash and four that say where, little end first; nothing begins at zero. So a key is found with
//! one look at the table, and one that is not there costs no look at the rows.
//!
//! Must hold: bytes that are no index lead to nothing found, never further. Pure.

/// The size of a slot.
const SLOT: usize = 6;
/// Slots for each row, in tenths: fewer, and more of them are looked at.
const TENTHS: usize = 14;
/// Rows in a table, about: it fits into a cache while it is filled.
const ROWS: usize = 1 << 15;

/// How many tables there are, and how many slots in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) tables: u32,
    pub(super) slots: u32,
}

/// A place among so many, by 32 bits.
fn among(bits: u64, count: u32) -> usize {
    usize::try_from((bits * u64::from(count)) >> 32).unwrap_or(0)
}

fn mark(hash: u64) -> [u8; 2] {
    let [first, second, ..] = hash.to_le_bytes();
    [first, second]
}

impl Shape {
    pub(super) fn bytes(self) -> usize {
        self.tables as usize * self.slots as usize * SLOT
    }

    fn table(self, hash: u64) -> usize {
        among(hash >> 32, self.tables)
    }

    /// Places that may be of a key with this hash.
    pub(super) fn find(self, index: &[u8], hash: u64) -> impl Iterator<Item = u32> {
        let slots = self.slots as usize;
        let table = index.get(self.table(hash) * slots * SLOT..).unwrap_or_default();
        let (mut slot, mark) = (among(hash & 0xffff_ffff, self.slots), mark(hash));
        let mut left = slots;
        std::iter::from_fn(move || {
            while left > 0 {
                left -= 1;
                let [a, b, place @ ..] = table.get(slot * SLOT..)?.first_chunk::<SLOT>()?;
                slot = if slot + 1 == slots { 0 } else { slot + 1 };
                let place = u32::from_le_bytes(*place);
                if place == 0 {
                    return None;
                }
                if [*a, *b] == mark {
                    return Some(place);
                }
            }
            None
        })
    }
}

/// An index of rows with these hashes, each at its place.
pub(super) fn build(hashes: &[u64], places: &[u32]) -> (Shape, Vec<u8>) {
    let tables = u32::try_from(hashes.len().div_ceil(ROWS)).unwrap_or(u32::MAX).max(1);
    let mut counts = vec![0_usize; tables as usize];
    let whose = Shape { tables, slots: 0 };
    for hash in hashes {
        counts[whose.table(*hash)] += 1;
    }
    // Of the fullest: the others have as many slots. One is always empty.
    let most = counts.iter().max().copied().unwrap_or(0);
    let slots = u32::try_from(most * TENTHS / 10 + 1).unwrap_or(u32::MAX);
    let shape = Shape { tables, slots };
    let mut index = vec![0; shape.bytes()];
    let slots = slots as usize;
    for (&hash, place) in hashes.iter().zip(places) {
        let start = shape.table(hash) * slots * SLOT;
        let table = &mut index[start..start + slots * SLOT];
        let mut slot = among(hash & 0xffff_ffff, shape.slots);
        while table[slot * SLOT + 2..(slot + 1) * SLOT] != [0; 4] {
            slot = if slot + 1 == slots { 0 } else { slot + 1 };
        }
        table[slot * SLOT..slot * SLOT + 2].copy_from_slice(&mark(hash));
        table[slot * SLOT + 2..(slot + 1) * SLOT].copy_from_slice(&place.to_le_bytes());
    }
    (shape, index)
}

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    use super::*;

    #[test]
    fn every_row_is_found_and_hardly_any_other() {
        for count in [0_u32, 1, 2, 7, 1000, 100_000] {
            let hash = |number: u32| xxh3_64_with_seed(&number.to_le_bytes(), 5);
            let hashes: Vec<_> = (1..=count).map(hash).collect();
            let places: Vec<_> = (1..=count).collect();
            let (shape, index) = build(&hashes, &places);
            assert_eq!(index.len(), shape.bytes());
            for (hash, place) in hashes.iter().zip(&places) {
                assert!(shape.find(&index, *hash).any(|found| found == *place), "{place}");
            }
            let wrong =
                (count + 1..count + 10_000).map(|other| shape.find(&index, hash(other)).count());
            assert!(wrong.sum::<usize>() < 20, "{count}");
        }
    }

    #[test]
    fn equal_hashes_are_all_found_and_a_damaged_index_finds_nothing_more() {
        let (shape, index) = build(&[9; 40], &(1..=40).collect::<Vec<_>>());
        assert_eq!(shape.find(&index, 9).count(), 40);
        let full = vec![0xff; index.len()];
        assert_eq!(shape.find(&full, 9).count(), 0);
        assert!(shape.find(&full, u64::MAX).count() <= shape.slots as usize);
        assert_eq!(shape.find(&index[..3], 9).count(), 0);
    }
}
