//! Walking through the traces of several experiments, newest first.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

use falaj_base::{Error, Result};
use falaj_mlflow::filter::{Expr, Field, Op, Test};
use falaj_store::db::Tx;
use uuid::Uuid;

use super::budget::Budget;
use super::row::{Seen, Spans};
use crate::assessment::store as assessments;
use crate::otlp::message::Span;
use crate::span::store as spans;
use crate::trace::store::{self, Entry};
use crate::trace::{SOURCE_RUN, Trace};

/// How many entries are listed at once, all experiments together; and the most traces, and bytes of
/// them, that are read at once. The first reads are small: most searches want the newest few.
const LISTED: usize = 512;
const FIRST: usize = 64;
const MOST: usize = 400;
const MOST_BYTES: usize = 8 << 20;

/// A walk in progress. Between two steps it holds a list of what comes next, and a handful of
/// traces: traces differ in size by orders of magnitude.
pub(crate) struct Scan {
    cursors: Vec<Cursor>,
    times: (i64, i64),
    listed: usize,
    ready: VecDeque<(Trace, usize)>,
    at_once: usize,
}

struct Cursor {
    experiment: i64,
    buffer: VecDeque<Entry>,
    after: Option<(i64, String)>,
    exhausted: bool,
}

impl Cursor {
    /// Where its next trace stands.
    fn place(&self) -> Option<(Reverse<i64>, &str)> {
        self.buffer.front().map(|next| (Reverse(next.timestamp), next.id.as_str()))
    }
}

impl Scan {
    /// From just behind `after`, within the times that the filter allows.
    pub(crate) fn new(
        experiments: &[i64],
        times: (i64, i64),
        after: Option<&(i64, String)>,
    ) -> Self {
        let cursor = |experiment: &i64| Cursor {
            experiment: *experiment,
            buffer: VecDeque::new(),
            after: after.cloned(),
            exhausted: false,
        };
        let listed = (LISTED / experiments.len().max(1)).max(8);
        let cursors = experiments.iter().map(cursor).collect();
        Self { cursors, times, listed, ready: VecDeque::new(), at_once: FIRST }
    }

    /// The next trace, and what it measures.
    pub(crate) fn next(&mut self, tx: &mut Tx<'_>) -> Result<Option<(Trace, usize)>> {
        if self.ready.is_empty() {
            self.read(tx)?;
        }
        Ok(self.ready.pop_front())
    }

    fn read(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        let (mut entries, mut bytes): (Vec<Entry>, usize) = (Vec::new(), 0);
        while entries.len() < self.at_once && bytes < MOST_BYTES {
            let Some(cursor) = self.newest(tx)? else { break };
            let fits = |entry: &Entry| entries.is_empty() || bytes + entry.weight <= MOST_BYTES;
            if !cursor.buffer.front().is_some_and(fits) {
                break;
            }
            if let Some(entry) = cursor.buffer.pop_front() {
                bytes += entry.weight;
                entries.push(entry);
            }
        }
        self.at_once = (self.at_once * 2).min(MOST);
        let numbers: Vec<Uuid> = entries.iter().map(|entry| entry.no).collect();
        let found = store::load(tx, &numbers)?;
        let mut found: HashMap<Uuid, Trace> =
            found.into_iter().map(|trace| (trace.no, trace)).collect();
        let ready =
            entries.iter().filter_map(|entry| Some((found.remove(&entry.no)?, entry.weight)));
        self.ready.extend(ready);
        Ok(())
    }

    /// The experiment whose next trace is the newest of all.
    fn newest(&mut self, tx: &mut Tx<'_>) -> Result<Option<&mut Cursor>> {
        for cursor in &mut self.cursors {
            if cursor.buffer.is_empty() && !cursor.exhausted {
                let after = cursor.after.as_ref();
                let rows = store::newest(tx, cursor.experiment, self.times, after, self.listed)?;
                cursor.exhausted = rows.len() < self.listed;
                cursor.after = rows.last().map(|last| (last.timestamp, last.id.clone()));
                cursor.buffer = rows.into();
            }
        }
        let waiting = self.cursors.iter_mut().filter(|cursor| !cursor.buffer.is_empty());
        Ok(waiting.min_by(|one, two| one.place().cmp(&two.place())))
    }
}

/// What a filter needs to see of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Looks {
    pub(crate) assessments: bool,
    pub(crate) links: bool,
    pub(crate) spans: bool,
}

impl Looks {
    pub(crate) fn of(filter: Option<&Expr>) -> Self {
        let mut looks = Self::default();
        if let Some(filter) = filter {
            filter.each(&mut |comparison| match &comparison.field {
                Field::Feedback(_) | Field::Expectation(_) | Field::Issue => {
                    looks.assessments = true;
                }
                Field::Prompt => looks.links = true,
                Field::Metadata(key) if key == SOURCE_RUN => looks.links = true,
                Field::Span(_) => looks.spans = true,
                _ => {}
            });
        }
        looks
    }
}

/// A filter, ready to be asked about one trace after the other.
pub(crate) struct Wanted {
    filter: Option<Expr>,
    /// The conditions that can be decided without spans; they must hold in any case.
    first: Vec<Expr>,
    pub(crate) looks: Looks,
}

impl Wanted {
    pub(crate) fn new(filter: Option<Expr>) -> Self {
        let looks = Looks::of(filter.as_ref());
        let without_spans = |expr: &&Expr| !Looks::of(Some(expr)).spans;
        let first = filter.iter().flat_map(Expr::conjuncts).filter(without_spans).cloned();
        Self { first: first.collect(), filter, looks }
    }

    /// Whether it is one that is looked for. What had to be read for that is on the budget.
    pub(crate) fn matches(
        &self,
        tx: &mut Tx<'_>,
        trace: &Trace,
        budget: &mut Budget,
    ) -> Result<bool> {
        let Some(filter) = &self.filter else { return Ok(true) };
        let (mut said, mut links) = (Vec::new(), Vec::new());
        if self.looks.assessments {
            let weight;
            (said, weight) = assessments::weighed(tx, trace.no)?;
            budget.read(weight);
        }
        if self.looks.links {
            links = store::links(tx, trace.project, &trace.id)?;
        }
        let seen = Seen { trace, assessments: &said, links: &links, spans: None };
        if !self.looks.spans {
            return Ok(filter.matches(&seen));
        }
        if !self.first.iter().all(|expr| expr.matches(&seen)) {
            return Ok(false);
        }
        let spans = Stored {
            tx: RefCell::new(tx),
            trace: trace.no,
            bytes: Cell::new(0),
            failed: RefCell::new(None),
        };
        let matches = filter.matches(&Seen { spans: Some(&spans), ..seen });
        budget.read(spans.bytes.get());
        match spans.failed.into_inner() {
            Some(error) => Err(error),
            None => Ok(matches),
        }
    }

    /// The times outside of which nothing can match.
    #[allow(clippy::cast_possible_truncation, reason = "a cast saturates")]
    pub(crate) fn times(&self) -> (i64, i64) {
        let (mut from, mut to) = (i64::MIN, i64::MAX);
        for expr in self.filter.iter().flat_map(Expr::conjuncts) {
            let Expr::Is(comparison) = expr else { continue };
            let (Field::Attribute("timestamp_ms"), Test::Number(op, number)) =
                (&comparison.field, &comparison.test)
            else {
                continue;
            };
            // Wider by one than it need be: the filter itself decides.
            let (low, high) = (number.floor() as i64, number.ceil() as i64);
            match op {
                Op::Eq => (from, to) = (from.max(low), to.min(high)),
                Op::Gt | Op::Ge => from = from.max(low),
                Op::Lt | Op::Le => to = to.min(high),
                Op::Ne => {}
            }
        }
        (from, to)
    }
}

/// The spans of a trace, read whenever they are asked for: none is held for longer than a look.
struct Stored<'a, 't> {
    tx: RefCell<&'a mut Tx<'t>>,
    trace: Uuid,
    bytes: Cell<usize>,
    failed: RefCell<Option<Error>>,
}

impl Spans for Stored<'_, '_> {
    fn any(&self, accept: &mut dyn FnMut(&Span) -> bool) -> bool {
        let mut found = false;
        // Nobody else reads while this does: a filter asks one question after the other.
        let Ok(mut tx) = self.tx.try_borrow_mut() else { return false };
        let read = spans::each_of_trace(&mut tx, self.trace, |span| {
            found = found || accept(&span);
            Ok(())
        });
        match read {
            Ok(bytes) => self.bytes.set(self.bytes.get().saturating_add(bytes)),
            Err(error) => {
                self.failed.borrow_mut().get_or_insert(error);
            }
        }
        found
    }
}
