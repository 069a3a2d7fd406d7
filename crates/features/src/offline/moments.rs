//! Who is asked about, and when.

use arrow_array::{Array, ArrayRef};
use falaj_base::{Error, Result};
use hashbrown::HashMap;

use super::key::Keys;
use super::time::{Cut, micros};

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
}

/// Numbers of groups, by key. The same key may be met as a number and written out, depending on
/// the company it is in; each batch is looked up in the form it comes in.
#[derive(Debug)]
enum Groups {
    Numbers(HashMap<i64, u32>),
    Bytes(HashMap<Vec<u8>, u32>),
}

/// The moments of one key: where they lie among all, and their times.
pub(super) struct Group<'a> {
    pub(super) start: usize,
    pub(super) times: &'a [i64],
}

impl Moments {
    /// A question for each row: this key, at this time. A row without a key has no answer.
    pub fn new(keys: &[(&str, ArrayRef)], at: (&str, &dyn Array)) -> Result<Self> {
        let times = micros(at.0, at.1, Cut::Down)?;
        let keys = Keys::of(keys)?;
        if keys.len() != times.len() {
            let found = format!("{} rows", times.len());
            return Err(Error::invalid(at.0, found, format!("{} rows, as the keys", keys.len())));
        }
        if u32::try_from(times.len()).is_err() {
            return Err(Error::invalid(at.0, times.len(), "at most 4294967295 rows"));
        }
        let mut found: Vec<(u32, i64, u32)> = Vec::with_capacity(times.len());
        let mut note = |group: Option<u32>, row: usize| {
            #[allow(clippy::cast_possible_truncation, reason = "their number was looked at")]
            found.extend(group.map(|group| (group, times[row], row as u32)));
        };
        let groups = match keys {
            Keys::Numbers(numbers) => {
                let mut known = HashMap::new();
                for (row, number) in numbers.into_iter().enumerate() {
                    note(number.map(|number| numbered(&mut known, number)), row);
                }
                Groups::Numbers(known)
            }
            Keys::Bytes { bytes, ends } => {
                let mut known: HashMap<Vec<u8>, u32> = HashMap::new();
                for (row, end) in ends.into_iter().enumerate() {
                    let group = end.map(|(start, end)| {
                        let next = next_number(known.len());
                        *known.entry_ref(&bytes[start..end]).or_insert(next)
                    });
                    note(group, row);
                }
                Groups::Bytes(known)
            }
        };
        found.sort_unstable();
        let mut starts = vec![0];
        for (place, (group, ..)) in (0..).zip(&found) {
            while starts.len() <= *group as usize {
                starts.push(place);
            }
        }
        starts.push(next_number(found.len()));
        Ok(Self {
            groups,
            starts,
            times: found.iter().map(|(_, time, _)| *time).collect(),
            rows: found.iter().map(|(.., row)| *row).collect(),
            count: times.len(),
        })
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

    /// How many moments have a key, and so a place in a group.
    pub(super) fn placed(&self) -> usize {
        self.times.len()
    }

    /// Which row of the question each placed moment is.
    pub(super) fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// All groups, in order.
    pub(super) fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        (0..self.starts.len() - 1).map(|number| self.group(number))
    }

    fn group(&self, number: usize) -> Group<'_> {
        let (start, end) = (self.starts[number] as usize, self.starts[number + 1] as usize);
        Group { start, times: &self.times[start..end] }
    }

    /// Finds the groups of the keys of a batch, and hands over those that are asked about.
    pub(super) fn each(&self, keys: &Keys, mut each: impl FnMut(usize, Group<'_>)) {
        match (&self.groups, keys) {
            (Groups::Numbers(known), Keys::Numbers(numbers)) => {
                for (row, number) in numbers.iter().enumerate() {
                    if let Some(group) = number.and_then(|number| known.get(&number)) {
                        each(row, self.group(*group as usize));
                    }
                }
            }
            (Groups::Bytes(known), Keys::Bytes { bytes, ends }) => {
                for (row, end) in ends.iter().enumerate() {
                    let key = end.map(|(start, end)| &bytes[start..end]);
                    if let Some(group) = key.and_then(|key| known.get(key)) {
                        each(row, self.group(*group as usize));
                    }
                }
            }
            // Numbers on one side and, on the other, unsigned ones beyond them.
            (Groups::Numbers(known), Keys::Bytes { bytes, ends }) => {
                for (row, end) in ends.iter().enumerate() {
                    let number = end.and_then(|(start, end)| as_number(&bytes[start..end]));
                    if let Some(group) = number.and_then(|number| known.get(&number)) {
                        each(row, self.group(*group as usize));
                    }
                }
            }
            (Groups::Bytes(known), Keys::Numbers(numbers)) => {
                for (row, number) in numbers.iter().enumerate() {
                    let key = number.map(as_bytes);
                    if let Some(group) = key.and_then(|key| known.get(&key[..])) {
                        each(row, self.group(*group as usize));
                    }
                }
            }
        }
    }
}

fn numbered(known: &mut HashMap<i64, u32>, key: i64) -> u32 {
    let next = next_number(known.len());
    *known.entry(key).or_insert(next)
}

fn next_number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
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
