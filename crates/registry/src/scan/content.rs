//! What a file's first bytes say it is.

use super::{Found, Probe, pickle, protobuf};

/// What the head decides, or who decides further.
#[derive(Debug)]
pub(super) enum Hint {
    Known(Found),
    /// An archive: its directory decides.
    Zip,
    /// A `NumPy` array: its header decides.
    Npy,
    /// No binary format that is known here; it may be text.
    None,
}

/// Where HDF5 allows its signature: at the start, or after a block of the user's own.
const HDF5_OFFSETS: [usize; 4] = [0, 512, 1024, 2048];

/// Formats whose content is code, known by their first bytes.
const CODE: &[(&[u8], &str)] = &[
    (b"\x7fELF", "a Linux program or library (ELF)"),
    (b"MZ", "a Windows program or library"),
    (b"\xfe\xed\xfa\xce", "a macOS program or library (Mach-O)"),
    (b"\xfe\xed\xfa\xcf", "a macOS program or library (Mach-O)"),
    (b"\xce\xfa\xed\xfe", "a macOS program or library (Mach-O)"),
    (b"\xcf\xfa\xed\xfe", "a macOS program or library (Mach-O)"),
    (b"\xca\xfe\xba\xbe", "a Java class or a macOS program"),
    (b"\0asm", "a WebAssembly module"),
    (b"BC\xc0\xde", "LLVM bitcode"),
    (b"!<arch>\n", "a static library"),
    (b"#!", "a script: it begins with `#!`"),
];

/// Formats that cannot carry code, known by their first bytes.
const SAFE: &[(&[u8], &str)] = &[
    (b"PAR1", "Parquet"),
    (b"ARROW1\0\0", "an Arrow file"),
    (b"FEA1", "a Feather file"),
    (b"Obj\x01", "Avro"),
    (b"ORC", "ORC"),
    (b"GGUF", "GGUF"),
    (b"CBM1", "a CatBoost model"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF87a", "a GIF image"),
    (b"GIF89a", "a GIF image"),
    (b"crc\0", "a Hadoop checksum file"),
];

/// Containers that are not looked into.
const PACKED: &[(&[u8], &str)] = &[
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip"),
    (b"Rar!", "RAR"),
];

pub(super) fn recognise(probe: &Probe<'_>) -> Hint {
    let head = probe.head;
    if probe.size == 0 {
        return Hint::Known(Found::safe("empty"));
    }
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        return Hint::Zip;
    }
    if head.starts_with(b"\x93NUMPY") {
        return Hint::Npy;
    }
    if HDF5_OFFSETS
        .iter()
        .any(|&at| head.get(at..).is_some_and(|rest| rest.starts_with(b"\x89HDF\r\n\x1a\n")))
    {
        let why = "an HDF5 file; a Keras model in it may hold Lambda code";
        return Hint::Known(Found::opaque(why));
    }
    if head.starts_with(b"RDX") || head.starts_with(b"X\n\0\0\0") {
        return Hint::Known(Found::opaque("an R object, which runs code when read"));
    }
    if let Some(what) = prefixed(head, CODE) {
        return Hint::Known(Found::code(what));
    }
    // Before every format below: what a pickle reader would run is a pickle, whatever else it is.
    if let Some(what) = pickle::recognise(head, probe.size) {
        return Hint::Known(Found::opaque(what));
    }
    if let Some(what) = prefixed(head, SAFE).or_else(|| structured(probe)) {
        return Hint::Known(Found::safe(what));
    }
    if let Some(what) = prefixed(head, PACKED) {
        return Hint::Known(Found::unknown(format!("packed with {what}, not looked into")));
    }
    if head.get(257..262) == Some(b"ustar") {
        return Hint::Known(Found::unknown("a tar archive, not looked into"));
    }
    Hint::None
}

fn prefixed(head: &[u8], table: &[(&[u8], &'static str)]) -> Option<&'static str> {
    table.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, what)| *what)
}

/// Safe formats that are known by more than a prefix.
fn structured(probe: &Probe<'_>) -> Option<&'static str> {
    let head = probe.head;
    if is_safetensors(probe) {
        return Some("safetensors");
    }
    if head.get(4..8) == Some(b"TFL3") {
        return Some("a TensorFlow Lite model");
    }
    if head.starts_with(b"RIFF") && matches!(head.get(8..12), Some(b"WEBP" | b"WAVE")) {
        return Some("a WebP image or WAVE sound");
    }
    // XGBoost: an object whose first key's length is a big-endian int64 marked `L`.
    if head.starts_with(b"{L\0\0\0\0\0\0\0") {
        return Some("UBJSON");
    }
    protobuf::is_onnx(probe).then_some("an ONNX model")
}

/// Eight bytes with the length of a JSON object, and that object: it must end inside the file.
fn is_safetensors(probe: &Probe<'_>) -> bool {
    let Some((length, rest)) = probe.head.split_first_chunk::<8>() else { return false };
    let length = u64::from_le_bytes(*length);
    let Some(json) = rest.get(..usize::try_from(length).unwrap_or(usize::MAX).min(rest.len()))
    else {
        return false;
    };
    length >= 2
        && length.checked_add(8).is_some_and(|end| end <= probe.size)
        && json.starts_with(b"{")
        && super::text::is_plain(json, (json.len() as u64) < length)
}
