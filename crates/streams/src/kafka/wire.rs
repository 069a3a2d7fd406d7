//! Kafka's numbers, texts and lists as bytes. Whatever a length claims, no more is taken than there
//! is.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is cut short or has lengths that cannot be")]
pub(super) struct Malformed;

type Read<T> = Result<T, Malformed>;

/// Reads from the front.
#[derive(Clone, Debug)]
pub(super) struct Input(pub(super) Bytes);

impl Input {
    pub(super) fn left(&self) -> usize {
        self.0.len()
    }

    pub(super) fn take(&mut self, count: usize) -> Read<Bytes> {
        if count > self.0.len() {
            return Err(Malformed);
        }
        Ok(self.0.split_to(count))
    }

    pub(super) fn i8(&mut self) -> Read<i8> {
        self.0.try_get_i8().map_err(|_| Malformed)
    }

    pub(super) fn i16(&mut self) -> Read<i16> {
        self.0.try_get_i16().map_err(|_| Malformed)
    }

    pub(super) fn i32(&mut self) -> Read<i32> {
        self.0.try_get_i32().map_err(|_| Malformed)
    }

    pub(super) fn u32(&mut self) -> Read<u32> {
        self.0.try_get_u32().map_err(|_| Malformed)
    }

    pub(super) fn i64(&mut self) -> Read<i64> {
        self.0.try_get_i64().map_err(|_| Malformed)
    }

    /// A text that may be absent.
    pub(super) fn text(&mut self) -> Read<Option<String>> {
        let length = self.i16()?;
        if length == -1 {
            return Ok(None);
        }
        let bytes = self.take(usize::try_from(length).map_err(|_| Malformed)?)?;
        String::from_utf8(bytes.to_vec()).map(Some).map_err(|_| Malformed)
    }

    pub(super) fn bytes(&mut self) -> Read<Option<Bytes>> {
        let length = self.i32()?;
        if length == -1 {
            return Ok(None);
        }
        self.take(usize::try_from(length).map_err(|_| Malformed)?).map(Some)
    }

    /// Bytes, as many of them as came.
    pub(super) fn bytes_there(&mut self) -> Read<Bytes> {
        let length = self.i32()?;
        if length == -1 {
            return Ok(Bytes::new());
        }
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        self.take(length.min(self.left()))
    }

    /// A list, each item of which takes at least one byte.
    pub(super) fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let count = self.i32()?;
        if count == -1 {
            return Ok(Vec::new());
        }
        let count = usize::try_from(count).map_err(|_| Malformed)?;
        if count > self.left() {
            return Err(Malformed);
        }
        (0..count).map(|_| one(self)).collect()
    }

    /// A number of as many bytes as it needs, small ones of either sign in few.
    pub(super) fn varint(&mut self) -> Read<i64> {
        let mut value: u64 = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.0.try_get_u8().map_err(|_| Malformed)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
            }
        }
        Err(Malformed)
    }

    /// Bytes after their length, which may say that there are none.
    pub(super) fn varbytes(&mut self) -> Read<Option<Bytes>> {
        let length = self.varint()?;
        if length == -1 {
            return Ok(None);
        }
        self.take(usize::try_from(length).map_err(|_| Malformed)?).map(Some)
    }
}

/// Writes at the end.
#[derive(Debug, Default)]
pub(super) struct Output(pub(super) BytesMut);

impl Output {
    pub(super) fn i8(&mut self, value: i8) -> &mut Self {
        self.0.put_i8(value);
        self
    }

    pub(super) fn i16(&mut self, value: i16) -> &mut Self {
        self.0.put_i16(value);
        self
    }

    pub(super) fn i32(&mut self, value: i32) -> &mut Self {
        self.0.put_i32(value);
        self
    }

    pub(super) fn i64(&mut self, value: i64) -> &mut Self {
        self.0.put_i64(value);
        self
    }

    /// A text of ours: short, or cut.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        let length = i16::try_from(text.len()).unwrap_or(i16::MAX);
        self.0.put_i16(length);
        self.0.put_slice(&text.as_bytes()[..usize::from(length.unsigned_abs())]);
        self
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.put_i32(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        self.0.put_slice(bytes);
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As Kafka writes it.
    #[allow(clippy::cast_possible_truncation, reason = "seven bits")]
    fn varint(value: i64) -> Vec<u8> {
        let mut left = ((value << 1) ^ (value >> 63)).cast_unsigned();
        let mut bytes = Vec::new();
        while left >= 0x80 {
            bytes.push((left & 0x7f) as u8 | 0x80);
            left >>= 7;
        }
        bytes.push(left as u8);
        bytes
    }

    proptest! {
        #[test]
        fn numbers_come_back(value: i64) {
            let mut input = Input(varint(value).into());
            prop_assert_eq!(input.varint(), Ok(value));
            prop_assert_eq!(input.left(), 0);
        }

        #[test]
        fn anything_is_read_or_refused(bytes: Vec<u8>) {
            let input = Input(bytes.into());
            drop(input.clone().text());
            drop(input.clone().bytes());
            drop(input.clone().varbytes());
            drop(input.clone().list(Input::i64));
        }
    }

    #[test]
    fn lengths_are_not_believed() {
        let mut output = Output::default();
        output.i32(i32::MAX);
        assert_eq!(Input(output.0.clone().freeze()).bytes(), Err(Malformed));
        assert_eq!(Input(output.0.freeze()).list(Input::i8), Err(Malformed));
        assert_eq!(Input(Bytes::from_static(&[0xff; 11])).varint(), Err(Malformed));
    }
}
