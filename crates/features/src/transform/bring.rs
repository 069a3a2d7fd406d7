//! Windows of what lies in sources, brought into the online store.
//!
//! The tiles of an entity are whole or they are not brought: rows may stand in any order, and a window
//! that was half read would say too little. So a source is read to its end, and then everything is
//! handed over. What does not fit into memory is read in several turns, each for a share of the
//! entities.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use falaj_base::{Error, Result};
use falaj_online::{Batch, Key, Stamp};
use falaj_transform::hash;
use falaj_transform::window::Tiles;

use super::Ready;
use super::tiles::{key, layout, packed};
use crate::online::Shape;
use crate::source::{History, Stop};

/// Memory for the tiles of one turn, about.
const MEMORY: usize = 256 << 20;
/// What an entity takes beside its tiles, about.
const ENTITY: usize = 160;
/// The most turns.
const TURNS: u64 = 1 << 16;
/// Bytes of rows that are handed over at a time, about.
const BYTES_AT_ONCE: usize = 16 << 20;

/// Which rows are brought, and as what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Which {
    /// Events up to here, this one included, as far as they are known by `now`.
    pub(crate) end: i64,
    pub(crate) now: i64,
    /// What is brought later has a greater one, and stays.
    pub(crate) place: u64,
}

/// Reads a history and hands its tiles over, with how many rows counted so far; tells how many rows
/// were read, and how many counted.
pub(crate) fn read(
    history: &History,
    shape: &Shape,
    ready: &Ready,
    which: Which,
    stop: &Stop,
    mut give: impl FnMut(Batch, u64) -> Result<()>,
) -> Result<(u64, u64)> {
    let (mut turns, mut turn, mut rows, mut read) = (1, 0, 0, 0);
    while turn < turns {
        let shared = one_turn((history, shape, ready), which, stop, (turn, turns))?;
        let Some(Turn { entities, rows: counted, read: all }) = shared else {
            // Too much at a time: smaller shares, of which those before were handed over.
            if turns >= TURNS {
                return Err(Error::internal("the tiles of one share take too much memory"));
            }
            (turns, turn) = (turns * 2, turn * 2);
            continue;
        };
        (rows, read) = (rows + counted, all);
        let (layout, mut batch) = (layout(), Batch::new());
        for (key, tiles) in entities {
            stop.check()?;
            let stamp = Stamp { event: 0, known: 0, log: which.place, row: 0 };
            let row = packed(&layout, ready, &tiles, stamp)?;
            batch.put(&key.beside(), &row)?;
            if batch.bytes() >= BYTES_AT_ONCE {
                give(std::mem::take(&mut batch), rows)?;
            }
        }
        give(batch, rows)?;
        turn += 1;
    }
    history.unchanged()?;
    Ok((read, rows))
}

/// The entities of one share.
struct Turn {
    entities: HashMap<Key, Tiles>,
    /// Rows that counted, and rows that were read.
    rows: u64,
    read: u64,
}

/// The tiles of the entities of one share; none if they take too much.
fn one_turn(
    (history, shape, ready): (&History, &Shape, &Ready),
    which: Which,
    stop: &Stop,
    (turn, turns): (u64, u64),
) -> Result<Option<Turn>> {
    let windows = ready.windows.as_ref().ok_or_else(|| Error::internal("no windows"))?;
    let mut entities: HashMap<Key, Tiles> = HashMap::new();
    let (mut bytes, mut rows, mut full, mut first) = (0_usize, 0, false, 0);
    history.brought_rows(stop, |batch, known| {
        if full {
            return Ok(());
        }
        let made = ready.run(batch).map_err(|error| {
            let until = first + batch.num_rows();
            let text = format!("rows {first} to {until}: {}", error.message());
            Error::new(error.code(), text).caused_by(error)
        })?;
        first += batch.num_rows();
        let events = made.batch.column(made.batch.num_columns() - 1);
        let events = events.as_primitive::<TimestampMicrosecondType>();
        ready.each_row(&made, |row, values| {
            let (event, known) = (events.value(row), known.value(made.row(row)));
            let counts =
                event <= which.end && known <= which.now && windows.plan.counts(event, which.now);
            if !counts {
                return Ok(());
            }
            let key = key(shape, &made.batch, row)?;
            // Shares are ranges of hashes: each of them is two of half its size.
            let whose = (u128::from(hash::of(key.bytes())) * u128::from(turns)) >> 64;
            if whose != u128::from(turn) {
                return Ok(());
            }
            let known = key.bytes().len() + ENTITY;
            let tiles = entities.entry(key).or_insert_with(|| {
                bytes += known;
                windows.plan.empty()
            });
            windows.plan.add(tiles, event, values);
            rows += 1;
            Ok(())
        })?;
        let tiles: usize = entities.values().map(Tiles::memory).sum();
        full = bytes + tiles > MEMORY && turns < TURNS;
        Ok(())
    })?;
    Ok((!full).then_some(Turn { entities, rows, read: first as u64 }))
}
