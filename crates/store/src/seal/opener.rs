//! Sealed stream in, plaintext out: in order, or any segment on its own.

use aws_lc_rs::aead::{Aad, LessSafeKey};
use bytes::Bytes;
use falaj_base::Result;

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

    /// Opens segment `index` in place and returns its plaintext, the front of `sealed`. Whether
    /// it is the last one must come from a length that is itself trusted, never from the bytes.
    pub fn open<'s>(&self, index: u64, last: bool, sealed: &'s mut [u8]) -> Result<&'s mut [u8]> {
        let index = u32::try_from(index).map_err(|_| tampered())?;
        self.key
            .open_in_place(nonce(self.prefix, index, last), Aad::empty(), sealed)
            .map_err(|_| tampered())
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
    pub fn push(&mut self, mut sealed: &[u8], out: &mut Vec<Bytes>) -> Result<()> {
        while !sealed.is_empty() {
            let room = SEGMENT_LEN - self.segment.len();
            // A full segment waits here until one more byte shows that it is not the last.
            if room == 0 {
                out.push(self.close_segment(false)?);
                continue;
            }
            let (now, later) = sealed.split_at(room.min(sealed.len()));
            self.segment.extend_from_slice(now);
            sealed = later;
        }
        Ok(())
    }

    /// Says that the stream has ended here; returns the last plaintext, or fails if the stream
    /// was cut.
    pub fn finish(mut self) -> Result<Bytes> {
        self.close_segment(true)
    }

    fn close_segment(&mut self, last: bool) -> Result<Bytes> {
        let next = if last { Vec::new() } else { Vec::with_capacity(SEGMENT_LEN) };
        let mut segment = std::mem::replace(&mut self.segment, next);
        let start = if self.count == 0 { HEADER_LEN } else { 0 };
        let (header, sealed) = segment.split_at_mut_checked(start).ok_or_else(tampered)?;
        let opener = match &mut self.segments {
            Some(opener) => opener,
            none => none.insert(SegmentOpener::new(&self.key, &self.associated_data, header)?),
        };
        opener.open(self.count, last, sealed)?;
        self.count += 1;
        let end = segment.len() - TAG_LEN;
        Ok(Bytes::from(segment).slice(start..end))
    }
}
