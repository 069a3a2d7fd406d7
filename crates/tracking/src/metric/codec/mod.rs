//! How points are kept: columns of bytes, version 1.
//!
//! Two shapes share one layout of a series of points ([`series`]):
//! - a *log row* holds what one request logged: several keys, few points each;
//! - a *chunk* holds many points of one key.
//!
//! ```text
//! log row  0x01, then until the end: key less the one before as zigzag varint, series
//! chunk    0x81, series
//! series   count varint (at least 1)
//!          shape byte: bits 0-2 width code of the timestamps, bits 3-5 of the steps,
//!                      bit 6 set if the values are f32, bit 7 clear
//!          first timestamp, first step: zigzag varints, less those of the series before in the
//!          row
//!          if count > 1: smallest timestamp delta, smallest step delta: zigzag varints
//!          count - 1 timestamp deltas less the smallest, count - 1 step deltas less the smallest,
//!          count values; fixed widths, little-endian
//! ```
//!
//! Why fixed widths and not a varint per point: there is nothing to branch on, so a column is read
//! at the speed of memory; and steps that grow evenly, as nearly all do, take no bytes at all.
//! Values that a 32-bit float holds exactly (most losses, every small count) take four bytes.
//! Nothing smarter is done for the rest: their low bits are noise, which no XOR makes smaller.
//!
//! Must hold: bytes that were not written by this code give an integrity error or other points,
//! never a panic, and never more memory than a small multiple of their own length. What version 1
//! wrote stays readable: the tests hold frozen examples.

mod bytes;
mod column;
mod series;
#[cfg(test)]
mod tests;

use falaj_base::{Error, Result, code};

use self::bytes::Reader;
use self::series::Base;
pub use self::series::Series;
use super::point::Point;

const LOG_ROW: u8 = 0x01;
const CHUNK: u8 = 0x81;

/// Encodes the points of several keys. Keys without points are left out.
#[must_use]
pub fn encode_log_row<'a>(sections: impl IntoIterator<Item = (i64, &'a [Point])>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.push(LOG_ROW);
    let (mut before, mut base) = (0, Base::default());
    for (key, points) in sections {
        if let Some(first) = points.first() {
            bytes::put_zigzag(&mut out, key.wrapping_sub(before));
            series::encode(&mut out, base, points);
            (before, base) = (key, Base { timestamp: first.timestamp(), step: first.step() });
        }
    }
    out
}

/// The parts of a log row, one per key. After an error there are no more.
pub fn log_row(bytes: &[u8]) -> Result<impl Iterator<Item = Result<(i64, Series<'_>)>>> {
    let mut reader = Reader::new(bytes);
    expect(&mut reader, LOG_ROW)?;
    let (mut before, mut base) = (0, Base::default());
    Ok(std::iter::from_fn(move || {
        if reader.is_empty() {
            return None;
        }
        let section = next_section(&mut reader, before, base);
        match &section {
            Ok((key, series)) => (before, base) = (*key, series.as_base()),
            Err(_) => reader = Reader::new(&[]),
        }
        Some(section)
    }))
}

fn next_section<'a>(reader: &mut Reader<'a>, before: i64, base: Base) -> Result<(i64, Series<'a>)> {
    let key = before.wrapping_add(reader.zigzag()?);
    Ok((key, Series::read(reader, base)?))
}

/// Encodes many points of one key. There must be at least one.
#[must_use]
pub fn encode_chunk(points: &[Point]) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + points.len() * 12);
    out.push(CHUNK);
    series::encode(&mut out, Base::default(), points);
    out
}

/// Reads what [`encode_chunk`] wrote.
pub fn chunk(bytes: &[u8]) -> Result<Series<'_>> {
    let mut reader = Reader::new(bytes);
    expect(&mut reader, CHUNK)?;
    let series = Series::read(&mut reader, Base::default())?;
    if reader.is_empty() { Ok(series) } else { Err(corrupt("bytes follow the end")) }
}

fn expect(reader: &mut Reader<'_>, tag: u8) -> Result<()> {
    match reader.byte()? {
        found if found == tag => Ok(()),
        found => Err(corrupt(format!("unknown format {found:#04x}"))),
    }
}

fn corrupt(why: impl Into<String>) -> Error {
    Error::new(&code::INTEGRITY, "stored metric points cannot be read").caused_by(why.into())
}
