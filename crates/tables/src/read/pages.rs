//! The headers of a column's pages, looked through before a page is unpacked.

use falaj_base::{Error, Result};
use parquet::basic::{Compression, Type};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};

use super::source::Source;
use super::thrift::{Stop, Walk, expect, kind};
use super::unpack::{self, Unpacked};
use super::unreadable;
use crate::limits::Limits;

/// How much of a page is looked at to find the end of its header, at first and at most: headers
/// carry the least and the greatest value.
const HEADER: usize = 4 << 10;
const MAX_HEADER: usize = 4 << 20;

/// The types of the fields of a page's header, and of what it says for each kind of page: the first
/// kind of data, a dictionary, the second kind of data.
const HEADER_TYPES: [u8; 8] = [
    kind::I32,
    kind::I32,
    kind::I32,
    kind::I32,
    kind::STRUCT,
    kind::STRUCT,
    kind::STRUCT,
    kind::STRUCT,
];
const DATA_TYPES: [u8; 5] = [kind::I32, kind::I32, kind::I32, kind::I32, kind::STRUCT];
const DICTIONARY_TYPES: [u8; 3] = [kind::I32, kind::I32, kind::TRUE];
const DATA2_TYPES: [u8; 8] =
    [kind::I32, kind::I32, kind::I32, kind::I32, kind::I32, kind::I32, kind::TRUE, kind::STRUCT];

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
    /// Bytes at the beginning of the second kind of page that are never packed.
    levels: i64,
    is_packed: bool,
}

/// Walks through the pages of a column chunk.
pub(super) fn check(
    source: &Source,
    chunk: &ColumnChunkMetaData,
    limits: &Limits,
) -> Result<Found> {
    let name = format!("column {}", chunk.column_path().string());
    let refused = |value: String, allowed: String| Err(Error::invalid(&name, value, allowed));
    if !unpack::is_known(chunk.compression()) {
        let allowed = "none, snappy, gzip, lz4, lz4_raw, brotli or zstd";
        return refused(format!("compression {}", chunk.compression()), allowed.to_owned());
    }
    // Where the library begins, wherever the other page is said to be.
    let first = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
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
        let body = at + page.header as u64;
        at = match next {
            Some(next) if next <= end => next,
            _ => return refused("a page beyond its column".to_owned(), "one within".to_owned()),
        };
        if unpack::is_open_ended(chunk.compression()) && page.is_packed {
            let packed = usize::try_from(at - body).unwrap_or(usize::MAX);
            let levels = usize::try_from(page.levels).unwrap_or(usize::MAX);
            let (Some(packed), Some(most)) =
                (packed.checked_sub(levels), unpacked.checked_sub(levels))
            else {
                return refused("levels beyond their page".to_owned(), "some within".to_owned());
            };
            let bytes = source.get_bytes(body + levels as u64, packed).map_err(unreadable)?;
            let what = match unpack::looked_into(chunk.compression(), &bytes, most) {
                Unpacked::Fits => None,
                Unpacked::More => Some("a page that unpacks to more"),
                Unpacked::Not => Some("a page that cannot be unpacked"),
            };
            if let Some(what) = what {
                let allowed = format!("{unpacked} bytes, as its header says");
                return refused(what.to_owned(), allowed);
            }
        }
        // The unpacked size of a page that is not packed is a claim that nobody checks.
        found.bytes += if chunk.compression() == Compression::UNCOMPRESSED || !page.is_packed {
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
    let mut page = Page {
        header: 0,
        packed: -1,
        unpacked: -1,
        values: 0,
        dictionary: false,
        encoding: -1,
        levels: 0,
        is_packed: true,
    };
    let (mut type_of_page, mut described) = (-1, None);
    let mut walk = Walk::new(bytes);
    walk.fields(0, |walk, field, type_of| {
        expect(&HEADER_TYPES, field, type_of)?;
        match field {
            1 => type_of_page = walk.int()?,
            2 => page.unpacked = walk.int()?,
            3 => page.packed = walk.int()?,
            5..=8 => {
                if described.replace(field).is_some() {
                    return Err(Stop::Wrong);
                }
                described_as(walk, field, &mut page)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    // What a page is said to be and how it is described belong together.
    let adds_up = match type_of_page {
        0 => described == Some(5),
        1 => matches!(described, None | Some(6)),
        2 => described == Some(7),
        3 => described == Some(8),
        _ => false,
    };
    if !adds_up {
        return Err(Stop::Wrong);
    }
    page.dictionary = type_of_page == 2;
    page.header = walk.at();
    Ok(page)
}

/// What is said of one kind of page.
fn described_as(walk: &mut Walk<'_>, kind_of_page: i64, page: &mut Page) -> Result<(), Stop> {
    let (types, encoding): (&[u8], _) = match kind_of_page {
        5 => (&DATA_TYPES, 2),
        7 => (&DICTIONARY_TYPES, 2),
        8 => (&DATA2_TYPES, 4),
        _ => (&[], 0),
    };
    walk.fields(1, |walk, field, type_of| {
        expect(types, field, type_of)?;
        match field {
            1 if !types.is_empty() => page.values = walk.int()?,
            _ if field == encoding => page.encoding = walk.int()?,
            5 | 6 if kind_of_page == 8 => {
                let levels = u32::try_from(walk.int()?).map_err(|_| Stop::Wrong)?;
                page.levels += i64::from(levels);
            }
            7 if kind_of_page == 8 => page.is_packed = type_of == kind::TRUE,
            _ => return Ok(false),
        }
        Ok(true)
    })
}
