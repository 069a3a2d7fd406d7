//! Which requests are computed next, together: a decision about what waits, made without a clock,
//! a lock or a thread, so that it can be tested by itself.
//!
//! What must hold: who comes first by priority and arrival is never passed over by a batch of its
//! own kind; a batch has rows of one kind only; one that is put together stays within the limit.

use std::time::{Duration, Instant};

use falaj_inference::Tensor;

use super::ask::Priority;
use super::settings::Batching;

/// How many kinds of requests are looked at for one that need not wait: strangers choose shapes,
/// and each kind costs a look at the whole queue.
const MAX_KINDS: usize = 8;

/// When it is a request's turn: by priority, then by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Turn {
    pub priority: Priority,
    pub arrival: u64,
}

/// The shapes behind the rows, and the outputs wanted: requests that agree in both can share a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind(Box<[usize]>);

impl Kind {
    /// The kind of a request and its rows; none if its inputs do not have the same rows each.
    pub(super) fn of(inputs: &[(String, Tensor)], outputs: &[usize]) -> Option<(Self, usize)> {
        let rows = *inputs.first()?.1.shape().first()?;
        if rows == 0 || inputs.iter().any(|(_, tensor)| tensor.shape().first() != Some(&rows)) {
            return None;
        }
        let mut parts = Vec::with_capacity(inputs.len() * 3 + outputs.len());
        for (_, tensor) in inputs {
            parts.push(tensor.shape().len());
            parts.extend_from_slice(&tensor.shape()[1..]);
        }
        parts.extend_from_slice(outputs);
        Some((Self(parts.into()), rows))
    }
}

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting<'a> {
    pub turn: Turn,
    pub rows: usize,
    /// None if it has to be computed alone.
    pub kind: Option<&'a Kind>,
    pub since: Instant,
    pub deadline: Instant,
}

/// What an instance that has nothing to do does next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing waits.
    Nothing,
    /// Waits until then for more to come.
    Wait(Instant),
    Run(Vec<Turn>),
}

/// Decides. `waiting` is in the order of turns; `lasts` says how long a number of rows take.
pub(super) fn next<'a>(
    waiting: impl Iterator<Item = Waiting<'a>> + Clone,
    now: Instant,
    batching: &Batching,
    lasts: impl Fn(usize) -> Duration,
) -> Next {
    let mut until: Option<Instant> = None;
    let mut looked_at: Vec<&Kind> = Vec::new();
    for first in waiting.clone() {
        let Some(kind) = first.kind else { return Next::Run(vec![first.turn]) };
        if looked_at.contains(&kind) {
            continue;
        }
        if looked_at.len() == MAX_KINDS {
            break;
        }
        looked_at.push(kind);
        let mates = waiting.clone().filter(|one| one.kind == Some(kind)).skip(1);
        let mut group = Group::gather(first, mates, batching.max_rows);
        let due = group.due(batching, &lasts);
        if due <= now {
            group.turns.truncate(group.best(batching));
            return Next::Run(group.turns);
        }
        until = Some(until.map_or(due, |other| other.min(due)));
    }
    until.map_or(Next::Nothing, Next::Wait)
}

/// Requests of one kind that could run together.
struct Group {
    turns: Vec<Turn>,
    /// The rows up to and with each of them.
    rows: Vec<usize>,
    oldest: Instant,
    deadline: Instant,
    /// Whether one was passed over since it did not fit.
    crowded: bool,
}

impl Group {
    /// The first, however large it is, and those after it that fit beside it.
    fn gather<'a>(
        first: Waiting<'a>,
        mates: impl Iterator<Item = Waiting<'a>>,
        max_rows: usize,
    ) -> Self {
        let mut group = Self {
            turns: vec![first.turn],
            rows: vec![first.rows],
            oldest: first.since,
            deadline: first.deadline,
            crowded: false,
        };
        let mut rows = first.rows;
        for mate in mates {
            if rows >= max_rows {
                break;
            }
            if rows + mate.rows > max_rows {
                group.crowded = true;
                continue;
            }
            rows += mate.rows;
            group.turns.push(mate.turn);
            group.rows.push(rows);
            group.oldest = group.oldest.min(mate.since);
            group.deadline = group.deadline.min(mate.deadline);
        }
        group
    }

    fn all_rows(&self) -> usize {
        self.rows.last().copied().unwrap_or(0)
    }

    /// How many of its requests make the largest preferred batch; all if none does, or if it is
    /// full.
    fn best(&self, batching: &Batching) -> usize {
        if self.all_rows() >= batching.max_rows {
            return self.turns.len();
        }
        let preferred = self.rows.iter().rposition(|rows| batching.preferred.contains(rows));
        preferred.map_or(self.turns.len(), |place| place + 1)
    }

    /// When it need not wait any longer: long ago if it is as large as is wanted or keeps others
    /// out, else when its oldest request waited long enough or its most urgent can wait no more.
    fn due(&self, batching: &Batching, lasts: impl Fn(usize) -> Duration) -> Instant {
        let rows = self.all_rows();
        let wanted = self.rows.iter().any(|rows| batching.preferred.contains(rows));
        if wanted || self.crowded || rows >= batching.max_rows {
            return self.oldest;
        }
        let latest = self.deadline.checked_sub(lasts(rows)).unwrap_or(self.oldest);
        (self.oldest + batching.delay).min(latest)
    }
}
