//! The line of requests that wait for a model, in the order of their turns, and what is known about
//! those ahead of a newcomer.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::ask::Priority;
use super::batch::{Turn, Waiting};
use super::cost::Costs;
use super::job::Entry;
use super::settings::Batching;

#[derive(Debug, Default)]
pub(super) struct Line {
    entries: BTreeMap<Turn, Entry>,
    arrivals: u64,
    sums: [Sum; Priority::ALL.len()],
}

/// What several requests amount to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub requests: usize,
    pub rows: usize,
    pub bytes: usize,
    /// If each were computed alone.
    pub cost: Duration,
}

impl Sum {
    fn of(entry: &Entry) -> Self {
        Self { requests: 1, rows: entry.job.rows, bytes: entry.job.bytes, cost: entry.cost }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            rows: self.rows + other.rows,
            bytes: self.bytes + other.bytes,
            cost: self.cost + other.cost,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            requests: self.requests - other.requests,
            rows: self.rows - other.rows,
            bytes: self.bytes - other.bytes,
            cost: self.cost.saturating_sub(other.cost),
        }
    }
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.sums.iter().map(|sum| sum.bytes).sum()
    }

    /// The bytes of one who waits.
    pub(super) fn bytes_of(&self, turn: Turn) -> Option<usize> {
        self.entries.get(&turn).map(|entry| entry.job.bytes)
    }

    /// Whether anybody waits who would make room for this priority.
    pub(super) fn has_lower(&self, priority: Priority) -> bool {
        self.entries.last_key_value().is_some_and(|(last, _)| last.priority > priority)
    }

    /// The last in line, if its priority is lower.
    pub(super) fn pop_lower(&mut self, priority: Priority) -> Option<Entry> {
        let last = *self.entries.last_key_value()?.0;
        (last.priority > priority).then(|| self.remove(last)).flatten()
    }

    pub(super) fn join(&mut self, entry: Entry) -> Turn {
        self.arrivals += 1;
        let turn = Turn { priority: entry.job.priority, arrival: self.arrivals };
        self.put_back(turn, entry);
        turn
    }

    /// Puts one back to where it was.
    pub(super) fn put_back(&mut self, turn: Turn, entry: Entry) {
        let sum = &mut self.sums[turn.priority as usize];
        *sum = sum.plus(Sum::of(&entry));
        self.entries.insert(turn, entry);
    }

    pub(super) fn remove(&mut self, turn: Turn) -> Option<Entry> {
        let entry = self.entries.remove(&turn)?;
        let sum = &mut self.sums[turn.priority as usize];
        *sum = sum.minus(Sum::of(&entry));
        Some(entry)
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Entry> + use<> {
        self.sums = <[Sum; Priority::ALL.len()]>::default();
        std::mem::take(&mut self.entries).into_values()
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = Waiting<'_>> + Clone {
        self.entries.iter().map(|(&turn, entry)| Waiting {
            turn,
            rows: entry.job.rows,
            kind: entry.job.kind.as_ref(),
            since: entry.job.since,
            deadline: entry.job.deadline,
        })
    }

    /// What goes before a newcomer of this priority.
    pub(super) fn ahead(&self, priority: Priority) -> Sum {
        self.sums[..=priority as usize].iter().fold(Sum::default(), |all, &sum| all.plus(sum))
    }
}

impl Entry {
    /// Whether computing it is of no use: its deadline passed, or will before it is computed.
    /// With nobody behind it, trying costs nobody anything.
    pub(super) fn hopeless(&self, now: Instant, others: bool) -> bool {
        let left = self.job.deadline.saturating_duration_since(now);
        left.is_zero() || (others && left < self.cost)
    }
}

/// How long those ahead take until a newcomer is computed; none if nothing is known.
///
/// Rows that can share a run are counted in full batches: that is how they are going to run.
pub(super) fn expected_wait(
    ahead: Sum,
    costs: &Costs,
    batching: Option<&Batching>,
    instances: usize,
) -> Option<Duration> {
    if ahead.requests == 0 {
        return Some(Duration::ZERO);
    }
    let alone = ahead.cost;
    let all = match batching {
        Some(batching) if ahead.rows > 1 => {
            let full = ahead.rows.min(batching.max_rows);
            let batches = ahead.rows.div_ceil(batching.max_rows);
            let bytes = ahead.bytes / ahead.rows * full;
            let together = costs.expect(bytes)?;
            // Batches are what they are by now; to compute each alone cannot be slower than that.
            alone.min(together.saturating_mul(u32::try_from(batches).unwrap_or(u32::MAX)))
        }
        _ => alone,
    };
    Some(all / u32::try_from(instances.max(1)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_counts_batches_and_instances() {
        let costs = Costs::default();
        let ms = Duration::from_millis;
        let ahead = Sum { requests: 64, rows: 64, bytes: 64 * 1024, cost: ms(640) };
        costs.learn(1024, ms(10));
        assert_eq!(expected_wait(Sum::default(), &costs, None, 1), Some(ms(0)));
        assert_eq!(expected_wait(ahead, &costs, None, 1), Some(ms(640)));
        assert_eq!(expected_wait(ahead, &costs, None, 2), Some(ms(320)));
        costs.learn(32 * 1024, ms(50));
        let batching = Batching::default();
        assert_eq!(expected_wait(ahead, &costs, Some(&batching), 1), Some(ms(100)));
        let few = Sum { requests: 2, rows: 2, bytes: 2048, cost: ms(20) };
        assert_eq!(expected_wait(few, &costs, Some(&batching), 1), Some(ms(20)));
    }
}
