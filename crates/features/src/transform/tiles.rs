//! Windows in the online store.
//!
//! An entity of a view with aggregates has up to two rows there: the tiles of what was pushed, and the
//! tiles of what was brought from sources. A reader merges both and asks them about now, so that
//! a window moves on although nothing happens.
//!
//! What was pushed is added in the order of the log, by whoever reads it, and a row says how far that
//! was: it is a function of the log up to there. So it does no harm to add a push again, after a
//! crash or on another server: what a row has already is passed over, and of two rows the one that
//! goes further stays. What is brought takes the place of what was brought before.
//!
//! Must hold: nothing is added out of the order of the log. Whoever pushed waits until the log was
//! read that far.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use bytes::Bytes;
use falaj_base::{Error, Result};
use falaj_online::value::{Kind, Scalar};
use falaj_online::{Batch, Key, Layout, Online, Stamp, Value};
use falaj_transform::window::{Item, Tiles};

use super::Ready;
use super::moments::as_value;
use crate::online::Shape;
use crate::online::value_in;
use crate::source::aside;

/// Rows that are read and written together.
const AT_ONCE: usize = 128;
/// So few rows are added up where they come in.
const FEW: usize = 64;

/// Tiles in a row of the store: one run of bytes.
pub(super) fn layout() -> Layout {
    Layout::new(&[Kind::One(Scalar::Bytes)])
}

fn opened(ready: &Ready, layout: &Layout, row: &[u8]) -> Result<(Stamp, Tiles)> {
    let row = layout.open(row)?;
    let windows = ready.windows.as_ref().ok_or_else(|| Error::internal("no windows"))?;
    match row.value(0)? {
        Value::Bytes(bytes) => Ok((row.stamp(), windows.plan.read(&bytes)?)),
        _ => Err(Error::internal("a row of tiles without tiles")),
    }
}

/// What the rows of an entity say now, as a row of its features.
pub(crate) fn now(
    shape: &Shape,
    ready: &Ready,
    rows: [Option<&Bytes>; 2],
    now: i64,
) -> Result<Bytes> {
    let windows = ready.windows.as_ref().ok_or_else(|| Error::internal("no windows"))?;
    let (layout, mut tiles) = (layout(), windows.plan.empty());
    for row in rows.into_iter().flatten() {
        windows.plan.merge(&mut tiles, &opened(ready, &layout, row)?.1);
    }
    let values = windows.plan.values(&tiles, now).into_iter().zip(&*shape.fields);
    let values =
        values.map(|(item, (_, kind))| as_value(item, *kind)).collect::<Result<Vec<_>>>()?;
    let stamp = Stamp { event: now, known: now, log: 0, row: 0 };
    Ok(shape.layout.pack(stamp, &values)?.into_vec().into())
}

/// An event on its way into tiles.
struct Event {
    at: i64,
    known: i64,
    /// Its place in the log, and which row of its push it was.
    place: (u64, u32),
    values: Vec<Option<Item>>,
}

/// Since when a row is known, where in the log it stands and which row of its push it was.
pub(crate) type Place = (i64, u64, u32);

/// Adds rows that were pushed, in the order of the log, each with its place. Many are added up on
/// threads that may take their time.
pub(crate) async fn follow(
    store: &Online,
    shape: &Arc<Shape>,
    batch: RecordBatch,
    places: Vec<Place>,
) -> Result<()> {
    let many = batch.num_rows() > FEW;
    let of = shape.clone();
    let events = aside(many, move || by_entity(&of, &batch, &places)).await?;
    let mut all = events.into_iter();
    loop {
        let some: Vec<_> = all.by_ref().take(AT_ONCE).collect();
        if some.is_empty() {
            return Ok(());
        }
        let keys: Vec<Key> = some.iter().map(|(key, _)| key.clone()).collect();
        let known = store.read(&keys, usize::MAX).await?;
        let of = shape.clone();
        let add = move || {
            let (ready, mut changed) = (windows_of(&of)?, Batch::new());
            for ((key, events), row) in some.into_iter().zip(known) {
                if let Some(row) = added(ready, row.as_ref(), events)? {
                    changed.put(&key, &row)?;
                }
            }
            Ok(changed)
        };
        let changed = aside(many, add).await?;
        if !changed.is_empty() {
            store.apply(changed).await?;
        }
    }
}

/// The row of an entity with more events; none if it has them all.
fn added(ready: &Ready, row: Option<&Bytes>, events: Vec<Event>) -> Result<Option<Box<[u8]>>> {
    let windows = ready.windows.as_ref().ok_or_else(|| Error::internal("no windows"))?;
    let layout = layout();
    // Known since its oldest event: what is erased as of a moment is what was begun before it.
    let (mut tiles, mut reached, mut known) = match row {
        Some(row) => {
            let (stamp, tiles) = opened(ready, &layout, row)?;
            (tiles, Some((stamp.log, stamp.row)), Some(stamp.known))
        }
        None => (windows.plan.empty(), None, None),
    };
    let mut more = false;
    for event in events {
        if reached.is_some_and(|reached| event.place <= reached) {
            continue;
        }
        windows.plan.add(&mut tiles, event.at, &event.values);
        windows.plan.prune(&mut tiles, event.known);
        (reached, more) = (Some(event.place), true);
        known.get_or_insert(event.known);
    }
    let Some((log, row)) = reached.filter(|_| more) else { return Ok(None) };
    let stamp = Stamp { event: 0, known: known.unwrap_or(0), log, row };
    packed(&layout, ready, &tiles, stamp).map(Some)
}

/// Tiles as a row. Which of two stays is told by their places, unless one was begun anew.
pub(super) fn packed(
    layout: &Layout,
    ready: &Ready,
    tiles: &Tiles,
    stamp: Stamp,
) -> Result<Box<[u8]>> {
    let windows = ready.windows.as_ref().ok_or_else(|| Error::internal("no windows"))?;
    layout.pack(stamp, &[Value::Bytes(windows.plan.write(tiles))])
}

fn windows_of(shape: &Shape) -> Result<&Ready> {
    shape.windows().ok_or_else(|| Error::internal("no windows"))
}

/// The events of a batch of rows, entity by entity, in the order of the rows.
fn by_entity(
    shape: &Shape,
    batch: &RecordBatch,
    stamps: &[Place],
) -> Result<Vec<(Key, Vec<Event>)>> {
    let ready = windows_of(shape)?;
    let made = ready.run(batch)?;
    let events = made.batch.column(made.batch.num_columns() - 1);
    let events = events.as_primitive_opt::<TimestampMicrosecondType>();
    let events = events.ok_or_else(|| Error::internal("events without a time"))?;
    let mut places: HashMap<Key, usize> = HashMap::new();
    let mut found: Vec<(Key, Vec<Event>)> = Vec::new();
    ready.each_row(&made, |row, values| {
        let key = key(shape, &made.batch, row)?;
        let (known, log, number) = stamps[made.row(row)];
        let place = *places.entry(key.clone()).or_insert_with(|| {
            found.push((key, Vec::new()));
            found.len() - 1
        });
        let (at, values) = (events.value(row), values.to_vec());
        found[place].1.push(Event { at, known, place: (log, number), values });
        Ok(())
    })?;
    Ok(found)
}

/// The key of a row that was transformed: its join keys stand first.
pub(super) fn key(shape: &Shape, batch: &RecordBatch, row: usize) -> Result<Key> {
    let values = shape.keys.iter().enumerate();
    let values = values.map(|(place, (_, kind))| value_in(batch.column(place), row, *kind));
    let values = values.collect::<Result<Vec<_>>>()?;
    shape.key(values.iter())
}
