//! What the clients were told, kept where no crash reaches it.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::write::{Kind, Write};

/// How a write ended, as far as its client knows.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The server said it is done. `made` is the body of its answer; `request` is the id of the
    /// request that did it, unless it took more than one to get an answer.
    Acknowledged { made: Value, request: Option<String> },
    /// The connection broke: it may have happened or not.
    Unanswered,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub write: Write,
    pub outcome: Outcome,
    /// The place of the write that this one takes away.
    pub removes: Option<usize>,
}

impl Entry {
    #[must_use]
    pub fn made(&self) -> Option<&Value> {
        match &self.outcome {
            Outcome::Acknowledged { made, .. } => Some(made),
            Outcome::Unanswered => None,
        }
    }
}

/// All writes of one world, in no particular order.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: Mutex<Vec<Entry>>,
}

impl Ledger {
    /// Notes a write and returns its place.
    pub fn note(&self, entry: Entry) -> usize {
        let mut entries = self.lock();
        entries.push(entry);
        entries.len() - 1
    }

    /// A write that was unanswered has been repeated and acknowledged.
    pub fn settle(&self, place: usize, outcome: Outcome) {
        self.lock()[place].outcome = outcome;
    }

    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().clone()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has become of one thing, all its writes taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Must be there.
    Present,
    /// Must not be there.
    Gone,
    /// Nobody was told: either is right.
    Open,
}

/// The fate of every creating write in `entries`, by its place.
#[must_use]
pub fn fates(entries: &[Entry]) -> Vec<Option<Fate>> {
    let mut fates: Vec<Option<Fate>> = entries
        .iter()
        .map(|entry| match (entry.write.kind, &entry.outcome) {
            (Kind::Removal, _) => None,
            (_, Outcome::Acknowledged { .. }) => Some(Fate::Present),
            (_, Outcome::Unanswered) => Some(Fate::Open),
        })
        .collect();
    for entry in entries {
        let Some(target) = entry.removes else { continue };
        fates[target] = Some(match entry.outcome {
            Outcome::Acknowledged { .. } => Fate::Gone,
            Outcome::Unanswered => Fate::Open,
        });
    }
    fates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(write: Write, acknowledged: bool, removes: Option<usize>) -> Entry {
        let outcome = if acknowledged {
            Outcome::Acknowledged { made: Value::Null, request: None }
        } else {
            Outcome::Unanswered
        };
        Entry { write, outcome, removes }
    }

    #[test]
    fn the_last_word_decides() {
        let make = |label: &str| Write::tenant(label.to_owned());
        let drop = |label: &str| Write::removal(label.to_owned(), format!("/v1/tenants/{label}"));
        let entries = [
            entry(make("kept"), true, None),
            entry(make("lost-answer"), false, None),
            entry(make("removed"), true, None),
            entry(drop("r1"), true, Some(2)),
            entry(make("half-removed"), true, None),
            entry(drop("r2"), false, Some(4)),
        ];
        assert_eq!(
            fates(&entries),
            [Some(Fate::Present), Some(Fate::Open), Some(Fate::Gone), None, Some(Fate::Open), None]
        );
    }
}
