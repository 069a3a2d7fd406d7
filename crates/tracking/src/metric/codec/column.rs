//! A column of whole numbers: the first, the smallest difference between neighbours, and for each
//! further number how much its difference exceeds that, in as few whole bytes as the largest
//! needs.
//!
//! Differences wrap around: any numbers come back, also those further apart than an `i64` reaches.

use falaj_base::{Error, Result};

use super::bytes::{Reader, put_zigzag};

/// The widths a column can have, by their code. Seven is left out: it would not fit three bits.
const WIDTHS: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 8];

/// What has to be known of a column before it is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    first: i64,
    /// Absent for a single number.
    smallest: Option<i64>,
    code: u8,
}

impl Plan {
    pub(super) fn new(numbers: impl Iterator<Item = i64> + Clone) -> Self {
        let first = numbers.clone().next().unwrap_or_default();
        let (mut low, mut high, mut before) = (i64::MAX, i64::MIN, first);
        for number in numbers.skip(1) {
            let difference = number.wrapping_sub(before);
            (low, high, before) = (low.min(difference), high.max(difference), number);
        }
        if low > high {
            return Self { first, smallest: None, code: 0 };
        }
        let widest = high.wrapping_sub(low).cast_unsigned();
        let bytes = (u64::BITS - widest.leading_zeros()).div_ceil(8) as usize;
        let code = WIDTHS.iter().position(|width| *width >= bytes).unwrap_or(WIDTHS.len() - 1);
        #[allow(clippy::cast_possible_truncation, reason = "there are eight codes")]
        Self { first, smallest: Some(low), code: code as u8 }
    }

    pub(super) const fn code(self) -> u8 {
        self.code
    }

    pub(super) fn put_first(self, out: &mut Vec<u8>, base: i64) {
        put_zigzag(out, self.first.wrapping_sub(base));
    }

    pub(super) fn put_smallest(self, out: &mut Vec<u8>) {
        if let Some(smallest) = self.smallest {
            put_zigzag(out, smallest);
        }
    }

    pub(super) fn put(self, out: &mut Vec<u8>, numbers: impl ExactSizeIterator<Item = i64>) {
        let Some(smallest) = self.smallest else { return };
        let mut before = self.first;
        let excesses = numbers.skip(1).map(|number| {
            let difference = number.wrapping_sub(before);
            before = number;
            difference.wrapping_sub(smallest).cast_unsigned()
        });
        match WIDTHS[usize::from(self.code)] {
            0 => {}
            1 => put::<1>(out, excesses),
            2 => put::<2>(out, excesses),
            3 => put::<3>(out, excesses),
            4 => put::<4>(out, excesses),
            5 => put::<5>(out, excesses),
            6 => put::<6>(out, excesses),
            _ => put::<8>(out, excesses),
        }
    }
}

fn put<const WIDTH: usize>(out: &mut Vec<u8>, excesses: impl ExactSizeIterator<Item = u64>) {
    for (slot, excess) in room::<WIDTH>(out, excesses.len()).iter_mut().zip(excesses) {
        slot.copy_from_slice(&excess.to_le_bytes()[..WIDTH]);
    }
}

/// Makes room for `count` numbers at once: asking for it one by one costs more than writing them.
pub(super) fn room<const WIDTH: usize>(out: &mut Vec<u8>, count: usize) -> &mut [[u8; WIDTH]] {
    let start = out.len();
    out.resize(start + count * WIDTH, 0);
    out[start..].as_chunks_mut().0
}

/// A column as it lies in the bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column<'a> {
    pub(super) first: i64,
    smallest: i64,
    width: usize,
    excesses: &'a [u8],
}

impl<'a> Column<'a> {
    /// A column whose excesses are not read yet.
    pub(super) const fn new(first: i64, smallest: i64, code: u8) -> Self {
        Self { first, smallest, width: WIDTHS[(code & 7) as usize], excesses: &[] }
    }

    /// Reads the excesses of `count` numbers besides the first.
    pub(super) fn read(self, reader: &mut Reader<'a>, count: usize) -> Result<Self> {
        let len = count.checked_mul(self.width).ok_or_else(too_long)?;
        Ok(Self { excesses: reader.take(len)?, ..self })
    }

    /// Whether each number is larger than the one before, if no difference wraps around.
    pub(super) const fn rises(&self) -> bool {
        self.smallest > 0
    }

    /// The numbers in these places, which rise and are not beyond the end.
    pub(super) fn pick(&self, places: &[usize]) -> Vec<i64> {
        let mut numbers = vec![self.first; places.last().map_or(0, |last| last + 1)];
        if let Some(further) = numbers.get_mut(1..) {
            self.fill(further, |slot, number| *slot = number);
        }
        places.iter().map(|place| numbers[*place]).collect()
    }

    /// Hands each number besides the first to the next of `slots`.
    pub(super) fn fill<T>(&self, slots: &mut [T], set: impl Fn(&mut T, i64)) {
        match self.width {
            0 => {
                let mut number = self.first;
                for slot in slots {
                    number = number.wrapping_add(self.smallest);
                    set(slot, number);
                }
            }
            1 => self.fill_width::<1, T>(slots, set),
            2 => self.fill_width::<2, T>(slots, set),
            3 => self.fill_width::<3, T>(slots, set),
            4 => self.fill_width::<4, T>(slots, set),
            5 => self.fill_width::<5, T>(slots, set),
            6 => self.fill_width::<6, T>(slots, set),
            _ => self.fill_width::<8, T>(slots, set),
        }
    }

    fn fill_width<const WIDTH: usize, T>(&self, slots: &mut [T], set: impl Fn(&mut T, i64)) {
        let mut number = self.first;
        let (excesses, _) = self.excesses.as_chunks::<WIDTH>();
        for (slot, excess) in slots.iter_mut().zip(excesses) {
            let mut wide = [0; 8];
            wide[..WIDTH].copy_from_slice(excess);
            let excess = u64::from_le_bytes(wide).cast_signed();
            number = number.wrapping_add(self.smallest).wrapping_add(excess);
            set(slot, number);
        }
    }
}

fn too_long() -> Error {
    super::corrupt("a count is beyond any length")
}
