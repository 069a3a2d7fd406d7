//! Which row of a history answers which moment.
//!
//! A row can answer the moments of its key from some time on. It is noted at the first of them
//! alone: in the end, the best row of a moment is the best that was noted there or before. What has
//! outlived its time by then answers nothing, and neither does any other, since the best has the
//! latest event.
//!
//! The moments of a key lie anywhere in memory, and most of the work would be waiting for it. So rows
//! are sorted into bins first, each for moments that lie close together, and noted bin by bin.

use arrow_array::{Array, ArrayRef};
use falaj_base::{Error, Result};

use super::key::Keys;
use super::moments::{Moments, Span};
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

/// Moments of one bin, at least, and the most bins: so that what is known of a bin's moments fits
/// into a processor's own memory, and the ends of all bins do.
const NEAR: u32 = 1 << 13;
const BINS: usize = 256;
/// Rows that wait in bins, for each moment and at most.
const WAITING: usize = 8;
const MOST_WAITING: usize = 1 << 20;

/// A row and the moments of its key.
#[derive(Clone, Copy, Debug)]
struct Found {
    span: Span,
    candidate: Candidate,
}

/// Looks for answers in one history.
#[derive(Debug)]
pub struct Latest<'m> {
    moments: &'m Moments,
    rules: Rules,
    /// The best candidate that was noted at each placed moment, and one of those that answer none.
    best: Vec<Candidate>,
    rows: u64,
    /// Rows that are not noted yet, in their order, by where their moments begin.
    bins: Vec<Vec<Found>>,
    /// How many moments a bin is for.
    bin: u32,
    waiting: usize,
    /// Where the moments of the rows of a batch lie; kept for its memory.
    spans: Vec<Span>,
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
        let places = moments.rows().len();
        let rules = rules.counted_in(moments.unit());
        let least = u32::try_from(places / BINS).unwrap_or(u32::MAX / 2);
        let bin = NEAR.max(least.next_power_of_two());
        let bins = vec![Vec::new(); places / bin as usize + 1];
        let best = vec![NOBODY; places + 1];
        Self { moments, rules, best, rows: 0, bins, bin, waiting: 0, spans: Vec::new() }
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
        self.moments.find(&keys, &mut self.spans);
        let known_by = self.rules.known_by.unwrap_or(i64::MAX);
        let rows = (self.rows + 1..).zip(&self.spans).zip(events.iter().zip(knowns));
        for ((row, span), (event, known)) in rows {
            if !span.is_empty() && *known <= known_by {
                let candidate = Candidate { event: *event, known: *known, row };
                let bin = &mut self.bins[(span.start() / self.bin) as usize];
                bin.push(Found { span: *span, candidate });
            }
        }
        self.rows += keys.len() as u64;
        self.waiting += keys.len();
        if self.waiting >= MOST_WAITING.min(WAITING * self.moments.rows().len()) {
            self.note();
        }
        Ok(())
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

    /// Notes the rows that wait, each at the first moment that it can answer, if it is better than
    /// what was noted there.
    #[allow(clippy::needless_bitwise_bool, reason = "a branch would wait for memory")]
    fn note(&mut self) {
        for bin in &mut self.bins {
            for Found { span, candidate } in bin.drain(..) {
                let Candidate { event, known, .. } = candidate;
                let first = if self.rules.hindsight { event } else { event.max(known) };
                let place = self.moments.first(span, first, self.rules.last(event));
                let best = &mut self.best[place as usize];
                // Rows of a bin come in their order: of equal ones the later is better. Nothing here
                // is decided by branches, so that one row need not be done for the next to begin.
                let better = (event > best.event) | ((event == best.event) & (known >= best.known));
                *best = if better { candidate } else { *best };
            }
        }
        self.waiting = 0;
    }

    /// How many rows were looked at.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    #[must_use]
    pub fn finish(mut self) -> Answers {
        self.note();
        self.bins = Vec::new();
        let mut rows = vec![None; self.moments.len()];
        for group in self.moments.groups() {
            let mut best = NOBODY;
            for place in group {
                best = best.max(self.best[place]);
                if self.moments.time(place) <= self.rules.last(best.event) {
                    rows[self.moments.rows()[place] as usize] = best.row.checked_sub(1);
                }
            }
        }
        Answers { rows }
    }
}
