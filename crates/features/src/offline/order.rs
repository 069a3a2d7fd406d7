//! The rows that answer, in the order in which a history has them.

/// A row of a history, and the moment that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) row: u64,
    pub(super) moment: u32,
}

/// Bits that are sorted by at a time: the places of as many piles fit into a processor's own memory.
const BITS: u32 = 11;
/// Fewer than that are sorted by comparing them.
const FEW: usize = 1 << BITS;

/// Sorted by row: into piles by the last bits, then by those before, and so on. There are many,
/// and comparing them takes several times as long.
pub(super) fn by_row(mut all: Vec<Wanted>) -> Vec<Wanted> {
    if all.len() < FEW {
        all.sort_by_key(|wanted| wanted.row);
        return all;
    }
    let most = all.iter().map(|wanted| wanted.row).max().unwrap_or(0);
    let mut sorted = all.clone();
    for shift in (0..u64::BITS - most.leading_zeros()).step_by(BITS as usize) {
        #[allow(clippy::cast_possible_truncation, reason = "the rest is only a few bits")]
        let pile = |wanted: &Wanted| (wanted.row >> shift) as usize % (1 << BITS);
        let mut ends = [0_usize; 1 << BITS];
        for wanted in &all {
            ends[pile(wanted)] += 1;
        }
        let mut end = 0;
        for count in &mut ends {
            end += std::mem::replace(count, end);
        }
        for wanted in &all {
            let end = &mut ends[pile(wanted)];
            sorted[*end] = *wanted;
            *end += 1;
        }
        std::mem::swap(&mut all, &mut sorted);
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_rise_and_nothing_is_lost(
            seed in any::<u64>(),
            count in 0..3 * FEW,
            most in prop::sample::select(vec![1, 100, 1 << 11, 1 << 22, 1 << 40, u64::MAX]),
        ) {
            let jump = |at: u64| at.wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let rows = (0..count as u64).map(|at| (jump(at) ^ jump(at) >> 29) % most);
            let all: Vec<_> = rows.zip(0..).map(|(row, moment)| Wanted { row, moment }).collect();
            let mut expected = all.clone();
            // Those of one row stay as they were.
            expected.sort_by_key(|wanted| (wanted.row, wanted.moment));
            prop_assert_eq!(by_row(all), expected);
        }
    }
}
