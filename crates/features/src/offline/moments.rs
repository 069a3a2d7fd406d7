//! Who is asked about, and when.

use std::ops::Range;

use arrow_array::{Array, ArrayRef};
use falaj_base::{Error, Result};
use hashbrown::HashMap;

use super::key::{Keys, Numbers};
use super::time::{Unit, times};

/// Numbers that leave no more than so many places for each of them are found by their place.
const PLACES: u64 = 2;

/// Moments, grouped by key and in the order of time within each group.
#[derive(Debug)]
pub struct Moments {
    groups: Groups,
    /// Where each group begins, and where the last one ends.
    starts: Vec<u32>,
    /// The times of all groups, one after the other.
    times: Vec<i64>,
    /// Which row of the question each of them is.
    rows: Vec<u32>,
    count: usize,
    bounds: Option<(i64, i64)>,
    unit: Unit,
}

/// Moments of a key between which a time lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// The first time that lies there, and the last: that of the moment behind it.
    pub(super) from: i64,
    pub(super) until: i64,
    /// The place of that moment; the place behind all moments, if there is none.
    pub(super) place: u32,
}

/// Moments by key. The same key may be met as a number and written out, depending on the company
/// it is in; each batch is looked up in the form it comes in.
#[derive(Debug)]
enum Groups {
    /// Numbers that lie close together: each from the first on is a group, even if nobody asks about
    /// it. Most tables number what they are about, and looking up a number takes longer than all that
    /// is done with it then.
    Near {
        first: i64,
    },
    Numbers(HashMap<i64, u32>),
    Bytes(HashMap<Vec<u8>, u32>),
}

impl Moments {
    /// A question for each row: this key, at this time. A row without a key has no answer.
    pub fn new(keys: &[(&str, ArrayRef)], at: (&str, &dyn Array)) -> Result<Self> {
        let unit = Unit::of(at.1);
        let times = times(at.0, at.1, unit)?;
        let keys = Keys::of(keys)?;
        if keys.len() != times.len() {
            let found = format!("{} rows", times.len());
            return Err(Error::invalid(at.0, found, format!("{} rows, as the keys", keys.len())));
        }
        // The last number is nobody's, where one is needed.
        if u32::try_from(times.len()).is_ok_and(|rows| rows < NONE) {
            return Ok(Self::grouped(&keys, &times, unit));
        }
        Err(Error::invalid(at.0, times.len(), format!("less than {NONE} rows")))
    }

    fn grouped(keys: &Keys, times: &[i64], unit: Unit) -> Self {
        let (groups, count, group_of) = match keys {
            Keys::Numbers(numbers) => Groups::of_numbers(numbers),
            Keys::Bytes { bytes, ends } => Groups::of_bytes(bytes, ends),
        };
        let (starts, places) = placed(&group_of, count, times);
        let times_of = || places.iter().map(|(time, _)| *time);
        let bounds = times_of().min().zip(times_of().max());
        Self {
            groups,
            starts,
            times: times_of().collect(),
            rows: places.iter().map(|(_, row)| *row).collect(),
            count: times.len(),
            bounds,
            unit,
        }
    }

    /// What times are counted in.
    pub(super) fn unit(&self) -> Unit {
        self.unit
    }

    /// How many rows were asked about.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The earliest and the latest of them.
    pub(super) fn bounds(&self) -> Option<(i64, i64)> {
        self.bounds
    }

    /// The times of all placed moments.
    pub(super) fn times(&self) -> &[i64] {
        &self.times
    }

    /// Where the moments of a group lie.
    pub(super) fn span(&self, group: u32) -> Range<u32> {
        self.starts[group as usize]..self.starts[group as usize + 1]
    }

    /// Where a time lies among the moments of a group.
    pub(super) fn gap(&self, span: Range<u32>, time: i64) -> Gap {
        let times = &self.times[span.start as usize..span.end as usize];
        let before = times.partition_point(|moment| *moment < time);
        // One that is before another is not the last time that there is.
        let from = before.checked_sub(1).map_or(i64::MIN, |last| times[last] + 1);
        match times.get(before) {
            Some(until) => Gap { from, until: *until, place: span.start + number(before) },
            None => Gap { from, until: i64::MAX, place: number(self.rows.len()) },
        }
    }

    /// How many groups there are. A group of this number is nobody's.
    pub(super) fn group_count(&self) -> u32 {
        number(self.starts.len() - 1)
    }

    /// Which row of the question each placed moment is, group by group.
    pub(super) fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Where each group lies.
    pub(super) fn groups(&self) -> impl Iterator<Item = Range<usize>> {
        self.starts.windows(2).map(|ends| ends[0] as usize..ends[1] as usize)
    }

    /// Finds the group of each key of a batch.
    pub(super) fn find(&self, keys: &Keys, found: &mut Vec<u32>) {
        found.clear();
        let nobody = self.group_count();
        match (&self.groups, keys) {
            (Groups::Near { first }, Keys::Numbers(numbers)) => {
                each(numbers, nobody, found, |number| Some(place(number, *first).min(nobody)));
            }
            (Groups::Numbers(known), Keys::Numbers(numbers)) => {
                each(numbers, nobody, found, |number| known.get(&number).copied());
            }
            (Groups::Bytes(known), Keys::Bytes { bytes, ends }) => {
                found.extend(ends.iter().map(|end| {
                    let key = end.map(|(start, end)| &bytes[start..end]);
                    key.and_then(|key| known.get(key)).copied().unwrap_or(nobody)
                }));
            }
            // Numbers on one side and, on the other, unsigned ones beyond them.
            (groups, Keys::Bytes { bytes, ends }) => {
                found.extend(ends.iter().map(|end| {
                    let number = end.and_then(|(start, end)| as_number(&bytes[start..end]));
                    let group = number.and_then(|number| groups.of_number(number));
                    group.map_or(nobody, |group| group.min(nobody))
                }));
            }
            (groups, Keys::Numbers(numbers)) => {
                each(numbers, nobody, found, |number| groups.of_number(number));
            }
        }
    }
}

impl Groups {
    /// Groups of keys, how many there are, and which of them each row belongs to.
    fn of_numbers(numbers: &Numbers) -> (Self, usize, Vec<u32>) {
        let rows = numbers.values.iter().enumerate();
        let there = rows.map(|(row, value)| (!numbers.is_missing(row)).then_some(*value));
        if let Some((first, count)) = near(numbers) {
            let group = |value: Option<i64>| value.map_or(NONE, |value| place(value, first));
            return (Self::Near { first }, count, there.map(group).collect());
        }
        let mut known: HashMap<i64, u32> = HashMap::new();
        let group = |value: Option<i64>| {
            let next = number(known.len());
            value.map_or(NONE, |value| *known.entry(value).or_insert(next))
        };
        let group_of = there.map(group).collect();
        let count = known.len();
        (Self::Numbers(known), count, group_of)
    }

    fn of_bytes(bytes: &[u8], ends: &[Option<(usize, usize)>]) -> (Self, usize, Vec<u32>) {
        let mut known: HashMap<Vec<u8>, u32> = HashMap::new();
        let group = |end: &Option<(usize, usize)>| {
            let next = number(known.len());
            end.map_or(NONE, |(start, end)| *known.entry_ref(&bytes[start..end]).or_insert(next))
        };
        let group_of = ends.iter().map(group).collect();
        let count = known.len();
        (Self::Bytes(known), count, group_of)
    }

    fn of_number(&self, number: i64) -> Option<u32> {
        match self {
            Self::Near { first } => Some(place(number, *first)),
            Self::Numbers(known) => known.get(&number).copied(),
            Self::Bytes(known) => known.get(&as_bytes(number)[..]).copied(),
        }
    }
}

/// What no group and no row is called.
const NONE: u32 = u32::MAX;

/// Where groups begin, and the moments of each, with their rows, in the order of time.
fn placed(group_of: &[u32], groups: usize, times: &[i64]) -> (Vec<u32>, Vec<(i64, u32)>) {
    let mut starts = vec![0_u32; groups + 1];
    for group in group_of.iter().filter(|group| **group != NONE) {
        starts[*group as usize + 1] += 1;
    }
    for group in 0..groups {
        starts[group + 1] += starts[group];
    }
    let mut next = starts.clone();
    let mut places = vec![(0, 0); starts[groups] as usize];
    for (row, group) in (0..).zip(group_of).filter(|(_, group)| **group != NONE) {
        let place = &mut next[*group as usize];
        places[*place as usize] = (times[row as usize], row);
        *place += 1;
    }
    for ends in starts.windows(2) {
        places[ends[0] as usize..ends[1] as usize].sort_unstable();
    }
    (starts, places)
}

fn each(numbers: &Numbers, nobody: u32, found: &mut Vec<u32>, of: impl Fn(i64) -> Option<u32>) {
    let group = |number: &i64| of(*number).unwrap_or(nobody);
    found.extend(numbers.values.iter().map(group));
    if let Some(nulls) = &numbers.nulls {
        for (group, there) in found.iter_mut().zip(nulls) {
            if !there {
                *group = nobody;
            }
        }
    }
}

/// The first of some numbers and how many there are from it to the last, if they lie close together.
fn near(numbers: &Numbers) -> Option<(i64, usize)> {
    let values = || {
        let values = numbers.values.iter().enumerate();
        values.filter(|(row, _)| !numbers.is_missing(*row)).map(|(_, value)| *value)
    };
    let (first, last) = values().min().zip(values().max())?;
    let count = last.abs_diff(first).checked_add(1)?;
    // However few of them differ, so many do not lie close together.
    if count / PLACES > numbers.values.len() as u64 {
        return None;
    }
    let places = usize::try_from(count).ok()?;
    let mut met = vec![false; places];
    values().for_each(|value| met[place(value, first) as usize] = true);
    let different = met.iter().filter(|met| **met).count();
    (count / PLACES <= different as u64 && places < NONE as usize).then_some((first, places))
}

/// How far a number lies behind the first. One that lies before it counts as far behind.
fn place(number: i64, first: i64) -> u32 {
    let behind = if number < first { u64::MAX } else { number.abs_diff(first) };
    u32::try_from(behind).unwrap_or(NONE)
}

/// As the short number that it is: there are not so many moments.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(NONE)
}

/// A key of one number, as it is written out.
fn as_bytes(number: i64) -> [u8; 9] {
    let mut bytes = [1; 9];
    bytes[1..].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn as_number(bytes: &[u8]) -> Option<i64> {
    let (mark, number) = bytes.split_first()?;
    let number = number.try_into().ok().map(i64::from_le_bytes);
    number.filter(|_| *mark == 1)
}
