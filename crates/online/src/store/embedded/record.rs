//! A row with its key, or a key that has none any more, as bytes in a file.
//!
//! ```text
//! length of the row   4 bytes; all bits set if there is none
//! length of the key   2 bytes
//! zero                2 bytes
//! key, row            as they are
//! zeros               up to a multiple of 8
//! ```
//! Numbers are little end first.
//!
//! Must hold: bytes that are no record lead to none, never further. Frozen in a test: files outlive
//! the process.

use falaj_base::{Error, Result, code};

/// What stands before the key.
pub(super) const HEAD: usize = 8;
/// Records begin at multiples of this.
pub(super) const UNIT: usize = 8;
/// Stands for a row that is not there.
const GONE: u32 = u32::MAX;

/// A key, and its row if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) key: &'a [u8],
    pub(super) row: Option<&'a [u8]>,
}

/// The lengths that stand in a head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    pub(super) key: usize,
    pub(super) row: Option<usize>,
}

impl Lengths {
    pub(super) fn read(head: [u8; HEAD]) -> Self {
        let head = u64::from_le_bytes(head);
        let row = u32::try_from(head & 0xffff_ffff).unwrap_or(GONE);
        let key = usize::try_from((head >> 32) & 0xffff).unwrap_or(usize::MAX);
        Self { key, row: (row != GONE).then_some(row as usize) }
    }

    /// How much of a file the record takes.
    pub(super) fn whole(self) -> usize {
        (HEAD + self.key + self.row.unwrap_or(0)).next_multiple_of(UNIT)
    }
}

impl<'a> Record<'a> {
    /// Writes the record behind what is there.
    pub(super) fn write(self, out: &mut Vec<u8>) -> Result<()> {
        let row = self.row.map_or(Ok(GONE), |row| u32::try_from(row.len()));
        let (Ok(row), Ok(key)) = (row, u16::try_from(self.key.len())) else {
            return Err(Error::new(&code::TOO_LARGE, "a row of features is over 4 GiB"));
        };
        let start = out.len();
        out.extend_from_slice(&row.to_le_bytes());
        out.extend_from_slice(&key.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.row.unwrap_or_default());
        let taken = out.len() - start;
        out.resize(start + taken.next_multiple_of(UNIT), 0);
        Ok(())
    }

    /// The record that begins here, and how much it takes.
    pub(super) fn read(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let lengths = Lengths::read(*bytes.first_chunk()?);
        let key = bytes.get(HEAD..HEAD + lengths.key)?;
        let at = HEAD + lengths.key;
        let row = match lengths.row {
            Some(length) => Some(bytes.get(at..at.checked_add(length)?)?),
            None => None,
        };
        let whole = lengths.whole();
        (bytes.len() >= whole).then_some((Self { key, row }, whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_what_they_were() {
        let mut bytes = Vec::new();
        Record { key: b"key", row: Some(b"value") }.write(&mut bytes).unwrap();
        Record { key: b"k", row: None }.write(&mut bytes).unwrap();
        let frozen = b"\x05\0\0\0\x03\0\0\0keyvalue\xff\xff\xff\xff\x01\0\0\0k\0\0\0\0\0\0\0";
        assert_eq!(bytes, frozen);
        let (first, taken) = Record::read(&bytes).unwrap();
        assert_eq!((first.key, first.row, taken), (&b"key"[..], Some(&b"value"[..]), 16));
        let (second, taken) = Record::read(&bytes[16..]).unwrap();
        assert_eq!((second.key, second.row, taken), (&b"k"[..], None, 16));
        for short in 0..16 {
            assert_eq!(Record::read(&bytes[..short]), None, "{short}");
        }
    }
}
