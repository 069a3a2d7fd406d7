//! A version of a view as its rows are read and written.

use std::collections::HashMap;

use falaj_base::{Error, Result, Timestamp};
use falaj_online::{Key, Kind, Layout, Pattern, Value};

use crate::definition::ViewVersion;
use crate::history::Position;
use crate::transform::Ready;
use crate::transform::ready::named;

/// What is needed of a version of a view to find its rows and look into them. Never changes.
#[derive(Debug)]
pub(crate) struct Shape {
    /// What its keys begin with.
    number: u32,
    pub(crate) keys: Box<[(String, Kind)]>,
    pub(crate) fields: Box<[(String, Kind)]>,
    /// The columns of its rows as they come: its fields, unless those are made of them.
    pub(crate) columns: Box<[(String, Kind)]>,
    /// How fields are made of columns.
    pub(crate) ready: Option<Ready>,
    pub(crate) event_time: String,
    pub(crate) layout: Layout,
    /// Where each field stands, by its name.
    places: HashMap<String, usize>,
    ttl: Option<i64>,
}

impl Shape {
    pub(crate) fn of(view: &ViewVersion) -> Result<Self> {
        let number = u32::try_from(view.rows().0).map_err(Error::internal)?;
        let form = view.form();
        let fields: Box<[_]> =
            form.fields.iter().map(|field| (field.name.to_string(), field.kind)).collect();
        let kinds: Vec<_> = fields.iter().map(|(_, kind)| *kind).collect();
        Ok(Self {
            number,
            keys: form.keys().iter().map(|key| (key.name.to_string(), key.kind)).collect(),
            layout: Layout::new(&kinds),
            places: fields.iter().map(|(name, _)| name.clone()).zip(0..).collect(),
            fields,
            columns: named(form.columns()).into(),
            ready: Ready::of(form)?,
            event_time: form.event_time.to_string(),
            ttl: form.ttl_us,
        })
    }

    /// How fields are made, if they are aggregates over windows.
    pub(crate) fn windows(&self) -> Option<&Ready> {
        self.ready.as_ref().filter(|ready| ready.windows.is_some())
    }

    /// Which field has this name.
    pub(crate) fn field(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// The key of an entity, by the values of the join keys in their order.
    pub(crate) fn key<'a>(&'a self, values: impl Iterator<Item = &'a Value>) -> Result<Key> {
        Key::new(self.number, self.keys.iter().map(|(name, _)| name.as_str()).zip(values))
    }

    /// Writes that key behind what is there.
    pub(crate) fn write_key<'a>(
        &'a self,
        out: &mut Vec<u8>,
        values: impl Iterator<Item = &'a Value>,
    ) -> Result<()> {
        Key::write(out, self.number, self.keys.iter().map(|(name, _)| name.as_str()).zip(values))
    }

    /// The entities that have these values, where there are some, in the order of the join keys.
    pub(crate) fn pattern(&self, values: &[Option<Value>]) -> Result<Pattern> {
        let names = self.keys.iter().map(|(name, _)| name.as_str());
        Pattern::new(self.number, names.zip(values.iter().map(Option::as_ref)))
    }

    /// Whether a row of this event no longer answers. One that is as old as it may be still does.
    pub(crate) fn is_expired(&self, event: i64, now: Timestamp) -> bool {
        self.ttl.is_some_and(|ttl| now.micros().saturating_sub(event) > ttl)
    }
}

/// What stands before the place of a row that was pushed: of one event that became known at one
/// time, a row that was pushed stays before one of a source.
const PUSHED: u64 = 1 << 63;

/// A place in the log as one number that grows with it. PostgreSQL's are a transaction and a small
/// number within it, SQLite's are numbers of one transaction.
pub(crate) fn place(position: Position) -> u64 {
    const WITHIN: u32 = 20;
    let (tx, seq) = (position.tx.max(0).cast_unsigned(), position.seq.max(0).cast_unsigned());
    PUSHED | if tx == 0 { seq } else { (tx << WITHIN) | seq.min((1 << WITHIN) - 1) }
}

/// The place of rows of sources that were brought by the job of this number: what is brought later
/// stays, since a file may be written anew.
pub(crate) fn brought(number: i64) -> u64 {
    number.max(0).cast_unsigned() & !PUSHED
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
        assert!(brought(1) < brought(2) && brought(i64::MAX) < at(0, 0));
    }
}
