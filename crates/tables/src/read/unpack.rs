//! Pages whose compression the Parquet library undoes to whatever end: undone here first, into nothing,
//! so that one that unpacks to more than it says is refused in bounded memory.
//!
//! Zstd, snappy and plain LZ4 are undone into the room that the page's header asks for, which was checked
//! already; these are not looked at here.

use std::io::{self, Read};

use parquet::basic::Compression;

/// The first bits of a Brotli stream with windows that the format does not have: up to a gigabyte of
/// memory, taken before anything comes out.
const LARGE_WINDOW: u8 = 0x11;

/// Whether pages so compressed can be read.
pub(super) fn is_known(compression: Compression) -> bool {
    !matches!(compression, Compression::LZO)
}

/// Whether pages so compressed are looked into before the library is given them.
pub(super) fn is_open_ended(compression: Compression) -> bool {
    matches!(compression, Compression::GZIP(_) | Compression::BROTLI(_) | Compression::LZ4)
}

/// What becomes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unpacked {
    Fits,
    /// It unpacks to more than it may.
    More,
    /// It is not what it is said to be.
    Not,
}

/// Whether what is packed unpacks to no more than so many bytes.
pub(super) fn looked_into(compression: Compression, packed: &[u8], most: usize) -> Unpacked {
    if most == 0 {
        // Nothing is unpacked where nothing is to come.
        return Unpacked::Fits;
    }
    match compression {
        Compression::GZIP(_) => drained(flate2::read::MultiGzDecoder::new(packed), most),
        Compression::BROTLI(_) => {
            if packed.first().is_some_and(|first| first & 0x7f == LARGE_WINDOW) {
                return Unpacked::More;
            }
            drained(brotli::Decompressor::new(packed, 4096), most)
        }
        // Hadoop's frames and plain blocks are bounded; the frames of LZ4 itself, which some wrote in
        // their place, are not. What is none of those frames is read as one of the others.
        Compression::LZ4 => match drained(lz4_flex::frame::FrameDecoder::new(packed), most) {
            Unpacked::Not => Unpacked::Fits,
            found => found,
        },
        _ => Unpacked::Fits,
    }
}

/// Counts the bytes that come, to one more than is allowed.
fn drained(from: impl Read, most: usize) -> Unpacked {
    let mut from = from.take(most as u64 + 1);
    let mut sink = Counted(0);
    let read = io::copy(&mut from, &mut sink);
    // What came before an error counts as well.
    match read {
        _ if sink.0 > most as u64 => Unpacked::More,
        Ok(_) => Unpacked::Fits,
        Err(_) => Unpacked::Not,
    }
}

struct Counted(u64);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_unpacks_to_more_than_it_says_is_refused() {
        let zeros = vec![0; 16 << 20];
        let gzip = {
            let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            to.write_all(&zeros).unwrap();
            to.finish().unwrap()
        };
        let lz4 = {
            let mut to = lz4_flex::frame::FrameEncoder::new(Vec::new());
            to.write_all(&zeros).unwrap();
            to.finish().unwrap()
        };
        let mut packed = Vec::new();
        brotli::BrotliCompress(
            &mut &zeros[..],
            &mut packed,
            &brotli::enc::BrotliEncoderParams { quality: 1, ..Default::default() },
        )
        .unwrap();
        for (compression, packed) in [
            (Compression::GZIP(parquet::basic::GzipLevel::default()), gzip),
            (Compression::BROTLI(parquet::basic::BrotliLevel::default()), packed),
            (Compression::LZ4, lz4),
        ] {
            assert!(is_open_ended(compression));
            assert!(packed.len() < 1 << 20, "{compression}");
            let into = |packed: &[u8], most| looked_into(compression, packed, most);
            assert_eq!(into(&packed, zeros.len()), Unpacked::Fits, "{compression}");
            assert_eq!(into(&packed, zeros.len() - 1), Unpacked::More, "{compression}");
            assert_eq!(into(&packed, 10), Unpacked::More, "{compression}");
            assert_eq!(into(b"no such thing", 0), Unpacked::Fits, "{compression}");
            // Other things than frames of LZ4 are called LZ4 as well.
            let not = if compression == Compression::LZ4 { Unpacked::Fits } else { Unpacked::Not };
            assert_eq!(into(b"no such thing", 10), not, "{compression}");
        }
        let brotli = Compression::BROTLI(parquet::basic::BrotliLevel::default());
        assert_eq!(looked_into(brotli, &[0x11, 0x1e, 0, 0], 1 << 30), Unpacked::More);
    }
}
