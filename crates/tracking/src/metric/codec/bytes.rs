//! Reading bytes that may be anything, and the variable-length integers of headers.

use falaj_base::Result;

use super::corrupt;

/// A 64-bit number takes at most this many groups of seven bits.
const LONGEST_VARINT: usize = 10;

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self.0.split_first().ok_or_else(|| corrupt("it ends early"))?;
        self.0 = rest;
        Ok(*first)
    }

    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or_else(|| corrupt("it ends early"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// A number in groups of seven bits, the lowest first.
    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64> {
        match self.0 {
            [byte @ ..0x80, rest @ ..] => {
                self.0 = rest;
                Ok(u64::from(*byte))
            }
            [low, high @ ..0x80, rest @ ..] => {
                self.0 = rest;
                Ok(u64::from(*low & 0x7f) | u64::from(*high) << 7)
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64> {
        let mut number = 0;
        for (at, &byte) in self.0.iter().take(LONGEST_VARINT).enumerate() {
            let group = u64::from(byte & 0x7f) << (7 * at);
            if at + 1 == LONGEST_VARINT && byte > 1 {
                break;
            }
            number |= group;
            if byte < 0x80 {
                self.0 = &self.0[at + 1..];
                return Ok(number);
            }
        }
        Err(corrupt("a number does not end"))
    }

    #[inline]
    pub(super) fn zigzag(&mut self) -> Result<i64> {
        let number = self.varint()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the low seven bits are what is wanted")]
pub(super) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Small numbers of either sign become small unsigned ones.
pub(super) fn put_zigzag(out: &mut Vec<u8>, number: i64) {
    put_varint(out, ((number << 1) ^ (number >> 63)).cast_unsigned());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back(number in any::<i64>(), shift in 0_u32..64) {
            let number = number >> shift;
            let mut out = Vec::new();
            put_varint(&mut out, number.cast_unsigned());
            put_zigzag(&mut out, number);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint().unwrap(), number.cast_unsigned());
            prop_assert_eq!(reader.zigzag().unwrap(), number);
            prop_assert!(reader.is_empty());
        }
    }

    #[test]
    fn a_number_that_does_not_end_is_refused() {
        for bytes in [&[0x80; 3][..], &[0xff; 10], &[0xff; 11], b""] {
            assert!(Reader::new(bytes).varint().is_err(), "{bytes:?}");
        }
        let largest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Reader::new(&largest).varint().unwrap(), u64::MAX);
    }
}
