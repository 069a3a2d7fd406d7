//! Which row of a history answers which moment.

use arrow_array::{Array, ArrayRef};
use falaj_base::{Error, Result};

use super::key::Keys;
use super::moments::{Group, Moments};
use super::time::{Cut, micros};

/// Up to so many moments of a key are marked one by one.
const FEW: usize = 32;

/// What a row of a history must keep to, to answer a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// How long after its event it may still answer, in microseconds; for ever if absent.
    pub ttl: Option<i64>,
    /// Only what was known at this time, in microseconds, beside what was known at the moment.
    pub known_by: Option<i64>,
    /// Whether what became known after a moment may answer it all the same: what Feast does, and
    /// what nobody should do who trains on the answers.
    pub hindsight: bool,
}

/// A row that can answer: the greatest does. The order of the fields is the order of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    event: i64,
    known: i64,
    /// One more than the row's number in its history; zero is nobody.
    row: u64,
}

const NOBODY: Candidate = Candidate { event: i64::MIN, known: i64::MIN, row: 0 };

/// Looks for answers in one history.
#[derive(Debug)]
pub struct Latest<'m> {
    moments: &'m Moments,
    rules: Rules,
    /// The best candidate of each placed moment.
    best: Vec<Candidate>,
    /// For groups of many moments, by where they begin: marks on ranges of them.
    ranges: Vec<(usize, Ranges)>,
    rows: u64,
}

/// Row numbers of a history that answer, moment by moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    /// In the order of the question.
    rows: Vec<Option<u64>>,
}

impl Answers {
    #[must_use]
    pub fn rows(&self) -> &[Option<u64>] {
        &self.rows
    }
}

impl<'m> Latest<'m> {
    #[must_use]
    pub fn new(moments: &'m Moments, rules: Rules) -> Self {
        let many = moments.groups().filter(|group| group.times.len() > FEW);
        let ranges = many.map(|group| (group.start, Ranges::new(group.times.len()))).collect();
        Self { moments, rules, best: vec![NOBODY; moments.placed()], ranges, rows: 0 }
    }

    /// Looks at a batch: its keys, when its events were, and since when they are known (as long as
    /// they are past, if absent).
    pub fn add(
        &mut self,
        keys: &[(&str, ArrayRef)],
        event: (&str, &dyn Array),
        known: Option<(&str, &dyn Array)>,
    ) -> Result<()> {
        let events = micros(event.0, event.1, Cut::Up)?;
        let knowns = known.map(|(name, column)| micros(name, column, Cut::Up)).transpose()?;
        let keys = Keys::of(keys)?;
        let lengths = [Some(events.len()), knowns.as_ref().map(|knowns| knowns.len())];
        if lengths.into_iter().flatten().any(|length| length != keys.len()) {
            let found = format!("{} rows", events.len());
            return Err(Error::invalid(
                event.0,
                found,
                format!("{} rows, as the keys", keys.len()),
            ));
        }
        let (before, moments, rules) = (self.rows, self.moments, self.rules);
        moments.each(&keys, |row, group| {
            let event = events[row];
            let known = knowns.as_ref().map_or(event, |knowns| knowns[row]);
            if rules.known_by.is_some_and(|latest| known > latest) {
                return;
            }
            let first = if rules.hindsight { event } else { event.max(known) };
            let last = rules.ttl.map_or(i64::MAX, |ttl| event.saturating_add(ttl));
            let candidate = Candidate { event, known, row: before + row as u64 + 1 };
            self.mark(&group, first, last, candidate);
        });
        self.rows += keys.len() as u64;
        Ok(())
    }

    /// Marks the moments from `first` to `last`.
    fn mark(&mut self, group: &Group<'_>, first: i64, last: i64, candidate: Candidate) {
        if group.times.len() <= FEW {
            let best = &mut self.best[group.start..group.start + group.times.len()];
            for (time, best) in group.times.iter().zip(best) {
                if first <= *time && *time <= last && *best < candidate {
                    *best = candidate;
                }
            }
            return;
        }
        let from = group.times.partition_point(|time| *time < first);
        let to = group.times.partition_point(|time| *time <= last);
        let found = self.ranges.binary_search_by_key(&group.start, |(start, _)| *start);
        if let (true, Ok(place)) = (from < to, found) {
            self.ranges[place].1.mark(from, to, candidate);
        }
    }

    /// How many rows were looked at.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    #[must_use]
    pub fn finish(mut self) -> Answers {
        for (start, ranges) in self.ranges {
            ranges.settle(&mut self.best[start..]);
        }
        let mut rows = vec![None; self.moments.len()];
        for (best, row) in self.best.iter().zip(self.moments.rows()) {
            rows[*row as usize] = best.row.checked_sub(1);
        }
        Answers { rows }
    }
}

/// Marks on ranges of places: a complete binary tree, whose leaves are the places. What holds for
/// a place is the greatest mark on the way from its leaf to the root.
#[derive(Debug)]
struct Ranges {
    leaves: usize,
    marks: Vec<Candidate>,
}

impl Ranges {
    fn new(leaves: usize) -> Self {
        Self { leaves, marks: vec![NOBODY; 2 * leaves] }
    }

    fn mark(&mut self, from: usize, to: usize, candidate: Candidate) {
        let (mut from, mut to) = (from + self.leaves, to + self.leaves);
        while from < to {
            if from % 2 == 1 {
                self.raise(from, candidate);
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                self.raise(to, candidate);
            }
            from /= 2;
            to /= 2;
        }
    }

    fn raise(&mut self, place: usize, candidate: Candidate) {
        if self.marks[place] < candidate {
            self.marks[place] = candidate;
        }
    }

    /// Writes down what holds for each place.
    fn settle(mut self, best: &mut [Candidate]) {
        // From the root down, each node hands its mark on.
        for node in 2..self.marks.len() {
            self.raise(node, self.marks[node / 2]);
        }
        best[..self.leaves].copy_from_slice(&self.marks[self.leaves..]);
    }
}
