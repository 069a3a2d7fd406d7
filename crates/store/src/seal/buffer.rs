//! Room for bytes that is used again and again.

use std::ops::Deref;

use bytes::Bytes;

/// Bytes that are appended to. Unlike a `Vec` it does not wipe room that it has had before: at the
/// speed of AES that is time that shows.
#[derive(Debug, Default)]
pub struct Buffer {
    room: Vec<u8>,
    len: usize,
}

impl Buffer {
    pub fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.grow(bytes.len()).copy_from_slice(bytes);
    }

    /// Appends `len` bytes, whatever they are, to be overwritten.
    pub fn grow(&mut self, len: usize) -> &mut [u8] {
        let (start, end) = (self.len, self.len + len);
        if self.room.len() < end {
            self.room.resize(end, 0);
        }
        self.len = end;
        &mut self.room[start..end]
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.room[..self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Buffer> for Bytes {
    fn from(mut buffer: Buffer) -> Self {
        buffer.room.truncate(buffer.len);
        buffer.room.into()
    }
}
