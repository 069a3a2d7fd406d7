//! Numbers and bytes one after the other: small numbers take few bytes.

/// Seven bits at a time, the lowest first.
pub(super) fn put(out: &mut Vec<u8>, mut number: u128) {
    while number >= 0x80 {
        out.push(0x80 | u8::try_from(number & 0x7f).unwrap_or(0));
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap_or(0));
}

/// Numbers near zero take few bytes on both sides of it.
pub(super) fn put_signed(out: &mut Vec<u8>, number: i128) {
    put(out, ((number << 1) ^ (number >> 127)).cast_unsigned());
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u128);
    out.extend_from_slice(bytes);
}

/// What was written, from the front. Nothing if it is not there.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn number(&mut self) -> Option<u128> {
        let mut number = 0_u128;
        for shift in (0..128).step_by(7) {
            let byte = self.byte()?;
            number |= u128::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn signed(&mut self) -> Option<i128> {
        let number = self.number()?;
        Some((number >> 1).cast_signed() ^ -((number & 1).cast_signed()))
    }

    pub(super) fn length(&mut self) -> Option<usize> {
        // What follows takes at least a byte for each.
        self.number()?.try_into().ok().filter(|length| *length <= self.0.len())
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let numbers = [0, 1, -1, 63, 64, -65, i128::from(i64::MIN), i128::MAX, i128::MIN];
        let mut out = Vec::new();
        for number in numbers {
            put_signed(&mut out, number);
        }
        put_bytes(&mut out, b"abc");
        let mut reader = Reader(&out);
        for number in numbers {
            assert_eq!(reader.signed(), Some(number));
        }
        assert_eq!(reader.bytes(), Some(&b"abc"[..]));
        assert_eq!(reader.byte(), None);
    }
}
