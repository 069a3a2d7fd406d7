//! Plaintext in, sealed stream out, a segment at a time.

use aws_lc_rs::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};
use aws_lc_rs::rand;
use falaj_base::{Error, Result, code};

use super::buffer::Buffer;
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
    /// Plaintext that does not make a segment yet.
    pending: Vec<u8>,
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
        let key = key.cipher(&random[..SALT_LEN], associated_data)?;
        Ok(Self { key, header, pending: Vec::with_capacity(SEGMENT_LEN), count: 0 })
    }

    /// What the stream begins with: enough, with the key, to open any segment on its own.
    #[must_use]
    pub fn header(&self) -> [u8; HEADER_LEN] {
        self.header
    }

    /// Takes more plaintext and appends to `out` the segments that are now complete. A segment
    /// that lies in `plaintext` as a whole is sealed from there, without a copy.
    pub fn push(&mut self, mut plaintext: &[u8], out: &mut Buffer) -> Result<()> {
        // A full segment waits until one more byte shows that it is not the last.
        while self.pending.len() + plaintext.len() > self.room() {
            let (now, later) = plaintext.split_at(self.room() - self.pending.len());
            plaintext = later;
            if self.pending.is_empty() {
                self.seal(now, false, out)?;
                continue;
            }
            let mut segment = std::mem::take(&mut self.pending);
            segment.extend_from_slice(now);
            self.seal(&segment, false, out)?;
            segment.clear();
            self.pending = segment;
        }
        self.pending.extend_from_slice(plaintext);
        Ok(())
    }

    /// Ends the stream: appends its last segment to `out`.
    pub fn finish(mut self, out: &mut Buffer) -> Result<()> {
        let segment = std::mem::take(&mut self.pending);
        self.seal(&segment, true, out)
    }

    /// How much plaintext the current segment takes; the first one shares its room with the header.
    fn room(&self) -> usize {
        let header = if self.count == 0 { HEADER_LEN } else { 0 };
        SEGMENT_LEN - TAG_LEN - header
    }

    fn seal(&mut self, plaintext: &[u8], last: bool, out: &mut Buffer) -> Result<()> {
        if self.count == 0 {
            out.extend_from_slice(&self.header);
        }
        let (sealed, tag) = out.grow(plaintext.len() + TAG_LEN).split_at_mut(plaintext.len());
        let nonce = nonce(self.prefix(), self.count, last);
        self.key
            .seal_out_of_place_scatter(nonce, Aad::empty(), plaintext, sealed, &[], tag)
            .map_err(|_| Error::internal("AES-256-GCM failed to seal"))?;
        if !last {
            self.count = self.count.checked_add(1).ok_or_else(|| {
                Error::new(&code::TOO_LARGE, "a sealed stream has at most 2^32 segments")
            })?;
        }
        Ok(())
    }

    fn prefix(&self) -> [u8; PREFIX_LEN] {
        let mut prefix = [0; PREFIX_LEN];
        prefix.copy_from_slice(&self.header[1 + SALT_LEN..]);
        prefix
    }
}
