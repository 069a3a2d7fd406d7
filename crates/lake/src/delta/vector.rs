//! Deletion vectors: sets of rows that are gone, in the log itself or in files beside the data.

use std::io::Cursor;

use falaj_base::{Error, Result};
use roaring::RoaringTreemap;

use super::action::Vector;
use crate::path::below;
use crate::place::Place;
use crate::snapshot::Evidence;

/// What the bytes of a set begin with.
const MAGIC: u32 = 1_681_511_377;
/// A set may take so many bytes.
const MOST: i64 = 64 << 20;

/// The rows that are gone, and the file that told them, if it was one.
pub(super) fn read(
    place: &dyn Place,
    table: &str,
    vector: &Vector,
    of: &str,
) -> Result<(RoaringTreemap, Option<Evidence>)> {
    let name = format!("the deletion vector of {of}");
    let refused = |value: &str, allowed: &str| Err(Error::invalid(&name, value, allowed));
    if !(0..=MOST).contains(&vector.size_in_bytes) {
        let value = format!("{} bytes", vector.size_in_bytes);
        return refused(&value, &format!("0 to {MOST} bytes"));
    }
    let told = &vector.path_or_inline_dv;
    let (bytes, evidence) = match vector.storage_type.as_str() {
        "i" => {
            let Some(bytes) = z85(told) else {
                return refused("something that is no Base85", "Base85 of a set of rows");
            };
            (bytes, None)
        }
        "u" => {
            let Some(path) = file_of(told) else {
                return refused(told, "a prefix and the Base85 of an id");
            };
            let path = below(table, &path, &name)?;
            let Some(file) = place.open(&path)? else {
                return refused(&place.shown(&path), "a file that is there");
            };
            let offset = u64::try_from(vector.offset.unwrap_or(0)).unwrap_or(u64::MAX);
            let size = vector.size_in_bytes.unsigned_abs();
            // Its length before, and its checksum behind.
            let read = file.read(offset, size.saturating_add(8))?;
            let (length, rest) = read.split_at(4);
            let (data, sum) = rest.split_at(rest.len() - 4);
            let number =
                |bytes: &[u8]| bytes.iter().fold(0_u32, |all, byte| all << 8 | u32::from(*byte));
            if u64::from(number(length)) != size {
                return refused("a length of its own", "the length that the log tells");
            }
            let mut own = flate2::Crc::new();
            own.update(data);
            if own.sum() != number(sum) {
                return refused("damaged", "bytes that their checksum fits");
            }
            let evidence = Evidence { name: file.name().to_owned(), blake3: file.blake3()? };
            (data.to_vec(), Some(evidence))
        }
        "p" => return refused(told, "a file below the table: absolute paths are not followed"),
        other => return refused(other, "a storage type of u or i"),
    };
    let rows = set(&bytes).ok_or_else(|| {
        Error::invalid(&name, "something else", "a set of rows as Delta writes it")
    })?;
    if rows.len() != vector.cardinality.unsigned_abs() || vector.cardinality < 0 {
        let allowed = format!("{}, as the log tells", vector.cardinality);
        return Err(Error::invalid(&name, format!("{} rows", rows.len()), allowed));
    }
    Ok((rows, evidence))
}

fn set(bytes: &[u8]) -> Option<RoaringTreemap> {
    let (magic, rest) = bytes.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*magic) != MAGIC {
        return None;
    }
    let mut reader = Cursor::new(rest);
    let rows = RoaringTreemap::deserialize_from(&mut reader).ok()?;
    // In the log, Base85 may have rounded the length up to four.
    let left = rest.len() as u64 - reader.position();
    (left < 4).then_some(rows)
}

/// The path of the file that an id stands for, with what stands before it as a folder.
fn file_of(told: &str) -> Option<String> {
    let start = told.len().checked_sub(20).filter(|start| told.is_char_boundary(*start))?;
    let (prefix, id) = told.split_at(start);
    let id = z85(id).filter(|id| id.len() == 16)?;
    let hex = falaj_base::hex(&id);
    let id =
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    let name = format!("deletion_vector_{id}.bin");
    Some(if prefix.is_empty() { name } else { format!("{prefix}/{name}") })
}

const DIGITS: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/// Four bytes out of five digits.
fn z85(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(5) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 5 * 4);
    for digits in text.as_bytes().chunks_exact(5) {
        let mut number = 0_u64;
        for digit in digits {
            let value = DIGITS.iter().position(|known| known == digit)?;
            number = number * 85 + value as u64;
        }
        bytes.extend(u32::try_from(number).ok()?.to_be_bytes());
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_standard() {
        assert_eq!(z85("HelloWorld").unwrap(), [0x86, 0x4f, 0xd2, 0x6f, 0xb5, 0x59, 0xf7, 0x5b]);
        for bad in ["Hell", "Hell~", "#####", "é1234"] {
            assert!(z85(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn files_are_named_by_their_ids() {
        // The example of the protocol.
        assert_eq!(
            file_of("ab^-aqEH.-t@S}K{vb[*k^").unwrap(),
            "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
        );
        assert_eq!(file_of("short"), None);
        assert!(below("t", &file_of("../^-aqEH.-t@S}K{vb[*k^").unwrap(), "x").is_err());
    }

    #[test]
    fn a_set_is_what_it_says_or_nothing() {
        let rows: RoaringTreemap = [3, 4, 7, 11, 18, 29].into_iter().collect();
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        rows.serialize_into(&mut bytes).unwrap();
        assert_eq!(set(&bytes), Some(rows));
        for cut in 0..bytes.len() {
            assert_eq!(set(&bytes[..cut]), None, "{cut}");
        }
        let mut wrong = bytes.clone();
        wrong[0] ^= 1;
        assert_eq!(set(&wrong), None);
        // Two thousand million sets in eight bytes.
        let mut lies = MAGIC.to_le_bytes().to_vec();
        lies.extend(u64::MAX.to_le_bytes());
        assert_eq!(set(&lies), None);
        bytes.extend([0; 4]);
        assert_eq!(set(&bytes), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_set_or_none(
            rows in proptest::collection::vec(0_u64..1 << 34, 0..200),
            changes in proptest::collection::vec(
                (proptest::prelude::any::<proptest::sample::Index>(), proptest::num::u8::ANY), 0..4),
            noise in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
        ) {
            let rows: RoaringTreemap = rows.into_iter().collect();
            let mut bytes = MAGIC.to_le_bytes().to_vec();
            rows.serialize_into(&mut bytes).unwrap();
            proptest::prop_assert_eq!(set(&bytes), Some(rows));
            let length = bytes.len();
            for (at, byte) in changes {
                bytes[at.index(length)] = byte;
            }
            // Whatever it is now, looking at it is fine.
            if let Some(found) = set(&bytes) {
                proptest::prop_assert!(found.iter().count() as u64 == found.len());
            }
            let mut other = MAGIC.to_le_bytes().to_vec();
            other.extend(noise);
            drop(set(&other));
        }
    }
}
