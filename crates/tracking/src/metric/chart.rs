//! A chart's few points, out of a history that is not put together for them.
//!
//! What is logged in the order of its steps, as nearly everything is, lies in chunks that follow each other.
//! Then the chunks' counts say where each point of an even sample stands, and only those are decoded, a chunk
//! at a time.
//!
//! Must hold: the sample is the one that the whole history gives, or there is none.

use falaj_base::Result;
use falaj_store::db::{Tx, params};

use super::codec;
use super::history::{Steps, in_step_order};
use super::point::Point;
use super::sample::even_places;
use super::store::blob;
use crate::run::RunId;
use crate::run::store::id_list;

/// How many chunks are asked for at once.
const AT_ONCE: usize = 64;

/// Points of a chunk, which follow those of the chunk before.
struct Piece {
    id: Vec<u8>,
    count: usize,
    first_step: i64,
    last_step: i64,
    /// Which of its points are wanted.
    places: Vec<usize>,
}

/// An even sample of at most `max` points within `steps`, by their steps, of what is in chunks and what the log
/// holds; absent where it cannot be told without the whole history.
pub(super) fn sample(
    tx: &mut Tx<'_>,
    (run, key): (RunId, i64),
    steps: Steps,
    max: usize,
    logged: &[Point],
) -> Result<Option<Vec<Point>>> {
    let late = logged.iter().copied().filter(|point| steps.contains(point.step()));
    let late = in_step_order(late.collect());
    let mut pieces = pieces(tx, (run, key), steps)?;
    let count = pieces.iter().map(|piece| piece.count).sum::<usize>() + late.len();
    if max < 2 || count <= max || !follow(&pieces, &late, steps) {
        return Ok(None);
    }

    let mut last = Vec::new();
    let (mut at, mut before) = (0, 0);
    for place in even_places(count, max) {
        while let Some(piece) = pieces.get(at)
            && place - before >= piece.count
        {
            (at, before) = (at + 1, before + piece.count);
        }
        match pieces.get_mut(at) {
            Some(piece) => piece.places.push(place - before),
            None => last.push(late[place - before]),
        }
    }
    pieces.retain(|piece| !piece.places.is_empty());

    let mut points = Vec::with_capacity(max);
    for some in pieces.chunks(AT_ONCE) {
        if !pick(tx, (run, key), some, &mut points)? {
            return Ok(None);
        }
    }
    points.extend(last);
    Ok(Some(points))
}

/// The chunks with points within these steps, by the first.
fn pieces(tx: &mut Tx<'_>, (run, key): (RunId, i64), steps: Steps) -> Result<Vec<Piece>> {
    let rows = tx.query(
        "SELECT id, count, first_step, last_step FROM metric_chunk
         WHERE run = $1 AND key = $2 AND last_step >= $3 AND first_step <= $4 ORDER BY first_step",
        &params![run, key, steps.first, steps.last],
    )?;
    rows.iter()
        .map(|row| {
            Ok(Piece {
                id: row.get("id")?,
                count: row.get("count")?,
                first_step: row.get("first_step")?,
                last_step: row.get("last_step")?,
                places: Vec::new(),
            })
        })
        .collect()
}

/// Whether all points of each chunk are wanted, and none of them stand among those of another, or of the log.
fn follow(pieces: &[Piece], late: &[Point], steps: Steps) -> bool {
    let within =
        |piece: &Piece| steps.contains(piece.first_step) && steps.contains(piece.last_step);
    pieces.iter().all(within)
        && pieces.is_sorted_by(|a, b| a.last_step < b.first_step)
        && pieces.last().zip(late.first()).is_none_or(|(last, late)| last.last_step < late.step())
}

/// Adds the wanted points of some chunks. Tells whether the steps of each rise: a chunk is in the order of
/// time.
fn pick(
    tx: &mut Tx<'_>,
    (run, key): (RunId, i64),
    pieces: &[Piece],
    points: &mut Vec<Point>,
) -> Result<bool> {
    let ids: Vec<&[u8]> = pieces.iter().map(|piece| &piece.id[..]).collect();
    let (list, mut values) = id_list(&ids);
    let sql = format!(
        "SELECT points FROM metric_chunk
         WHERE run = ${} AND key = ${} AND id IN ({list}) ORDER BY first_step",
        values.len() + 1,
        values.len() + 2
    );
    values.extend(params![run, key]);
    let (mut rise, mut wanted) = (true, pieces.iter());
    tx.scan(&sql, &values, |row| {
        let bytes = blob(row)?;
        let series = codec::chunk(&bytes)?;
        match wanted.next() {
            Some(piece) if series.len() == piece.count => {
                rise &= series.steps_rise(piece.first_step, piece.last_step);
                series.pick(&piece.places, points);
            }
            _ => rise = false,
        }
        Ok(())
    })?;
    Ok(rise && wanted.next().is_none())
}
