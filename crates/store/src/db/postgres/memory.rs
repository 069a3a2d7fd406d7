//! Rows as they were when a shared transaction last held them.
//!
//! A write is told of its row before it does anything, which is a question to the server and an answer. Rows
//! that many writes wait for hardly ever change: they are remembered, and the statement that writes makes
//! sure of them ([`Guard`]).
//!
//! Must hold: nothing is believed that is not made sure of. So it does no harm if what is here is wrong.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::bundle::Guard;
use super::group::Jobs;
use crate::db::held::Held;
use crate::db::value::{Row, Value};

/// How many rows are remembered.
const MOST: usize = 1024;
/// How many transactions are not tried to be written at once after one that could not be.
const SHORTEST_PAUSE: u32 = 4;
const LONGEST_PAUSE: u32 = 64;

/// What is remembered on one connection, of rows of one kind.
#[derive(Default)]
pub(super) struct Memory {
    /// Of which kind they are, and what their columns are called.
    kind: Option<(Held, Arc<[String]>)>,
    rows: HashMap<Key, Row>,
    /// How many times it is not tried, and will not be tried after the next that turns out to be of no use.
    pause: (u32, u32),
    /// The text of a guard for so many rows.
    texts: HashMap<usize, (Arc<str>, usize)>,
}

/// The value of a key, if it can be looked for.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    Int(i64),
    Bytes(Vec<u8>),
}

impl Key {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Int(number) => Some(Self::Int(*number)),
            Value::Blob(bytes) => Some(Self::Bytes(bytes.clone())),
            Value::Text(text) => Some(Self::Bytes(text.clone().into_bytes())),
            Value::Null | Value::Real(_) | Value::Number => None,
        }
    }
}

impl Memory {
    /// Remembers rows that are held, by their keys.
    pub(super) fn learn(&mut self, held: &Held, rows: &[(Value, Row)]) {
        let Some((_, row)) = rows.first() else { return };
        if self.kind.as_ref().is_none_or(|(kind, _)| !kind.is_like(held)) {
            *self = Self { kind: Some((held.clone(), row.columns.clone())), ..Self::default() };
        }
        for (key, row) in rows {
            // What is not there is not equal to anything, and could not be made sure of.
            let whole = row.values.iter().all(|value| *value != Value::Null);
            if let (Some(key), true) = (Key::of(key), whole) {
                self.rows.insert(key, row.clone());
            }
        }
        // Any will do: those that are wanted again are learned again.
        let mut room = MOST;
        self.rows.retain(|_, _| {
            room = room.saturating_sub(1);
            room > 0
        });
    }

    /// Those whose rows were not as they are remembered.
    pub(super) fn forget(&mut self, jobs: &Jobs) {
        for job in jobs {
            if let Some(key) = Key::of(&job.held().id) {
                self.rows.remove(&key);
            }
        }
    }

    /// What was put together with its help could be written, or not: where it cannot, putting it together was
    /// for nothing, and is left alone for longer and longer: the server notes each that it refuses.
    pub(super) fn was_of_use(&mut self, was: bool) {
        let (_, last) = self.pause;
        let longer = (last * 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        // Shorter only bit by bit, or where every other one is refused it would be tried again at once.
        self.pause = if was { (0, last - last.div_ceil(8)) } else { (longer, longer) };
    }

    /// The rows of all of these, and what makes sure of them. None if one is not remembered, or two want the
    /// same.
    pub(super) fn guard(&mut self, jobs: &Jobs) -> Option<(Guard, Vec<Row>)> {
        if self.pause.0 > 0 {
            self.pause.0 -= 1;
            return None;
        }
        let (kind, names) = self.kind.as_ref()?;
        let mut met = HashSet::with_capacity(jobs.len());
        let mut values = Vec::with_capacity(jobs.len() * names.len());
        let mut rows = Vec::with_capacity(jobs.len());
        for job in jobs {
            let key = Key::of(&job.held().id).filter(|_| job.held().is_like(kind))?;
            let row = self.rows.get(&key)?;
            if !met.insert(key) {
                return None;
            }
            // The number of the transaction that read it is the last.
            values.extend(row.values.iter().take(names.len() - 1).cloned());
            rows.push(row.clone());
        }
        let (text, held) = self.texts.entry(jobs.len()).or_insert_with(|| {
            let (text, held) = Guard::text(kind, &names[..names.len() - 1], jobs.len());
            (text.into(), held)
        });
        Some((Guard { text: text.clone(), held: *held, values }, rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of ten thousand transactions are tried, if those go well of which this is said.
    fn tried(goes_well: impl Fn(u32) -> bool) -> u32 {
        let mut memory = Memory::default();
        let mut tried = 0;
        for _ in 0..10_000 {
            if memory.pause.0 > 0 {
                memory.pause.0 -= 1;
            } else {
                tried += 1;
                memory.was_of_use(goes_well(tried));
            }
        }
        tried
    }

    #[test]
    fn the_less_it_is_of_use_the_less_it_is_tried() {
        let counts = [
            tried(|_| true),
            tried(|at| !at.is_multiple_of(100)),
            tried(|at| at.is_multiple_of(2)),
            tried(|_| false),
        ];
        assert!(counts.is_sorted_by(|more, fewer| more > fewer), "{counts:?}");
        let [always, mostly, half, never] = counts;
        assert_eq!(always, 10_000);
        assert!(mostly > 9_500 && half < 400 && never < 200, "{counts:?}");
    }

    #[test]
    fn it_is_tried_again_once_it_is_of_use() {
        let mut memory = Memory { pause: (0, LONGEST_PAUSE), ..Memory::default() };
        for _ in 0..60 {
            memory.was_of_use(true);
        }
        assert_eq!(memory.pause, (0, 0));
    }
}
