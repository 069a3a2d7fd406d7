//! Which row of a history answers which moment.
//!
//! A row can answer the moments of its key from some time on. It is noted at the first of them
//! alone: in the end, the best row of a moment is the best that was noted there or before. What has
//! outlived its time by then answers nothing, and neither does any other, since the best has the
//! latest event.
//!
//! The moments of a key lie anywhere in memory, and most of the work would be waiting for it. But
//! histories are mostly written in the order of time, or key by key, so that the next row of a key
//! belongs where its last one did, between the same two moments. What is known of that place is kept
//! with the key, in one line of the processor's memory, until a row of another place comes.

use std::ops::Range;

use arrow_array::{Array, ArrayRef};
use falaj_base::{Error, Result};

use super::key::Keys;
use super::moments::{Gap, Moments};
use super::order::{Wanted, by_row};
use super::time::{Unit, times};

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

impl Rules {
    /// The same, with times counted as moments are.
    fn counted_in(self, unit: Unit) -> Self {
        let counted = |micros: Option<i64>| micros.map(|micros| unit.micros(micros));
        Self { ttl: counted(self.ttl), known_by: counted(self.known_by), ..self }
    }

    /// The last moment that a row of this event can answer.
    fn last(self, event: i64) -> i64 {
        self.ttl.map_or(i64::MAX, |ttl| event.saturating_add(ttl))
    }
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

/// A row that is to be noted.
#[derive(Clone, Copy, Debug)]
struct Row {
    group: u32,
    /// The first time that it can answer at.
    first: i64,
    candidate: Candidate,
}

/// Rows that are looked at together: as many as can be waited for at once, and more.
const TOGETHER: usize = 128;

/// Where the last row of a key was noted, and the best that was noted there. One lies in one line
/// of a processor's memory.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Cursor {
    gap: Gap,
    best: Candidate,
    /// The moments of its key.
    span: Range<u32>,
}

const _: () = assert!(size_of::<Cursor>() == 64);

impl Cursor {
    #[allow(clippy::needless_bitwise_bool, reason = "a branch would wait for memory")]
    fn is_for(&self, time: i64) -> bool {
        (self.gap.from <= time) & (time <= self.gap.until)
    }
}

/// Looks for answers in one history.
#[derive(Debug)]
pub struct Latest<'m> {
    moments: &'m Moments,
    rules: Rules,
    /// The best candidate that was noted at each placed moment, and one of those that answer none.
    /// What was noted since a cursor came to a place, only it knows.
    best: Vec<Candidate>,
    /// One for each group of moments, and one for nobody.
    cursors: Vec<Cursor>,
    rows: u64,
    /// Which groups the rows of a batch belong to; kept for its memory.
    groups: Vec<u32>,
}

/// Rows of a history that answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    /// In the order of the history.
    wanted: Vec<Wanted>,
    /// How many moments were asked about.
    moments: usize,
}

impl Answers {
    /// Row numbers, in the order of the question.
    #[must_use]
    pub fn rows(&self) -> Vec<Option<u64>> {
        let mut rows = vec![None; self.moments];
        for wanted in &self.wanted {
            rows[wanted.moment as usize] = Some(wanted.row);
        }
        rows
    }

    /// How many moments were asked about.
    pub(super) fn moments(&self) -> usize {
        self.moments
    }

    pub(super) fn into_wanted(self) -> Vec<Wanted> {
        self.wanted
    }
}

impl<'m> Latest<'m> {
    #[must_use]
    pub fn new(moments: &'m Moments, rules: Rules) -> Self {
        let rules = rules.counted_in(moments.unit());
        let best = vec![NOBODY; moments.rows().len() + 1];
        let spans = (0..moments.group_count()).map(|group| moments.span(group));
        let cursor = |span: Range<u32>| Cursor {
            gap: moments.gap(span.clone(), i64::MIN),
            best: NOBODY,
            span,
        };
        let nobody = 0..0;
        let cursors = spans.chain(std::iter::once(nobody)).map(cursor).collect();
        Self { moments, rules, best, cursors, rows: 0, groups: Vec::new() }
    }

    /// Looks at a batch: its keys, when its events were, and since when they are known (as long as
    /// they are past, if absent).
    pub fn add(
        &mut self,
        keys: &[(&str, ArrayRef)],
        event: (&str, &dyn Array),
        known: Option<(&str, &dyn Array)>,
    ) -> Result<()> {
        let unit = self.moments.unit();
        let events = times(event.0, event.1, unit)?;
        let knowns = known.map(|(name, column)| times(name, column, unit)).transpose()?;
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
        let knowns = knowns.as_deref().unwrap_or(&events);
        self.moments.find(&keys, &mut self.groups);
        let groups = std::mem::take(&mut self.groups);
        let mut rows = [Row { group: 0, first: 0, candidate: NOBODY }; TOGETHER];
        let parts = groups.chunks(TOGETHER).zip(events.chunks(TOGETHER));
        for ((groups, events), knowns) in parts.zip(knowns.chunks(TOGETHER)) {
            let there = groups.iter().zip(events.iter().zip(knowns));
            for (row, (group, (event, known))) in rows.iter_mut().zip(there) {
                self.rows += 1;
                let candidate = Candidate { event: *event, known: *known, row: self.rows };
                let first = if self.rules.hindsight { *event } else { *event.max(known) };
                *row = Row { group: *group, first, candidate };
            }
            let rows = &rows[..groups.len()];
            self.fetch(rows);
            for row in rows {
                self.note(row);
            }
        }
        self.groups = groups;
        Ok(())
    }

    /// Brings what is known of the groups of some rows near, and what else it takes to note those
    /// that belong elsewhere than where the last ones did. These are loops without branches, which
    /// wait for all of it at once.
    fn fetch(&self, rows: &[Row]) {
        let (mut away, mut count) = ([0; TOGETHER], 0);
        for row in rows {
            away[count] = row.group;
            count += usize::from(!self.cursors[row.group as usize].is_for(row.first));
        }
        let near = |group: &u32| {
            let cursor = &self.cursors[*group as usize];
            let moment = self.moments.times().get(cursor.span.start as usize);
            let best = &self.best[cursor.gap.place as usize];
            moment.map_or(0, |moment| moment ^ best.event)
        };
        std::hint::black_box(away[..count].iter().map(near).fold(0, std::ops::BitXor::bitxor));
    }

    /// Notes a row at the first moment of its group that it can answer, if it is better than what
    /// was noted there.
    fn note(&mut self, row: &Row) {
        let Row { group, first, candidate } = *row;
        if self.rules.known_by.is_some_and(|latest| candidate.known > latest) {
            return;
        }
        let cursor = &mut self.cursors[group as usize];
        if !cursor.is_for(first) {
            let best = &mut self.best[cursor.gap.place as usize];
            *best = cursor.best.max(*best);
            cursor.gap = self.moments.gap(cursor.span.clone(), first);
            cursor.best = NOBODY;
        }
        // Rows come in their order: of equal ones the later is better.
        if (candidate.event, candidate.known) >= (cursor.best.event, cursor.best.known) {
            cursor.best = candidate;
        }
    }

    /// Whether a row with an event between these two, in microseconds, could answer any moment.
    #[must_use]
    pub fn could_answer(&self, (first, last): (i64, i64)) -> bool {
        let unit = self.moments.unit();
        self.moments.bounds().is_some_and(|(earliest, latest)| {
            unit.micros(first) <= latest && self.rules.last(unit.micros(last)) >= earliest
        })
    }

    /// Passes over rows that could not.
    pub fn skip(&mut self, rows: u64) {
        self.rows += rows;
    }

    /// How many rows were looked at.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    #[must_use]
    pub fn finish(mut self) -> Answers {
        for cursor in std::mem::take(&mut self.cursors) {
            let best = &mut self.best[cursor.gap.place as usize];
            *best = cursor.best.max(*best);
        }
        let mut wanted = Vec::with_capacity(self.moments.rows().len());
        for group in self.moments.groups() {
            let mut best = NOBODY;
            for place in group {
                best = best.max(self.best[place]);
                if self.moments.times()[place] <= self.rules.last(best.event)
                    && let Some(row) = best.row.checked_sub(1)
                {
                    wanted.push(Wanted { row, moment: self.moments.rows()[place] });
                }
            }
        }
        // It is large, and so is what follows.
        self.best = Vec::new();
        Answers { wanted: by_row(wanted), moments: self.moments.len() }
    }
}
