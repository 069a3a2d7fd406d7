//! The headers of a column's pages, looked through before a page is unpacked.

use falaj_base::{Error, Result};
use parquet::basic::{Compression, Type};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};

use super::source::Source;
use super::thrift::{Stop, Walk, kind};
use super::unreadable;
use crate::limits::Limits;

/// How much of a page is looked at to find the end of its header, at first and at most: headers
/// carry the least and the greatest value.
const HEADER: usize = 4 << 10;
const MAX_HEADER: usize = 4 << 20;

/// Texts that share their beginnings with the one before.
const DELTA_BYTE_ARRAY: i64 = 7;

/// What the pages of some columns need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Bytes of all pages, unpacked.
    bytes: u64,
    /// Bytes that a single value may take although the page is small: it points at a dictionary,
    /// or repeats the value before.
    largest: u64,
}

impl Found {
    pub(super) fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.largest = self.largest.saturating_add(other.largest);
    }

    /// How many rows fit into a batch of so many bytes.
    pub(super) fn rows_at_once(&self, group_rows: usize, batch: usize) -> usize {
        let batch = batch as u64;
        let usual = (self.bytes / group_rows.max(1) as u64).max(1);
        let most = (batch / usual).min(batch / self.largest.max(1));
        usize::try_from(most).unwrap_or(usize::MAX).max(1)
    }
}

struct Page {
    header: usize,
    packed: i64,
    unpacked: i64,
    values: i64,
    dictionary: bool,
    encoding: i64,
}

/// Walks through the pages of a column chunk.
pub(super) fn check(
    source: &Source,
    chunk: &ColumnChunkMetaData,
    limits: &Limits,
) -> Result<Found> {
    let name = format!("column {}", chunk.column_path().string());
    let refused = |value: String, allowed: String| Err(Error::invalid(&name, value, allowed));
    let known = matches!(
        chunk.compression(),
        Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_)
    );
    if !known {
        let allowed = "none, snappy or zstd";
        return refused(format!("compression {}", chunk.compression()), allowed.to_owned());
    }
    let first = chunk.dictionary_page_offset().filter(|at| *at > 0);
    let first = first.map_or(chunk.data_page_offset(), |at| at.min(chunk.data_page_offset()));
    let placed = u64::try_from(first).ok().zip(u64::try_from(chunk.compressed_size()).ok());
    let end = placed.and_then(|(first, length)| first.checked_add(length));
    let Some(((mut at, _), end)) = placed.zip(end).filter(|(_, end)| *end <= source.len()) else {
        return refused("a place outside of the file".to_owned(), "one within".to_owned());
    };
    let (mut found, mut values) = (Found::default(), 0_u64);
    while at < end {
        let page = header(source, at, end)?;
        let packed = u64::try_from(page.packed).ok();
        let unpacked = usize::try_from(page.unpacked).ok();
        let Some(unpacked) = unpacked.filter(|unpacked| *unpacked <= limits.page) else {
            return refused(
                format!("a page of {}", page.unpacked),
                format!("0 to {}", limits.page),
            );
        };
        let next = packed.and_then(|packed| at.checked_add(page.header as u64 + packed));
        at = match next {
            Some(next) if next <= end => next,
            _ => return refused("a page beyond its column".to_owned(), "one within".to_owned()),
        };
        // The unpacked size of a page that is not packed is a claim that nobody checks.
        found.bytes += if chunk.compression() == Compression::UNCOMPRESSED {
            packed.unwrap_or(0).max(unpacked as u64)
        } else {
            unpacked as u64
        };
        if !page.dictionary {
            values = values.saturating_add(u64::try_from(page.values).unwrap_or(u64::MAX));
        }
        if values > limits.group_values {
            let allowed = format!("at most {} in a row group", limits.group_values);
            return refused("too many values".to_owned(), allowed);
        }
        let text = matches!(chunk.column_type(), Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY);
        if text && (page.dictionary || page.encoding == DELTA_BYTE_ARRAY) {
            found.largest = found.largest.max(unpacked as u64);
        }
    }
    Ok(found)
}

fn header(source: &Source, at: u64, end: u64) -> Result<Page> {
    let left = usize::try_from(end - at).unwrap_or(usize::MAX);
    let mut length = HEADER.min(left);
    loop {
        let bytes = source.get_bytes(at, length).map_err(unreadable)?;
        match walked(&bytes) {
            Ok(page) => return Ok(page),
            Err(Stop::Short) if length < left.min(MAX_HEADER) => {
                length = (length * 16).min(left).min(MAX_HEADER);
            }
            Err(stop) => return Err(stop.into()),
        }
    }
}

fn walked(bytes: &[u8]) -> Result<Page, Stop> {
    let mut page =
        Page { header: 0, packed: -1, unpacked: -1, values: 0, dictionary: false, encoding: -1 };
    let mut walk = Walk::new(bytes);
    walk.fields(0, |walk, field, type_of| {
        match (field, type_of) {
            (2, kind::I32) => page.unpacked = walk.number()?,
            (3, kind::I32) => page.packed = walk.number()?,
            // Data pages of the first and the second kind: the encoding is another field.
            (5 | 8, kind::STRUCT) => walk.fields(1, |walk, inner, type_of| {
                match (inner, type_of) {
                    (1, kind::I32) => page.values = walk.number()?,
                    (2, kind::I32) if field == 5 => page.encoding = walk.number()?,
                    (4, kind::I32) if field == 8 => page.encoding = walk.number()?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?,
            (7, kind::STRUCT) => {
                page.dictionary = true;
                return Ok(false);
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    page.header = walk.at();
    Ok(page)
}
