//! Sealed stream in, plaintext out: in order, or any segment on its own.

use aws_lc_rs::aead::{Aad, LessSafeKey};
use falaj_base::Result;

use super::buffer::Buffer;
use super::key::DataKey;
use super::layout::{HEADER_LEN, PREFIX_LEN, SALT_LEN, SEGMENT_LEN, TAG_LEN};
use super::sealer::nonce;
use super::tampered;

/// Opens single segments of one stream, in any order.
#[derive(Debug)]
pub struct SegmentOpener {
    key: LessSafeKey,
    prefix: [u8; PREFIX_LEN],
}

impl SegmentOpener {
    /// `header` is what the stream begins with.
    pub fn new(key: &DataKey, associated_data: &[u8], header: &[u8]) -> Result<Self> {
        let header: &[u8; HEADER_LEN] = header.try_into().map_err(|_| tampered())?;
        if usize::from(header[0]) != HEADER_LEN {
            return Err(tampered());
        }
        let mut prefix = [0; PREFIX_LEN];
        prefix.copy_from_slice(&header[1 + SALT_LEN..]);
        Ok(Self { key: key.cipher(&header[1..=SALT_LEN], associated_data)?, prefix })
    }

    /// Opens segment `index` and appends its plaintext to `out`, which stays as it was if the
    /// segment is not authentic. Whether it is the last one must come from a length that is itself
    /// trusted, never from the bytes.
    pub fn open(&self, index: u64, last: bool, sealed: &[u8], out: &mut Buffer) -> Result<()> {
        let index = u32::try_from(index).map_err(|_| tampered())?;
        let length = sealed.len().checked_sub(TAG_LEN).ok_or_else(tampered)?;
        let (sealed, tag) = sealed.split_at(length);
        let start = out.len();
        let nonce = nonce(self.prefix, index, last);
        let opened =
            self.key.open_separate_gather(nonce, Aad::empty(), sealed, tag, out.grow(length));
        opened.map_err(|_| {
            out.truncate(start);
            tampered()
        })
    }
}

/// Opens a whole stream of unknown length, piece by piece as it arrives.
#[derive(Debug)]
pub struct Opener {
    key: DataKey,
    associated_data: Vec<u8>,
    /// Known once the header has arrived.
    segments: Option<SegmentOpener>,
    /// The segment being gathered; the first one begins with the header.
    segment: Vec<u8>,
    count: u64,
}

impl Opener {
    #[must_use]
    pub fn new(key: &DataKey, associated_data: &[u8]) -> Self {
        Self {
            key: key.clone(),
            associated_data: associated_data.to_vec(),
            segments: None,
            segment: Vec::with_capacity(SEGMENT_LEN),
            count: 0,
        }
    }

    /// Takes more of the sealed stream and appends to `out` the plaintext that is now certain.
    pub fn push(&mut self, mut sealed: &[u8], out: &mut Buffer) -> Result<()> {
        while !sealed.is_empty() {
            let room = SEGMENT_LEN - self.segment.len();
            // A full segment waits here until one more byte shows that it is not the last.
            if room == 0 {
                self.close_segment(false, out)?;
                continue;
            }
            let (now, later) = sealed.split_at(room.min(sealed.len()));
            self.segment.extend_from_slice(now);
            sealed = later;
        }
        Ok(())
    }

    /// Says that the stream has ended here; appends the last plaintext, or fails if the stream
    /// was cut.
    pub fn finish(mut self, out: &mut Buffer) -> Result<()> {
        self.close_segment(true, out)
    }

    fn close_segment(&mut self, last: bool, out: &mut Buffer) -> Result<()> {
        let start = if self.count == 0 { HEADER_LEN } else { 0 };
        let (header, sealed) = self.segment.split_at_checked(start).ok_or_else(tampered)?;
        let opener = match &mut self.segments {
            Some(opener) => opener,
            none => none.insert(SegmentOpener::new(&self.key, &self.associated_data, header)?),
        };
        opener.open(self.count, last, sealed, out)?;
        self.count += 1;
        self.segment.clear();
        Ok(())
    }
}
