//! Archives, by the names in their directory. Nothing is unpacked.
//!
//! The directory is found as Python's `zipfile` finds it (from the end, where the file's last bytes
//! say it lies), because that is what loaders trust.

use std::ops::Range;

use bytes::Bytes;
use falaj_base::Result;

use super::{Class, Found, Probe, name, npy};

/// The end record, the longest comment after it, and the 64-bit records before it.
const TAIL: u64 = 22 + 65_535 + 20 + 56;
const END: &[u8] = b"PK\x05\x06";
const END64: &[u8] = b"PK\x06\x06";
const LOCATOR64: &[u8] = b"PK\x06\x07";
const ENTRY: &[u8] = b"PK\x01\x02";
const LOCAL: &[u8] = b"PK\x03\x04";

/// The largest directory that is read: some fifty thousand names.
const MAX_DIRECTORY: u64 = 4 << 20;

/// The most arrays inside an archive whose headers are looked at, and how much of each.
const MAX_ARRAYS: usize = 512;
const PEEK: u64 = 4096;

struct Entry {
    name: String,
    is_stored: bool,
    /// Where the entry begins in the file.
    at: u64,
}

/// Classifies an archive.
pub(super) async fn examine<R, F>(probe: &Probe<'_>, read: &mut R) -> Result<Found>
where
    R: FnMut(Range<u64>) -> F,
    F: Future<Output = Result<Bytes>>,
{
    let tail_at = probe.size.saturating_sub(TAIL);
    let tail = read(tail_at..probe.size).await?;
    let Some(place) = locate(&tail, tail_at) else {
        return Ok(Found::unknown("an archive without a readable directory"));
    };
    if place.range.end - place.range.start > MAX_DIRECTORY {
        return Ok(Found::unknown("an archive with too many names to look through"));
    }
    let directory = read(place.range.clone()).await?;
    let Some(entries) = entries(&directory, place.shift) else {
        return Ok(Found::unknown("an archive with a damaged directory"));
    };
    if let Some(found) = by_names(&entries) {
        return Ok(found);
    }
    let arrays: Vec<&Entry> = entries.iter().filter(|entry| is_array(&entry.name)).collect();
    let is_skops = entries.iter().any(|entry| entry.name == "schema.json");
    if arrays.is_empty() || (arrays.len() < entries.len() && !is_skops) {
        return Ok(Found::unknown(format!("an archive of {} files", entries.len())));
    }
    if arrays.len() > MAX_ARRAYS {
        return Ok(Found::unknown("an archive with too many arrays to look at"));
    }
    let mut worst = Found::safe(if is_skops {
        "skops: a description and plain arrays; its reader builds only types it is told to trust"
    } else {
        "NumPy arrays of plain values"
    });
    for entry in arrays {
        let found = peek(entry, probe.size, read).await?;
        if found.class > worst.class {
            worst = Found::new(found.class, format!("holds {:?}: {}", entry.name, found.reason));
        }
    }
    Ok(worst)
}

/// What names alone decide: pickles and code inside, or a format known by its members.
fn by_names(entries: &[Entry]) -> Option<Found> {
    let is = |end: &str| entries.iter().any(|entry| entry.name.ends_with(end));
    if is("/data.pkl") && is("/constants.pkl") {
        return Some(Found::opaque("TorchScript: a program and a pickle"));
    }
    if is("/data.pkl") {
        return Some(Found::opaque("a PyTorch file: its `data.pkl` is a pickle"));
    }
    let of = |class| entries.iter().find(|entry| name::class_inside(&entry.name) == Some(class));
    if let Some(entry) = of(Class::OpaqueExecutable) {
        return Some(Found::opaque(format!("an archive that holds {:?}", entry.name)));
    }
    of(Class::Code).map(|entry| Found::code(format!("an archive that holds {:?}", entry.name)))
}

fn is_array(path: &str) -> bool {
    name::suffix(path).is_some_and(|suffix| suffix == "npy")
}

/// Looks at the header of an array that is stored uncompressed.
async fn peek<R, F>(entry: &Entry, size: u64, read: &mut R) -> Result<Found>
where
    R: FnMut(Range<u64>) -> F,
    F: Future<Output = Result<Bytes>>,
{
    if !entry.is_stored {
        return Ok(Found::unknown("a compressed array, not looked into"));
    }
    let end = entry.at.saturating_add(PEEK).min(size);
    if entry.at >= end {
        return Ok(Found::unknown("an entry beyond the end of the archive"));
    }
    let bytes = read(entry.at..end).await?;
    let content = bytes.strip_prefix(LOCAL).and_then(|_| {
        let (name, extra) = (u16_at(&bytes, 26)?, u16_at(&bytes, 28)?);
        bytes.get(30 + usize::from(name) + usize::from(extra)..)
    });
    Ok(match content.map(npy::header) {
        Some(npy::Header::Decided(found)) => found,
        _ => Found::unknown("an array whose header could not be read"),
    })
}

struct Place {
    range: Range<u64>,
    /// How far entries lie behind where they say: the length of what was put before the archive.
    shift: u64,
}

/// Finds the directory from the file's last bytes, which begin at `tail_at`.
fn locate(tail: &[u8], tail_at: u64) -> Option<Place> {
    let end = tail.windows(END.len()).rposition(|window| window == END)?;
    let (mut length, mut offset) =
        (u64::from(u32_at(tail, end + 12)?), u64::from(u32_at(tail, end + 16)?));
    let mut directory_end = end;
    let has_locator = end >= 76 && tail.get(end - 20..end - 16) == Some(LOCATOR64);
    if has_locator && tail.get(end - 76..end - 72) == Some(END64) {
        directory_end = end - 76;
        length = u64_at(tail, directory_end + 40)?;
        offset = u64_at(tail, directory_end + 48)?;
    }
    let stop = tail_at + directory_end as u64;
    let start = stop.checked_sub(length)?;
    Some(Place { range: start..stop, shift: start.checked_sub(offset)? })
}

fn entries(mut directory: &[u8], shift: u64) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    while !directory.is_empty() {
        directory.strip_prefix(ENTRY)?;
        let (flags, method) = (u16_at(directory, 8)?, u16_at(directory, 10)?);
        let name_end = 46 + usize::from(u16_at(directory, 28)?);
        let extra_end = name_end + usize::from(u16_at(directory, 30)?);
        let end = extra_end + usize::from(u16_at(directory, 32)?);
        let name = String::from_utf8_lossy(directory.get(46..name_end)?).into_owned();
        let offset = entry_offset(directory, directory.get(name_end..extra_end)?)?;
        let is_encrypted = flags & 1 == 1;
        entries.push(Entry {
            name,
            is_stored: method == 0 && !is_encrypted,
            at: offset.checked_add(shift)?,
        });
        directory = directory.get(end..)?;
    }
    Some(entries)
}

/// Where an entry begins: in its record, or beyond 4 GiB in the extra field for 64-bit values,
/// which has only those that did not fit, in a fixed order.
fn entry_offset(record: &[u8], mut extra: &[u8]) -> Option<u64> {
    const FULL: u32 = u32::MAX;
    let offset = u32_at(record, 42)?;
    if offset != FULL {
        return Some(u64::from(offset));
    }
    let before = [20, 24].iter().filter(|at| u32_at(record, **at) == Some(FULL)).count();
    loop {
        let (id, length) = (u16_at(extra, 0)?, usize::from(u16_at(extra, 2)?));
        let body = extra.get(4..4 + length)?;
        if id == 1 {
            return u64_at(body, before * 8);
        }
        extra = extra.get(4 + length..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|chunk| u16::from_le_bytes(*chunk))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|chunk| u32::from_le_bytes(*chunk))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|chunk| u64::from_le_bytes(*chunk))
}
