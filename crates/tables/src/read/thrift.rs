//! Walking through Thrift's compact encoding without believing anything in it.
//!
//! Every element takes at least one byte, so that a walk is never longer than its bytes, and lists
//! that claim more than there is end it.
//!
//! Must hold: the Parquet library, which reads the same bytes later, finds the same fields in them. It
//! takes the last of a field that comes twice, whatever type it says, and passes over booleans in lists
//! as if they took no room. No writer does any of that: whoever does is refused.

use falaj_base::{Error, Result};

/// How deep structures may nest; Parquet's own nest five deep.
const MAX_DEPTH: usize = 32;

/// Types of values, as the encoding numbers them.
pub(super) mod kind {
    pub(crate) const TRUE: u8 = 1;
    pub(crate) const FALSE: u8 = 2;
    pub(crate) const BYTE: u8 = 3;
    pub(crate) const I16: u8 = 4;
    pub(crate) const I32: u8 = 5;
    pub(crate) const I64: u8 = 6;
    pub(crate) const DOUBLE: u8 = 7;
    pub(crate) const BINARY: u8 = 8;
    pub(crate) const LIST: u8 = 9;
    pub(crate) const SET: u8 = 10;
    pub(crate) const MAP: u8 = 11;
    pub(crate) const STRUCT: u8 = 12;
    pub(crate) const UUID: u8 = 13;
}

#[derive(Debug)]
pub(super) struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Why a walk ended early.
#[derive(Debug)]
pub(super) enum Stop {
    /// More bytes are needed.
    Short,
    Wrong,
}

impl From<Stop> for Error {
    fn from(_: Stop) -> Self {
        Self::invalid("file", "a description that does not add up", "a Parquet file")
    }
}

type Walked<T> = Result<T, Stop>;

/// Refuses a field that is known to be of another type: `types` are those of the fields from 1 on.
pub(super) fn expect(types: &[u8], field: i64, type_of: u8) -> Walked<()> {
    let place = usize::try_from(field - 1).ok();
    let wanted = place.and_then(|place| types.get(place));
    let type_of = if type_of == kind::FALSE { kind::TRUE } else { type_of };
    if wanted.is_some_and(|wanted| *wanted != type_of) { Err(Stop::Wrong) } else { Ok(()) }
}

impl<'a> Walk<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes were walked through.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    fn byte(&mut self) -> Walked<u8> {
        let byte = *self.bytes.get(self.at).ok_or(Stop::Short)?;
        self.at += 1;
        Ok(byte)
    }

    fn pass(&mut self, count: usize) -> Walked<()> {
        let end = self.at.checked_add(count).ok_or(Stop::Wrong)?;
        if end > self.bytes.len() {
            return Err(Stop::Short);
        }
        self.at = end;
        Ok(())
    }

    fn varint(&mut self) -> Walked<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Stop::Wrong)
    }

    /// A signed number.
    pub(super) fn number(&mut self) -> Walked<i64> {
        let bits = self.varint()?;
        Ok((bits >> 1).cast_signed() ^ -((bits & 1).cast_signed()))
    }

    /// A signed number of four bytes: the library cuts larger ones.
    pub(super) fn int(&mut self) -> Walked<i64> {
        let number = self.number()?;
        i32::try_from(number).map(i64::from).map_err(|_| Stop::Wrong)
    }

    /// Calls `visit` with the number and the type of each field of a structure, in rising order. It
    /// returns whether it read the value; if not, the value is passed over.
    pub(super) fn fields(
        &mut self,
        depth: usize,
        mut visit: impl FnMut(&mut Self, i64, u8) -> Walked<bool>,
    ) -> Walked<()> {
        if depth > MAX_DEPTH {
            return Err(Stop::Wrong);
        }
        let mut last = 0_i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            let (step, kind) = (i64::from(head >> 4), head & 0x0f);
            let next = if step == 0 { self.number()? } else { last + step };
            if next <= last || next > i64::from(i16::MAX) {
                return Err(Stop::Wrong);
            }
            last = next;
            if !visit(self, last, kind)? {
                self.skip(kind, depth + 1)?;
            }
        }
    }

    /// The type and the number of elements of a list.
    pub(super) fn list(&mut self) -> Walked<(u8, u64)> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        // Fewer bytes than elements: cut, or a lie.
        if count > (self.bytes.len() - self.at) as u64 {
            return Err(Stop::Short);
        }
        Ok((head & 0x0f, count))
    }

    /// Passes over an element of a list or a map.
    fn skip_element(&mut self, kind: u8, depth: usize) -> Walked<()> {
        if matches!(kind, kind::TRUE | kind::FALSE) {
            return Err(Stop::Wrong);
        }
        self.skip(kind, depth)
    }

    /// Passes over a value.
    pub(super) fn skip(&mut self, kind: u8, depth: usize) -> Walked<()> {
        if depth > MAX_DEPTH {
            return Err(Stop::Wrong);
        }
        match kind {
            kind::TRUE | kind::FALSE => Ok(()),
            kind::BYTE => self.pass(1),
            kind::I16 | kind::I32 | kind::I64 => self.varint().map(|_| ()),
            kind::DOUBLE => self.pass(8),
            kind::UUID => self.pass(16),
            kind::BINARY => {
                let length = self.varint()?;
                self.pass(usize::try_from(length).map_err(|_| Stop::Wrong)?)
            }
            kind::LIST | kind::SET => {
                let (kind, count) = self.list()?;
                for _ in 0..count {
                    self.skip_element(kind, depth + 1)?;
                }
                Ok(())
            }
            kind::MAP => {
                let count = self.varint()?;
                if count == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                for _ in 0..count {
                    self.skip_element(kinds >> 4, depth + 1)?;
                    self.skip_element(kinds & 0x0f, depth + 1)?;
                }
                Ok(())
            }
            kind::STRUCT => self.fields(depth, |_, _, _| Ok(false)),
            _ => Err(Stop::Wrong),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_claims_too_much_ends_the_walk() {
        for (bytes, kind) in [
            // A list of two billion structures in two bytes.
            (&[0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0x00][..], kind::LIST),
            // Text longer than the file.
            (&[0xff, 0xff, 0x7f, 0x61][..], kind::BINARY),
            (&[0x80; 12][..], kind::I64),
            (&[0xff, 0x7f, 0x11][..], kind::MAP),
            (&[0x1c; 100][..], kind::STRUCT),
            (&[][..], kind::DOUBLE),
            (&[0][..], 15),
        ] {
            assert!(Walk::new(bytes).skip(kind, 0).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn what_others_read_differently_ends_the_walk() {
        for (bytes, kind) in [
            // A field twice, one before another, one beyond what the library counts to.
            (&[0x15, 0x02, 0x05, 0x02, 0x02, 0x00][..], kind::STRUCT),
            (&[0x25, 0x02, 0x05, 0x02, 0x02, 0x00][..], kind::STRUCT),
            (&[0x05, 0x84, 0x80, 0x08, 0x02, 0x00][..], kind::STRUCT),
            (&[0x05, 0x00, 0x02, 0x00][..], kind::STRUCT),
            // Booleans in a list, a set and a map.
            (&[0x11, 0x01][..], kind::LIST),
            (&[0x12, 0x01][..], kind::SET),
            (&[0x01, 0x51, 0x02, 0x01][..], kind::MAP),
        ] {
            assert!(matches!(Walk::new(bytes).skip(kind, 0), Err(Stop::Wrong)), "{bytes:?}");
        }
        assert!(Walk::new(&[0x15, 0x02, 0x05, 0x04, 0x02, 0x00]).skip(kind::STRUCT, 0).is_ok());
        // Four bytes and a bit: the library would see nothing but the bit.
        assert!(Walk::new(&[0x82, 0x80, 0x80, 0x80, 0x20]).int().is_err());
        assert_eq!(Walk::new(&[0x02]).int().unwrap(), 1);
    }

    #[test]
    fn numbers_have_their_sign() {
        for (bytes, number) in [(&[0_u8][..], 0), (&[1], -1), (&[2], 1), (&[0x80, 0x02], 128)] {
            assert_eq!(Walk::new(bytes).number().unwrap(), number);
        }
    }
}
