//! In which order traces are found, and where a page ends.

use std::cmp::Ordering;

use falaj_mlflow::filter::{Field, OrderBy};
use serde::{Deserialize, Serialize};

use super::row::{number, text};
use crate::trace::Trace;

/// What one clause orders a trace by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Key {
    Number(f64),
    Text(String),
    None(()),
}

/// The place of a trace in a search. The next page begins behind the place of the last trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) keys: Vec<Key>,
    pub(crate) timestamp: i64,
    pub(crate) id: String,
}

impl Place {
    pub(crate) fn of(trace: &Trace, order: &[OrderBy]) -> Self {
        let key = |clause: &OrderBy| match number(trace, &clause.field) {
            Some(number) => Key::Number(number),
            None => text(trace, &clause.field)
                .map_or(Key::None(()), |text| Key::Text(text.into_owned())),
        };
        Self {
            keys: order.iter().map(key).collect(),
            timestamp: trace.timestamp,
            id: trace.id.to_string(),
        }
    }

    /// What it takes to keep.
    pub(crate) fn weight(&self) -> usize {
        let texts =
            self.keys.iter().map(|key| if let Key::Text(text) = key { text.len() } else { 0 });
        self.id.len() + texts.sum::<usize>() + size_of::<Key>() * self.keys.len()
    }

    /// Absent values last in either direction; ties by time, the newest first, then by id.
    pub(crate) fn compare(&self, other: &Self, order: &[OrderBy]) -> Ordering {
        for ((clause, one), two) in order.iter().zip(&self.keys).zip(&other.keys) {
            let way = match (one, two) {
                (Key::Number(one), Key::Number(two)) => one.total_cmp(two),
                (Key::Text(one), Key::Text(two)) => one.cmp(two),
                (Key::None(()), Key::None(())) => Ordering::Equal,
                (one, two) => {
                    let absent = |key: &Key| matches!(key, Key::None(()));
                    match absent(one).cmp(&absent(two)) {
                        Ordering::Equal => continue,
                        absent => return absent,
                    }
                }
            };
            if way.is_ne() {
                return if clause.ascending { way } else { way.reverse() };
            }
        }
        other.timestamp.cmp(&self.timestamp).then_with(|| self.id.cmp(&other.id))
    }
}

/// Whether an ordering is the one in which traces are walked through anyway.
pub(crate) fn is_newest_first(order: &[OrderBy]) -> bool {
    match order.first() {
        None => true,
        Some(first) => {
            first.field == Field::Attribute("timestamp_ms") && !first.ascending && order.len() == 1
        }
    }
}
