//! Where a plaintext byte lies in the sealed stream. Pure arithmetic.

use std::ops::Range;

/// The stream begins with its own header: one length byte, the salt, the nonce prefix.
pub const HEADER_LEN: usize = 1 + SALT_LEN + PREFIX_LEN;
/// Sealed length of every segment but the last; the first one counts the header in.
pub const SEGMENT_LEN: usize = 64 * 1024;
/// What authentication adds to a segment.
pub const TAG_LEN: usize = 16;

pub(super) const SALT_LEN: usize = 32;
pub(super) const PREFIX_LEN: usize = 7;

/// Plaintext in a full segment, and in the first one, which shares its room with the header.
pub(super) const FULL: u64 = (SEGMENT_LEN - TAG_LEN) as u64;
pub(super) const FIRST: u64 = FULL - HEADER_LEN as u64;

/// The shape of one sealed stream, known from the length of its plaintext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    plaintext: u64,
}

impl Layout {
    /// The longest plaintext: the segment counter has 32 bits.
    pub const MAX_PLAINTEXT: u64 = FIRST + (u32::MAX as u64) * FULL;

    /// The layout for `plaintext` bytes; none if there are more than the format can count.
    #[must_use]
    pub const fn new(plaintext: u64) -> Option<Self> {
        if plaintext > Self::MAX_PLAINTEXT { None } else { Some(Self { plaintext }) }
    }

    /// How many segments there are; an empty plaintext has one, which proves that it is empty.
    #[must_use]
    pub const fn segments(&self) -> u64 {
        1 + self.plaintext.saturating_sub(FIRST).div_ceil(FULL)
    }

    /// The length of the sealed stream.
    #[must_use]
    pub const fn sealed_len(&self) -> u64 {
        HEADER_LEN as u64 + self.plaintext + self.segments() * TAG_LEN as u64
    }

    #[must_use]
    pub const fn is_last(&self, segment: u64) -> bool {
        segment + 1 == self.segments()
    }

    /// The segment that holds the plaintext byte at `offset`.
    #[must_use]
    pub const fn segment_for(&self, offset: u64) -> u64 {
        if offset < FIRST { 0 } else { 1 + (offset - FIRST) / FULL }
    }

    /// Where the segment's plaintext begins and ends.
    #[must_use]
    pub fn plaintext_range(&self, segment: u64) -> Range<u64> {
        let start = if segment == 0 { 0 } else { FIRST + (segment - 1) * FULL };
        let end = (FIRST + segment * FULL).min(self.plaintext);
        start.min(end)..end
    }

    /// Where the segment lies in the sealed stream, tag included. The first one starts after the
    /// header.
    #[must_use]
    pub fn sealed_range(&self, segment: u64) -> Range<u64> {
        let start = if segment == 0 { HEADER_LEN as u64 } else { segment * SEGMENT_LEN as u64 };
        let end = ((segment + 1) * SEGMENT_LEN as u64).min(self.sealed_len());
        start.min(end)..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_edges() {
        for (plaintext, segments, sealed) in [
            (0, 1, 56),
            (1, 1, 57),
            (FIRST, 1, SEGMENT_LEN as u64),
            (FIRST + 1, 2, SEGMENT_LEN as u64 + 17),
            (FIRST + FULL, 2, 2 * SEGMENT_LEN as u64),
            (FIRST + FULL + 1, 3, 2 * SEGMENT_LEN as u64 + 17),
            (Layout::MAX_PLAINTEXT, 1 << 32, 1 << 48),
        ] {
            let layout = Layout::new(plaintext).unwrap();
            assert_eq!(layout.segments(), segments, "segments of {plaintext}");
            assert_eq!(layout.sealed_len(), sealed, "sealed length of {plaintext}");
        }
        assert_eq!(Layout::new(Layout::MAX_PLAINTEXT + 1), None);
    }

    proptest! {
        #[test]
        fn every_byte_lies_in_the_segment_named_for_it(
            plaintext in 1..20 * FULL, pick in 0.0..1.0f64,
        ) {
            let layout = Layout::new(plaintext).unwrap();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
            let offset = ((plaintext as f64) * pick) as u64;
            let segment = layout.segment_for(offset);
            prop_assert!(layout.plaintext_range(segment).contains(&offset));
            let (plain, sealed) = (layout.plaintext_range(segment), layout.sealed_range(segment));
            prop_assert_eq!(plain.end - plain.start + TAG_LEN as u64, sealed.end - sealed.start);
        }

        #[test]
        fn segments_tile_the_stream(plaintext in 0..20 * FULL) {
            let layout = Layout::new(plaintext).unwrap();
            let (mut plain, mut sealed) = (0, HEADER_LEN as u64);
            for segment in 0..layout.segments() {
                prop_assert_eq!(layout.plaintext_range(segment).start, plain);
                prop_assert_eq!(layout.sealed_range(segment).start, sealed);
                plain = layout.plaintext_range(segment).end;
                sealed = layout.sealed_range(segment).end;
            }
            prop_assert_eq!(plain, plaintext);
            prop_assert_eq!(sealed, layout.sealed_len());
        }
    }
}
