//! What transformed views say at moments: their part of a training set.
//!
//! A row of a history counts in a window from when it is known to when its tile leaves the window, so
//! the moments that it counts at lie side by side in the order of time. It is added to the partials of
//! as few ranges of them as cover those; what a moment is told is what the ranges know that it
//! lies in. So memory grows with the moments and not with the history, and the order of rows does not
//! matter.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow_select::take::take;
use falaj_base::{Error, Result};
use falaj_online::value::Kind;
use falaj_online::{Key, Value};
use falaj_transform::window::{Aggregate, Item, Partial};

use super::Ready;
use super::ready::Made;
use crate::definition::form::ViewForm;
use crate::name::FeatureName;
use crate::offline::{Answered, Gathered, Latest, Moments, Rules};
use crate::online::{column_of, value_in};
use crate::schema::{self, moment};
use crate::source::{History, Stop, fit};

/// A question about some features of a transformed view.
pub(crate) struct Asked<'a> {
    pub(crate) view: &'a ViewForm,
    pub(crate) history: &'a History,
    pub(crate) features: &'a [FeatureName],
    pub(crate) moments: &'a RecordBatch,
    /// The column of moments that tells their time.
    pub(crate) time: &'a str,
    pub(crate) rules: Rules,
    /// Bytes that the answers may take.
    pub(crate) memory: usize,
    pub(crate) stop: &'a Stop,
}

impl Asked<'_> {
    /// The features, moment by moment, and how much memory is left; none if that is not enough.
    pub(crate) fn answer(&self, ready: &Ready) -> Result<Option<(Answered, usize)>> {
        if ready.windows.is_some() { self.windows(ready) } else { self.latest(ready) }
    }

    fn column(&self, name: &str) -> Result<&ArrayRef> {
        let found = self.moments.column_by_name(name);
        found.ok_or_else(|| Error::internal("a column that was checked is gone"))
    }

    /// The rows of the history, transformed, and since when each is known.
    fn made(
        &self,
        ready: &Ready,
        mut each: impl FnMut(&Made, &TimestampMicrosecondArray) -> Result<()>,
    ) -> Result<()> {
        let mut first = 0;
        self.history.rows_from(0, self.stop, |batch, known| {
            let made = ready.run(batch).map_err(|error| {
                let (view, until) = (&self.view.name, first + batch.num_rows());
                let text = format!("{view}, rows {first} to {until}: {}", error.message());
                Error::new(error.code(), text).caused_by(error)
            })?;
            first += batch.num_rows();
            match &made.kept {
                None => each(&made, known),
                Some(kept) => {
                    let known = take(known, kept, None).map_err(Error::internal)?;
                    each(&made, known.as_primitive::<TimestampMicrosecondType>())
                }
            }
        })
    }

    /// Of views whose rows are transformed one by one: the latest row answers.
    fn latest(&self, ready: &Ready) -> Result<Option<(Answered, usize)>> {
        let names: Vec<&str> = self.view.keys().iter().map(|key| key.name.as_str()).collect();
        let keys = |of: &dyn Fn(&str) -> Result<ArrayRef>| {
            names.iter().map(|name| Ok((*name, of(name)?))).collect::<Result<Vec<_>>>()
        };
        let asked = keys(&|name| self.column(name).cloned())?;
        let asked = Moments::new(&asked, (self.time, self.column(self.time)?.as_ref()))?;
        let mut latest = Latest::new(&asked, self.rules);
        self.made(ready, |made, known| {
            let column = |name: &str| {
                let found = made.batch.column_by_name(name).cloned();
                found.ok_or_else(|| Error::internal("a key that is gone"))
            };
            let event = column(self.view.event_time.as_str())?;
            latest.add(&keys(&column)?, ("event", &*event), Some(("known", known)))
        })?;
        let types = self.history.schema(self.features)?;
        let mut gathered = Gathered::new(latest.finish(), types.clone(), self.memory);
        let done = |gathered: &Gathered| gathered.is_complete() || gathered.left().is_none();
        if !done(&gathered) {
            self.made(ready, |made, _| {
                if done(&gathered) {
                    return Ok(());
                }
                let columns = self.features.iter().map(|name| {
                    let found = made.batch.column_by_name(name.as_str()).cloned();
                    found.ok_or_else(|| Error::internal("a feature that is gone"))
                });
                let columns = columns.collect::<Result<Vec<_>>>()?;
                let batch = RecordBatch::try_new(types.clone(), columns);
                gathered.add(&batch.map_err(Error::internal)?)
            })?;
        }
        let Some(left) = gathered.left() else { return Ok(None) };
        Ok(Some((gathered.finish()?, left)))
    }

    fn windows(&self, ready: &Ready) -> Result<Option<(Answered, usize)>> {
        let Some(windows) = &ready.windows else { return Ok(None) };
        // Features are the aggregates, in their order.
        let place = |name: &FeatureName| self.view.fields.iter().position(|it| it.name == *name);
        let wanted = self.features.iter().map(place).collect::<Option<Vec<_>>>();
        let wanted = wanted.ok_or_else(|| Error::internal("a feature that is gone"))?;
        let aggregates: Vec<_> =
            wanted.iter().map(|place| windows.plan.aggregates()[*place]).collect();
        let mut spans = self.spans(aggregates)?;
        let kinds: Vec<_> = self.view.keys().iter().map(|key| key.kind).collect();
        let mut full = false;
        self.made(ready, |made, known| {
            if full {
                return Ok(());
            }
            let events = made.batch.column(made.batch.num_columns() - 1);
            let events = events.as_primitive::<TimestampMicrosecondType>();
            let keys = keys(&made.batch.columns()[..kinds.len()], &kinds);
            ready.each_row(made, |row, values| {
                let (event, known) = (events.value(row), known.value(row));
                if self.rules.known_by.is_some_and(|latest| known > latest) {
                    return Ok(());
                }
                let first = if self.rules.hindsight { event } else { event.max(known) };
                if let Some(group) = keys(row)?.and_then(|key| spans.groups.get(&key).copied()) {
                    for (slot, place) in wanted.iter().enumerate() {
                        spans.add(slot, group, event, first, values[*place].as_ref());
                    }
                }
                Ok(())
            })?;
            full = spans.bytes > self.memory;
            Ok(())
        })?;
        let fixed = self.moments.num_rows().saturating_mul(wanted.len() * size_of::<Value>());
        let Some(left) = self.memory.checked_sub(spans.bytes.saturating_add(fixed)) else {
            return Ok(None);
        };
        let kinds = wanted.iter().map(|place| self.view.fields[*place].kind);
        let columns = spans.finish(kinds, self.moments.num_rows())?;
        Ok(Some((Answered::of(columns), left)))
    }

    /// The moments by key, in the order of time.
    fn spans(&self, aggregates: Vec<Aggregate>) -> Result<Spans> {
        let keys_of = self.view.keys();
        let kinds: Vec<_> = keys_of.iter().map(|key| key.kind).collect();
        let columns = keys_of.iter().map(|key| {
            // A number that the view's keys cannot be is nobody's.
            let column = self.column(key.name.as_str())?;
            arrow_cast::cast(column, &schema::arrow(key.kind)).map_err(Error::internal)
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let times = fit(self.time, self.column(self.time)?, &moment())?;
        let times = times.as_primitive::<TimestampMicrosecondType>();
        let key = keys(&columns, &kinds);
        let mut by_key: HashMap<Key, Vec<(i64, usize)>> = HashMap::new();
        for row in 0..self.moments.num_rows() {
            if let Some(key) = key(row)? {
                by_key.entry(key).or_default().push((times.value(row), row));
            }
        }
        let mut spans = Spans {
            groups: HashMap::with_capacity(by_key.len()),
            times: Vec::new(),
            rows: Vec::new(),
            known: Vec::new(),
            bytes: 0,
            aggregates,
        };
        for (key, mut moments) in by_key {
            moments.sort_unstable();
            let group = Group { start: spans.times.len(), length: moments.len() };
            spans.times.extend(moments.iter().map(|(time, _)| *time));
            spans.rows.extend(moments.iter().map(|(_, row)| *row));
            spans.groups.insert(key, group);
        }
        let slots = 2 * spans.times.len() * size_of::<Option<Box<Partial>>>();
        spans.bytes = slots * spans.aggregates.len();
        spans.known = spans.aggregates.iter().map(|_| vec![None; 2 * spans.times.len()]).collect();
        Ok(spans)
    }
}

/// The keys of rows, one by one; none where there is a gap, or what no key can be.
fn keys<'a>(
    columns: &'a [ArrayRef],
    kinds: &'a [Kind],
) -> impl Fn(usize) -> Result<Option<Key>> + 'a {
    move |row| {
        let values = columns.iter().zip(kinds).map(|(column, kind)| value_in(column, row, *kind));
        let values = values.collect::<Result<Vec<_>>>()?;
        if values.iter().any(|value| matches!(value, Value::Null)) {
            return Ok(None);
        }
        Ok(Key::new(0, values.iter().map(|value| ("key", value))).ok())
    }
}

/// The moments of one key: where they lie among all.
#[derive(Clone, Copy, Debug)]
struct Group {
    start: usize,
    length: usize,
}

/// What is known at ranges of moments. The ranges of a group are the nodes of a complete binary tree
/// whose leaves are its moments.
struct Spans {
    groups: HashMap<Key, Group>,
    times: Vec<i64>,
    /// Which row of the question each of them is.
    rows: Vec<usize>,
    aggregates: Vec<Aggregate>,
    /// For each aggregate: the nodes of all groups, one group after the other.
    known: Vec<Vec<Option<Box<Partial>>>>,
    bytes: usize,
}

impl Spans {
    /// Adds an event to the moments from `first` on at which it counts.
    fn add(&mut self, slot: usize, group: Group, event: i64, first: i64, value: Option<&Item>) {
        let aggregate = &self.aggregates[slot];
        let times = &self.times[group.start..group.start + group.length];
        let last = aggregate.last_moment(event);
        let from = times.partition_point(|time| *time < first);
        let to = times.partition_point(|time| *time <= last);
        let nodes = &mut self.known[slot][2 * group.start..2 * (group.start + group.length)];
        let mut note = |node: usize| {
            let known = nodes[node].get_or_insert_with(|| {
                self.bytes += size_of::<Partial>();
                Box::new(Partial::new(aggregate))
            });
            let before = known.memory();
            known.add(aggregate, event, value);
            self.bytes = (self.bytes + known.memory()).saturating_sub(before);
        };
        let (mut from, mut to) = (from + group.length, to.max(from) + group.length);
        while from < to {
            if from % 2 == 1 {
                note(from);
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                note(to);
            }
            from /= 2;
            to /= 2;
        }
    }

    /// What each moment is told, by the rows of the question.
    fn finish(&self, kinds: impl Iterator<Item = Kind>, count: usize) -> Result<Vec<ArrayRef>> {
        let mut columns = Vec::with_capacity(self.aggregates.len());
        for ((aggregate, nodes), kind) in self.aggregates.iter().zip(&self.known).zip(kinds) {
            let mut values = vec![Value::Null; count];
            for group in self.groups.values() {
                let nodes = &nodes[2 * group.start..2 * (group.start + group.length)];
                for leaf in 0..group.length {
                    let mut whole = Partial::new(aggregate);
                    let mut node = leaf + group.length;
                    while node > 0 {
                        if let Some(known) = &nodes[node] {
                            whole.merge(aggregate, known);
                        }
                        node /= 2;
                    }
                    let row = self.rows[group.start + leaf];
                    values[row] = as_value(whole.value(aggregate), kind)?;
                }
            }
            columns.push(column_of(kind, &values)?);
        }
        Ok(columns)
    }
}

/// What an aggregate says, as a value of its feature.
pub(crate) fn as_value(item: Option<Item>, kind: Kind) -> Result<Value> {
    use falaj_online::value::Scalar;
    let unlike = || Error::internal("an aggregate of another kind than its feature");
    let Some(item) = item else { return Ok(Value::Null) };
    #[allow(clippy::cast_possible_truncation, reason = "it came from a float of four bytes")]
    Ok(match (item, kind) {
        (Item::Bool(value), Kind::One(Scalar::Bool)) => Value::Bool(value),
        (Item::Int(value), Kind::One(Scalar::Int64)) => Value::Int64(value),
        (Item::Int(value), Kind::One(Scalar::Int32)) => {
            Value::Int32(value.try_into().map_err(Error::internal)?)
        }
        (Item::Float(value), Kind::One(Scalar::Float64)) => Value::Float64(value),
        (Item::Float(value), Kind::One(Scalar::Float32)) => Value::Float32(value as f32),
        (Item::Text(value), Kind::One(Scalar::String)) => Value::String(value.into()),
        (Item::Bytes(value), Kind::One(Scalar::Bytes)) => Value::Bytes(value.into()),
        (Item::Time(value), Kind::One(Scalar::Timestamp)) => Value::Timestamp(value),
        _ => return Err(unlike()),
    })
}
