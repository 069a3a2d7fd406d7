//! Walking through the traces of several experiments, newest first.

use std::cell::RefCell;
use std::collections::VecDeque;

use falaj_base::{Error, Result};
use falaj_mlflow::filter::{Expr, Field, Op, Test};
use falaj_store::db::Tx;
use uuid::Uuid;

use super::row::{Seen, Spans};
use crate::assessment::store as assessments;
use crate::otlp::message::Span;
use crate::span::store as spans;
use crate::trace::{SOURCE_RUN, Trace, store};

/// How many rows are read at once, all experiments together.
const ROWS: usize = 512;

/// A walk in progress. Between two steps it holds a handful of rows.
pub(crate) struct Scan {
    cursors: Vec<Cursor>,
    times: (i64, i64),
    rows: usize,
}

struct Cursor {
    experiment: i64,
    buffer: VecDeque<Trace>,
    after: Option<(i64, String)>,
    exhausted: bool,
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
        let rows = (ROWS / experiments.len().max(1)).max(8);
        Self { cursors: experiments.iter().map(cursor).collect(), times, rows }
    }

    pub(crate) fn next(&mut self, tx: &mut Tx<'_>) -> Result<Option<Trace>> {
        for cursor in &mut self.cursors {
            if cursor.buffer.is_empty() && !cursor.exhausted {
                let after = cursor.after.as_ref();
                let rows = store::newest(tx, cursor.experiment, self.times, after, self.rows)?;
                cursor.exhausted = rows.len() < self.rows;
                cursor.after = rows.last().map(|last| (last.timestamp, last.id.to_string()));
                cursor.buffer = rows.into();
            }
        }
        let newest = self.cursors.iter_mut().filter(|cursor| !cursor.buffer.is_empty()).min_by(
            |one, two| {
                let place = |cursor: &Cursor| {
                    let first = cursor.buffer.front();
                    first.map(|trace| (std::cmp::Reverse(trace.timestamp), trace.id.clone()))
                };
                place(one).cmp(&place(two))
            },
        );
        Ok(newest.and_then(|cursor| cursor.buffer.pop_front()))
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

    pub(crate) fn matches(&self, tx: &mut Tx<'_>, trace: &Trace) -> Result<bool> {
        let Some(filter) = &self.filter else { return Ok(true) };
        let (mut said, mut links) = (Vec::new(), Vec::new());
        if self.looks.assessments {
            said = assessments::of_trace(tx, trace.no)?;
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
        let spans = Stored { tx: RefCell::new(tx), trace: trace.no, failed: RefCell::new(None) };
        let matches = filter.matches(&Seen { spans: Some(&spans), ..seen });
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
        if let Err(error) = read {
            self.failed.borrow_mut().get_or_insert(error);
        }
        found
    }
}
