//! Plaintext in, sealed stream out, a segment at a time.

use aws_lc_rs::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};
use aws_lc_rs::rand;
use bytes::Bytes;
use falaj_base::{Error, Result, code};

use super::key::DataKey;
use super::layout::{HEADER_LEN, PREFIX_LEN, SALT_LEN, SEGMENT_LEN, TAG_LEN};

/// The nonce of one segment. The last flag is what makes a cut stream fail: the segment that is
/// now at the end was not sealed as the last.
pub(super) fn nonce(prefix: [u8; PREFIX_LEN], segment: u32, last: bool) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    let (head, tail) = bytes.split_at_mut(PREFIX_LEN);
    head.copy_from_slice(&prefix);
    tail[..4].copy_from_slice(&segment.to_be_bytes());
    tail[4] = u8::from(last);
    Nonce::assume_unique_for_key(bytes)
}

/// Seals one stream. Every sealer has its own random salt, so two streams never share a nonce.
#[derive(Debug)]
pub struct Sealer {
    key: LessSafeKey,
    header: [u8; HEADER_LEN],
    /// The segment being filled; for the first one it begins with the header.
    segment: Vec<u8>,
    count: u32,
}

impl Sealer {
    /// Begins a stream that will open only under the same key and associated data.
    pub fn new(key: &DataKey, associated_data: &[u8]) -> Result<Self> {
        let mut random = [0; SALT_LEN + PREFIX_LEN];
        rand::fill(&mut random).map_err(|_| Error::internal("no randomness available"))?;
        Self::with_random(key, associated_data, &random)
    }

    pub(super) fn with_random(
        key: &DataKey,
        associated_data: &[u8],
        random: &[u8; SALT_LEN + PREFIX_LEN],
    ) -> Result<Self> {
        let mut header = [0; HEADER_LEN];
        header[0] = u8::try_from(HEADER_LEN).unwrap_or(u8::MAX);
        header[1..].copy_from_slice(random);
        let mut segment = Vec::with_capacity(SEGMENT_LEN);
        segment.extend_from_slice(&header);
        Ok(Self {
            key: key.cipher(&random[..SALT_LEN], associated_data)?,
            header,
            segment,
            count: 0,
        })
    }

    /// What the stream begins with: enough, with the key, to open any segment on its own.
    #[must_use]
    pub fn header(&self) -> [u8; HEADER_LEN] {
        self.header
    }

    /// Takes more plaintext and appends to `out` the segments that are now complete.
    pub fn push(&mut self, mut plaintext: &[u8], out: &mut Vec<Bytes>) -> Result<()> {
        while !plaintext.is_empty() {
            let room = SEGMENT_LEN - TAG_LEN - self.segment.len();
            // A full segment waits here until it is known not to be the last.
            if room == 0 {
                out.push(self.close_segment(false)?);
                continue;
            }
            let (now, later) = plaintext.split_at(room.min(plaintext.len()));
            self.segment.extend_from_slice(now);
            plaintext = later;
        }
        Ok(())
    }

    /// Ends the stream; returns its last segment.
    pub fn finish(mut self) -> Result<Bytes> {
        self.close_segment(true)
    }

    fn close_segment(&mut self, last: bool) -> Result<Bytes> {
        let next = if last { Vec::new() } else { Vec::with_capacity(SEGMENT_LEN) };
        let mut segment = std::mem::replace(&mut self.segment, next);
        let start = if self.count == 0 { HEADER_LEN } else { 0 };
        let tag = self
            .key
            .seal_in_place_separate_tag(
                nonce(self.prefix(), self.count, last),
                Aad::empty(),
                &mut segment[start..],
            )
            .map_err(|_| Error::internal("AES-256-GCM failed to seal"))?;
        segment.extend_from_slice(tag.as_ref());
        if !last {
            self.count = self.count.checked_add(1).ok_or_else(|| {
                Error::new(&code::TOO_LARGE, "a sealed stream has at most 2^32 segments")
            })?;
        }
        Ok(segment.into())
    }

    fn prefix(&self) -> [u8; PREFIX_LEN] {
        let mut prefix = [0; PREFIX_LEN];
        prefix.copy_from_slice(&self.header[1 + SALT_LEN..]);
        prefix
    }
}
