//! A version of a view as its rows are read and written.

use falaj_base::{Error, Result, Timestamp};
use falaj_online::{Key, Kind, Layout, Value};

use crate::definition::VersionId;
use crate::definition::form::ViewForm;
use crate::history::Position;

/// What is needed of a version of a view to find its rows and look into them. Never changes.
#[derive(Debug)]
pub(crate) struct Shape {
    /// What its keys begin with.
    number: u32,
    pub(crate) keys: Box<[(String, Kind)]>,
    pub(crate) fields: Box<[(String, Kind)]>,
    pub(crate) event_time: String,
    pub(crate) layout: Layout,
    ttl: Option<i64>,
}

impl Shape {
    pub(crate) fn of(id: VersionId, form: &ViewForm) -> Result<Self> {
        let number = u32::try_from(id.0).map_err(Error::internal)?;
        let fields: Box<[_]> =
            form.fields.iter().map(|field| (field.name.to_string(), field.kind)).collect();
        let kinds: Vec<_> = fields.iter().map(|(_, kind)| *kind).collect();
        Ok(Self {
            number,
            keys: form.keys().iter().map(|key| (key.name.to_string(), key.kind)).collect(),
            layout: Layout::new(&kinds),
            fields,
            event_time: form.event_time.to_string(),
            ttl: form.ttl_us,
        })
    }

    /// Which field has this name.
    pub(crate) fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|(known, _)| known == name)
    }

    /// The key of an entity, by the values of the join keys in their order.
    pub(crate) fn key<'a>(&'a self, values: impl Iterator<Item = &'a Value>) -> Result<Key> {
        Key::new(self.number, self.keys.iter().map(|(name, _)| name.as_str()).zip(values))
    }

    /// Whether a row of this event no longer answers. One that is as old as it may be still does.
    pub(crate) fn is_expired(&self, event: i64, now: Timestamp) -> bool {
        self.ttl.is_some_and(|ttl| now.micros().saturating_sub(event) > ttl)
    }
}

/// A place in the log as one number that grows with it. PostgreSQL's are a transaction and a small
/// number within it, SQLite's are numbers of one transaction.
pub(crate) fn place(position: Position) -> u64 {
    const WITHIN: u32 = 20;
    let (tx, seq) = (position.tx.max(0).cast_unsigned(), position.seq.max(0).cast_unsigned());
    if tx == 0 { seq } else { (tx << WITHIN) | seq.min((1 << WITHIN) - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_grow_with_the_log() {
        let at = |tx, seq| place(Position { tx, seq });
        assert!(at(0, 1) < at(0, 2));
        assert!(at(7, 1) < at(7, 2) && at(7, 900) < at(8, 1));
        assert!(at(0, 5_000_000) < at(0, 5_000_001));
    }
}
