//! How batches of records are compressed. What comes out is bounded, whatever went in.

use std::io::Read;

use bytes::{Buf, Bytes};

/// Takes a batch's records out of their compression; else why not.
pub(super) fn inflate(codec: i16, packed: Bytes, most: usize) -> Result<Bytes, String> {
    match codec {
        0 => Ok(packed),
        1 => read(flate2::read::MultiGzDecoder::new(packed.reader()), most),
        2 => snappy(packed, most),
        3 => read(lz4_flex::frame::FrameDecoder::new(packed.reader()), most),
        4 => {
            let decoder = zstd::stream::read::Decoder::new(packed.reader());
            read(decoder.map_err(|error| error.to_string())?, most)
        }
        other => Err(format!("its compression ({other}) is not known")),
    }
}

fn read(from: impl Read, most: usize) -> Result<Bytes, String> {
    let mut out = Vec::new();
    let mut from = from.take(most as u64 + 1);
    from.read_to_end(&mut out).map_err(|error| format!("it cannot be unpacked: {error}"))?;
    within(out.len(), most)?;
    Ok(out.into())
}

fn within(size: usize, most: usize) -> Result<(), String> {
    if size > most {
        return Err(format!("it takes more than {most} bytes once unpacked"));
    }
    Ok(())
}

/// What Java's library writes before its blocks.
const XERIAL: &[u8] = b"\x82SNAPPY\0";

/// One block, or as Java's library writes it: a head, and blocks with their lengths.
fn snappy(mut packed: Bytes, most: usize) -> Result<Bytes, String> {
    if !packed.starts_with(XERIAL) {
        return block(&packed, most).map(Bytes::from);
    }
    let short = || "it cannot be unpacked: a block is cut short".to_owned();
    // The mark and two versions.
    if packed.len() < XERIAL.len() + 8 {
        return Err(short());
    }
    packed.advance(XERIAL.len() + 8);
    let mut out = Vec::new();
    while packed.has_remaining() {
        let length = packed.try_get_u32().map_err(|_| short())? as usize;
        if length > packed.len() {
            return Err(short());
        }
        out.extend_from_slice(&block(&packed.split_to(length), most - out.len())?);
    }
    Ok(out.into())
}

fn block(packed: &[u8], most: usize) -> Result<Vec<u8>, String> {
    let wrong = |error: snap::Error| format!("it cannot be unpacked: {error}");
    within(snap::raw::decompress_len(packed).map_err(wrong)?, most)?;
    snap::raw::Decoder::new().decompress_vec(packed).map_err(wrong)
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
}
