//! Who is asked about, and when.

use arrow_array::{Array, ArrayRef};
use falaj_base::{Error, Result};
use hashbrown::HashMap;

use super::key::{Keys, Numbers};
use super::time::{Unit, times};

/// Up to so many moments of a key are looked through one by one, and all of them.
const FEW: usize = 8;
/// Numbers that leave at most so many gaps for each of them are found by their place.
const GAPS: u64 = 4;

/// Moments, grouped by key and in the order of time within each group.
#[derive(Debug)]
pub struct Moments {
    groups: Groups,
    /// Where each group begins, and where the last one ends.
    starts: Vec<u32>,
    /// The times of all groups, one after the other, and a few that are nobody's.
    times: Vec<i64>,
    /// Which row of the question each of them is.
    rows: Vec<u32>,
    count: usize,
    bounds: Option<(i64, i64)>,
    unit: Unit,
}

/// Where the moments of a key lie among all; an empty span is nobody's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    start: u32,
    length: u32,
}

impl Span {
    pub(super) fn start(self) -> u32 {
        self.start
    }

    pub(super) fn is_empty(self) -> bool {
        self.length == 0
    }
}

/// Moments by key. The same key may be met as a number and written out, depending on the company
/// it is in; each batch is looked up in the form it comes in.
#[derive(Debug)]
enum Groups {
    /// Numbers that lie close together: the span of each from the first on.
    Near {
        first: i64,
        spans: Vec<Span>,
    },
    Numbers(HashMap<i64, Span>),
    Bytes(HashMap<Vec<u8>, Span>),
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
        // Which group each row belongs to, in the order in which keys are first met.
        let mut group_of = Vec::with_capacity(times.len());
        let mut groups = match keys {
            Keys::Numbers(numbers) => {
                let mut known: HashMap<i64, Span> = HashMap::new();
                for (row, number) in numbers.values.iter().enumerate() {
                    let group = (!numbers.is_missing(row)).then(|| {
                        let next = numbered(known.len());
                        known.entry(*number).or_insert(next).start
                    });
                    group_of.push(group.unwrap_or(NONE));
                }
                Groups::Numbers(known)
            }
            Keys::Bytes { bytes, ends } => {
                let mut known: HashMap<Vec<u8>, Span> = HashMap::new();
                for end in ends {
                    let group = end.map(|(start, end)| {
                        let next = numbered(known.len());
                        known.entry_ref(&bytes[start..end]).or_insert(next).start
                    });
                    group_of.push(group.unwrap_or(NONE));
                }
                Groups::Bytes(known)
            }
        };
        let (starts, places) = placed(&group_of, groups.len(), times);
        groups.place(&starts);
        let times_of = || places.iter().map(|(time, _)| *time);
        let bounds = times_of().min().zip(times_of().max());
        let after = std::iter::repeat_n(i64::MAX, FEW);
        Self {
            groups: groups.near(),
            starts,
            times: times_of().chain(after).collect(),
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

    /// The time of a placed moment.
    pub(super) fn time(&self, place: usize) -> i64 {
        self.times[place]
    }

    /// The place of the first moment of a span that is not before `first`, if it is not after
    /// `last` either; the place behind all of them otherwise.
    #[allow(clippy::needless_bitwise_bool, reason = "a branch would wait for memory")]
    pub(super) fn first(&self, span: Span, first: i64, last: i64) -> u32 {
        let start = span.start as usize;
        let before = if span.length as usize <= FEW {
            let near = self.times[start..start + FEW].iter().zip(0..);
            near.map(|(time, at)| u32::from((*time < first) & (at < span.length))).sum()
        } else {
            let times = &self.times[start..start + span.length as usize];
            number(times.partition_point(|time| *time < first))
        };
        let place = span.start + before;
        let there = (before < span.length) & (self.times[place as usize] <= last);
        if there { place } else { number(self.rows.len()) }
    }

    /// Which row of the question each placed moment is, group by group.
    pub(super) fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Where each group lies.
    pub(super) fn groups(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        self.starts.windows(2).map(|ends| ends[0] as usize..ends[1] as usize)
    }

    /// Finds the moments of each key of a batch.
    pub(super) fn find(&self, keys: &Keys, found: &mut Vec<Span>) {
        found.clear();
        match (&self.groups, keys) {
            (Groups::Near { first, spans }, Keys::Numbers(numbers)) => {
                let near = |number| place(number, *first).and_then(|place| spans.get(place));
                each(numbers, found, |number| near(number).copied());
            }
            (Groups::Numbers(known), Keys::Numbers(numbers)) => {
                each(numbers, found, |number| known.get(&number).copied());
            }
            (Groups::Bytes(known), Keys::Bytes { bytes, ends }) => {
                found.extend(ends.iter().map(|end| {
                    let key = end.map(|(start, end)| &bytes[start..end]);
                    key.and_then(|key| known.get(key)).copied().unwrap_or_default()
                }));
            }
            // Numbers on one side and, on the other, unsigned ones beyond them.
            (groups, Keys::Bytes { bytes, ends }) => {
                found.extend(ends.iter().map(|end| {
                    let number = end.and_then(|(start, end)| as_number(&bytes[start..end]));
                    number.and_then(|number| groups.of_number(number)).unwrap_or_default()
                }));
            }
            (groups, Keys::Numbers(numbers)) => {
                each(numbers, found, |number| groups.of_number(number));
            }
        }
    }
}

impl Groups {
    fn len(&self) -> usize {
        match self {
            Self::Near { spans, .. } => spans.len(),
            Self::Numbers(known) => known.len(),
            Self::Bytes(known) => known.len(),
        }
    }

    /// Puts the place of each group where its number was.
    fn place(&mut self, starts: &[u32]) {
        let at = |span: &mut Span| {
            let number = span.start as usize;
            *span = Span { start: starts[number], length: starts[number + 1] - starts[number] };
        };
        match self {
            Self::Near { .. } => {}
            Self::Numbers(known) => known.values_mut().for_each(at),
            Self::Bytes(known) => known.values_mut().for_each(at),
        }
    }

    /// Numbers that lie close together need no hash: most tables number what they are about.
    fn near(self) -> Self {
        let Self::Numbers(known) = &self else { return self };
        let ends = known.keys().min().copied().zip(known.keys().max().copied());
        let Some((first, last)) = ends else { return self };
        let wide = last.abs_diff(first);
        if wide / GAPS > known.len() as u64 {
            return self;
        }
        // At most a few times as many as there are keys.
        let mut spans = vec![Span::default(); usize::try_from(wide).map_or(0, |wide| wide + 1)];
        for (number, span) in known {
            if let Some(here) = place(*number, first).and_then(|place| spans.get_mut(place)) {
                *here = *span;
            }
        }
        Self::Near { first, spans }
    }

    fn of_number(&self, number: i64) -> Option<Span> {
        match self {
            Self::Near { first, spans } => spans.get(place(number, *first)?).copied(),
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

fn each(numbers: &Numbers, found: &mut Vec<Span>, of: impl Fn(i64) -> Option<Span>) {
    let span = |number: &i64| of(*number).unwrap_or_default();
    found.extend(numbers.values.iter().map(span));
    if let Some(nulls) = &numbers.nulls {
        for (span, there) in found.iter_mut().zip(nulls) {
            if !there {
                *span = Span::default();
            }
        }
    }
}

/// How far a number lies behind the first, if it does.
fn place(number: i64, first: i64) -> Option<usize> {
    (number >= first).then(|| usize::try_from(number.abs_diff(first)).ok()).flatten()
}

/// A group's number, until its place is known.
fn numbered(count: usize) -> Span {
    Span { start: number(count), length: 0 }
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
