//! Arrays of `NumPy`: an array of Python objects is stored as a pickle, any other as numbers.

use std::ops::Range;

use bytes::Bytes;
use falaj_base::Result;

use super::{Found, Probe};

const MAGIC: &[u8] = b"\x93NUMPY";

/// `NumPy` itself refuses to read longer headers unless asked to trust them.
const MAX_HEADER: usize = 64 << 10;

/// What the header of an array says, or how many bytes of the file are needed to see all of it.
pub(super) enum Header {
    Decided(Found),
    Needs(usize),
}

/// Reads the header of a lone array.
pub(super) async fn examine<R, F>(probe: &Probe<'_>, read: &mut R) -> Result<Found>
where
    R: FnMut(Range<u64>) -> F,
    F: Future<Output = Result<Bytes>>,
{
    let needed = match header(probe.head) {
        Header::Decided(found) => return Ok(found),
        Header::Needs(needed) => needed as u64,
    };
    if needed > probe.size {
        return Ok(Found::unknown("a NumPy array that ends inside its header"));
    }
    Ok(match header(&read(0..needed).await?) {
        Header::Decided(found) => found,
        Header::Needs(_) => Found::unknown("a NumPy array whose header could not be read"),
    })
}

/// Decides from the first bytes of an array.
pub(super) fn header(bytes: &[u8]) -> Header {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Header::Decided(Found::unknown("not a NumPy array, although it should be"));
    };
    let (start, length) = match rest {
        [1, _, a, b, ..] => (10, usize::from(u16::from_le_bytes([*a, *b]))),
        [2 | 3, _, a, b, c, d, ..] => (12, u32::from_le_bytes([*a, *b, *c, *d]) as usize),
        _ => return Header::Decided(Found::unknown("a NumPy array of an unknown version")),
    };
    if length > MAX_HEADER {
        return Header::Decided(Found::unknown("a NumPy array with an oversized header"));
    }
    let Some(header) = bytes.get(start..start + length) else {
        return Header::Needs(start + length);
    };
    let header = String::from_utf8_lossy(header);
    if !header.contains("descr") {
        return Header::Decided(Found::unknown("a NumPy array without a description of its type"));
    }
    Header::Decided(if holds_objects(&header) {
        Found::opaque("a NumPy array of Python objects, which is a pickle")
    } else {
        Found::safe("a NumPy array of plain values")
    })
}

/// Whether a type named in the header is the one of objects: `O`, perhaps with a byte order before
/// it and a size after it. A field of that name reads the same; better one alarm too many.
fn holds_objects(header: &str) -> bool {
    header.split(['\'', '"']).skip(1).step_by(2).any(|quoted| {
        let kind = quoted.trim_start_matches(['|', '<', '>', '=']);
        kind.strip_prefix('O').is_some_and(|size| size.bytes().all(|byte| byte.is_ascii_digit()))
            || kind == "object"
    })
}
