//! How batches of records are compressed. What comes out is bounded, whatever went in.

use std::io::Read;

use bytes::{Buf, Bytes};

/// The widest look back of zstd that is followed: memory for it is taken before anything comes out.
const ZSTD_WINDOW_LOG: u32 = 25;

/// Why a batch was not taken out of its compression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// More comes out than may.
    TooLarge,
    /// It is not what it says, and why.
    Broken(String),
}

impl From<String> for Refused {
    fn from(why: String) -> Self {
        Self::Broken(why)
    }
}

/// Takes a batch's records out of their compression; else why not. Memory is taken for what comes out,
/// up to `most`, and not for what it is said to be.
pub(super) fn inflate(codec: i16, packed: Bytes, most: usize) -> Result<Bytes, Refused> {
    match codec {
        0 => Ok(packed),
        1 => read(flate2::read::MultiGzDecoder::new(packed.reader()), most),
        2 => snappy(packed, most),
        3 => read(lz4_flex::frame::FrameDecoder::new(packed.reader()), most),
        4 => {
            let mut decoder = zstd::stream::read::Decoder::new(packed.reader())
                .map_err(|error| error.to_string())?;
            decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(|error| error.to_string())?;
            read(decoder, most)
        }
        other => Err(format!("its compression ({other}) is not known").into()),
    }
}

fn read(from: impl Read, most: usize) -> Result<Bytes, Refused> {
    let mut out = Vec::new();
    let mut from = from.take(most as u64 + 1);
    from.read_to_end(&mut out).map_err(|error| format!("it cannot be unpacked: {error}"))?;
    within(out.len(), most)?;
    Ok(out.into())
}

fn within(size: usize, most: usize) -> Result<(), Refused> {
    if size > most { Err(Refused::TooLarge) } else { Ok(()) }
}

/// What Java's library writes before its blocks.
const XERIAL: &[u8] = b"\x82SNAPPY\0";

/// One block, or as Java's library writes it: a head, and blocks with their lengths.
fn snappy(mut packed: Bytes, most: usize) -> Result<Bytes, Refused> {
    if !packed.starts_with(XERIAL) {
        return block(&packed, most).map(Bytes::from);
    }
    let short = || "it cannot be unpacked: a block is cut short".to_owned();
    // The mark and two versions.
    if packed.len() < XERIAL.len() + 8 {
        return Err(short().into());
    }
    packed.advance(XERIAL.len() + 8);
    let mut out = Vec::new();
    while packed.has_remaining() {
        let length = packed.try_get_u32().map_err(|_| short())? as usize;
        if length > packed.len() {
            return Err(short().into());
        }
        out.extend_from_slice(&block(&packed.split_to(length), most - out.len())?);
    }
    Ok(out.into())
}

fn block(packed: &[u8], most: usize) -> Result<Vec<u8>, Refused> {
    let wrong = |error: snap::Error| format!("it cannot be unpacked: {error}");
    within(snap::raw::decompress_len(packed).map_err(wrong)?, most)?;
    Ok(snap::raw::Decoder::new().decompress_vec(packed).map_err(wrong)?)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn lz4(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn xerial(bytes: &[u8]) -> Vec<u8> {
        let mut out = [XERIAL, &1_u32.to_be_bytes(), &1_u32.to_be_bytes()].concat();
        for part in bytes.chunks(100) {
            let part = snap::raw::Encoder::new().compress_vec(part).unwrap();
            out.extend_from_slice(&u32::try_from(part.len()).unwrap().to_be_bytes());
            out.extend_from_slice(&part);
        }
        out
    }

    #[test]
    fn each_compression_is_undone_within_bounds() {
        let text = b"rides ".repeat(1000);
        let table = [
            (0, text.clone()),
            (1, gzip(&text)),
            (2, snap::raw::Encoder::new().compress_vec(&text).unwrap()),
            (2, xerial(&text)),
            (3, lz4(&text)),
            (4, zstd::encode_all(&text[..], 1).unwrap()),
        ];
        for (codec, packed) in table {
            let packed = Bytes::from(packed);
            assert_eq!(inflate(codec, packed.clone(), text.len()).unwrap(), text, "{codec}");
            if codec != 0 {
                inflate(codec, packed.clone(), text.len() - 1).unwrap_err();
                inflate(codec, packed.slice(..packed.len() / 2), 1 << 20).unwrap_err();
                inflate(codec, Bytes::from_static(b"no such thing"), 1 << 20).unwrap_err();
            }
        }
        inflate(7, Bytes::new(), 10).unwrap_err();
    }

    /// Less than a megabyte that unpacks to four gigabytes: told after a few.
    #[test]
    fn a_bomb_is_refused_in_bounded_memory() {
        let zeros = vec![0; 64 << 20];
        let table = [
            (1, gzip(&zeros)),
            (2, snap::raw::Encoder::new().compress_vec(&zeros[..1 << 20]).unwrap()),
            (3, lz4(&zeros)),
            (4, zstd::encode_all(&zeros[..], 1).unwrap()),
        ];
        for (codec, packed) in table {
            let bomb = match codec {
                // Blocks of Java's library, each with its length.
                2 => {
                    let length = u32::try_from(packed.len()).unwrap().to_be_bytes();
                    let block = [&length[..], &packed].concat();
                    [XERIAL, &[0; 8], &block.repeat(4096)].concat()
                }
                // One frame after the other is one stream.
                _ => packed.repeat(64),
            };
            let told = inflate(codec, bomb.into(), 1 << 20);
            assert_eq!(told, Err(Refused::TooLarge), "{codec}");
        }
    }
}
