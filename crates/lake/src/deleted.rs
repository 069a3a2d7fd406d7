//! Rows that are gone by their place in a file.

use roaring::RoaringTreemap;

/// About what such a set takes in memory.
pub(crate) fn weight(rows: &RoaringTreemap) -> usize {
    rows.serialized_size().saturating_mul(2)
}

/// Which of some rows in a row are still there; none if all are.
pub(crate) fn kept(gone: &RoaringTreemap, first: u64, rows: usize) -> Option<Vec<bool>> {
    let last = first + rows as u64;
    let mut kept = None;
    let mut places = gone.iter();
    places.advance_to(first);
    for place in places.take_while(|place| *place < last) {
        let kept = kept.get_or_insert_with(|| vec![true; rows]);
        // Between the first and the last, which are as far apart as a batch is long.
        if let Ok(at) = usize::try_from(place - first) {
            kept[at] = false;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_from_the_beginning_of_the_file() {
        let gone: RoaringTreemap = [0, 5, 6, 9, 1 << 40].into_iter().collect();
        assert_eq!(kept(&gone, 1, 4), None);
        assert_eq!(kept(&gone, 4, 3), Some(vec![true, false, false]));
        assert_eq!(kept(&gone, 9, 1), Some(vec![false]));
        assert_eq!(kept(&gone, 10, 100), None);
        assert_eq!(kept(&gone, 1 << 40, 2), Some(vec![false, true]));
    }
}
