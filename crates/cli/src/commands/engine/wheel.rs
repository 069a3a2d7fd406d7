//! A Python package as a file: a zip archive whose `RECORD` lists the SHA-256 of everything in it.
//!
//! What must hold: nothing is taken out whose bytes are not as many and not those that the package
//! lists, and no name of the archive becomes a path of ours.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context as Digest, SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flate2::read::DeflateDecoder;

use super::install::mismatch;
use crate::exit::{Failure, Result, file_error};

/// The end of an archive: its record, and the longest comment after it.
const TAIL: u64 = 22 + 65_535;
const END: &[u8] = b"PK\x05\x06";
const ENTRY: &[u8] = b"PK\x01\x02";
const LOCAL: &[u8] = b"PK\x03\x04";

/// The largest directory that is read, the largest list, and the largest file taken out.
const MAX_DIRECTORY: u64 = 16 << 20;
const MAX_RECORD: u64 = 16 << 20;
const MAX_FILE: u64 = 1 << 30;

pub(super) struct Wheel {
    file: File,
    path: PathBuf,
    entries: Vec<Entry>,
    /// The list of files and their sums.
    record: String,
}

/// A file in the archive.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    name: String,
    is_deflated: bool,
    packed: u64,
    size: u64,
    at: u64,
}

impl Entry {
    pub(super) fn file_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }
}

impl Wheel {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let mut file = File::open(path).map_err(file_error("read", path))?;
        let entries = directory(&mut file).map_err(file_error("read", path))?;
        let broken = || Failure::failed(format!("{} is not a Python package", path.display()));
        let entries = entries.ok_or_else(broken)?;
        let mut wheel = Self { file, path: path.to_owned(), entries, record: String::new() };
        let listed = wheel.entries.iter().find(|entry| {
            entry.name.strip_suffix(".dist-info/RECORD").is_some_and(|rest| !rest.contains('/'))
        });
        let listed = listed.filter(|entry| entry.size <= MAX_RECORD).cloned().ok_or_else(broken)?;
        let mut text = Vec::new();
        wheel.unpack(&listed, &mut text)?;
        wheel.record = String::from_utf8(text).map_err(|_| broken())?;
        Ok(wheel)
    }

    /// The library of ONNX Runtime, of which there must be one.
    pub(super) fn library(&self) -> Result<Entry> {
        let mut all = self.entries.iter().filter(|entry| is_library(&entry.name));
        match (all.next(), all.next()) {
            (Some(entry), None) => Ok(entry.clone()),
            (first, _) => {
                let many = if first.is_some() { "more than one" } else { "no" };
                let shown = self.path.display();
                Err(Failure::failed(format!(
                    "{shown} has {many} onnxruntime/capi/libonnxruntime.so"
                ))
                .hint("a package of onnxruntime for Linux is wanted"))
            }
        }
    }

    pub(super) fn entry(&self, name: &str) -> Option<Entry> {
        self.entries.iter().find(|entry| entry.name == name).cloned()
    }

    /// Takes a file out and verifies it on the way.
    pub(super) fn copy(&mut self, entry: &Entry, into: &mut impl Write) -> Result<()> {
        let mut summing = Summing { into, digest: Digest::new(&SHA256) };
        self.unpack(entry, &mut summing)?;
        let found = URL_SAFE_NO_PAD.encode(summing.digest.finish());
        match self.listed(&entry.name) {
            Some(wanted) if wanted == found => Ok(()),
            Some(wanted) => Err(mismatch(format!(
                "{} in {} has the SHA-256 {found}; the package lists {wanted}",
                entry.name,
                self.path.display()
            ))),
            None => Err(mismatch(format!(
                "{} does not list the SHA-256 of {}",
                self.path.display(),
                entry.name
            ))),
        }
    }

    /// The sum that the package lists for a file.
    fn listed(&self, name: &str) -> Option<&str> {
        let rest = self.record.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(','));
        rest?.strip_prefix("sha256=")?.split(',').next()
    }

    fn unpack(&mut self, entry: &Entry, into: &mut impl Write) -> Result<()> {
        let copied = self.unpacked(entry, into).map_err(file_error("read", &self.path))?;
        if copied == Some(entry.size) {
            return Ok(());
        }
        let (name, path) = (&entry.name, self.path.display());
        Err(mismatch(format!("{name} in {path} is damaged or over {MAX_FILE} bytes")))
    }

    /// Unpacks no more than the archive says there is; gives how much there was.
    fn unpacked(&mut self, entry: &Entry, into: &mut impl Write) -> io::Result<Option<u64>> {
        if entry.size > MAX_FILE {
            return Ok(None);
        }
        let mut head = [0; 30];
        self.file.seek(SeekFrom::Start(entry.at))?;
        self.file.read_exact(&mut head)?;
        if !head.starts_with(LOCAL) {
            return Ok(None);
        }
        // The name and the extra field, whose lengths may differ from those in the directory.
        let skipped = u16_at(&head, 26) + u16_at(&head, 28);
        self.file.seek(SeekFrom::Current(i64::try_from(skipped).unwrap_or(i64::MAX)))?;
        let packed = (&self.file).take(entry.packed);
        let copied = if entry.is_deflated {
            io::copy(&mut DeflateDecoder::new(packed).take(entry.size + 1), into)?
        } else {
            io::copy(&mut packed.take(entry.size + 1), into)?
        };
        Ok(Some(copied))
    }
}

/// Whether a name is that of the library itself, such as `libonnxruntime.so.1.31.1`.
fn is_library(name: &str) -> bool {
    let version = name.strip_prefix("onnxruntime/capi/libonnxruntime.so");
    version.is_some_and(|version| {
        let plain = |byte: u8| byte.is_ascii_digit() || byte == b'.';
        version.is_empty() || (version.starts_with('.') && version.bytes().all(plain))
    })
}

/// The files in an archive; none if it is not one, or larger than a package can be.
fn directory(file: &mut File) -> io::Result<Option<Vec<Entry>>> {
    let size = file.seek(SeekFrom::End(0))?;
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(size.saturating_sub(TAIL)))?;
    file.take(TAIL).read_to_end(&mut tail)?;
    let Some(end) = tail.windows(END.len()).rposition(|bytes| bytes == END) else {
        return Ok(None);
    };
    let end = &tail[end..];
    if end.len() < 22 {
        return Ok(None);
    }
    let (length, start) = (u32_at(end, 12), u32_at(end, 16));
    if length > MAX_DIRECTORY || start.saturating_add(length) > size {
        return Ok(None);
    }
    let mut all = Vec::new();
    file.seek(SeekFrom::Start(start))?;
    file.take(length).read_to_end(&mut all)?;
    let mut rest = &all[..];
    let mut entries = Vec::new();
    while rest.starts_with(ENTRY) && rest.len() >= 46 {
        let lengths = [28, 30, 32].map(|at| u16_at(rest, at));
        let whole = 46 + usize::try_from(lengths.iter().sum::<u64>()).unwrap_or(usize::MAX);
        let name = usize::try_from(lengths[0]).ok().and_then(|length| rest.get(46..46 + length));
        let (Some(name), true) = (name, whole <= rest.len()) else { return Ok(None) };
        let method = u16_at(rest, 10);
        // What is packed otherwise is nothing that we take out.
        if method == 0 || method == 8 {
            entries.push(Entry {
                name: String::from_utf8_lossy(name).into_owned(),
                is_deflated: method == 8,
                packed: u32_at(rest, 20),
                size: u32_at(rest, 24),
                at: u32_at(rest, 42),
            });
        }
        rest = &rest[whole..];
    }
    Ok(Some(entries))
}

fn u16_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(bytes[at]) | u64::from(bytes[at + 1]) << 8
}

fn u32_at(bytes: &[u8], at: usize) -> u64 {
    u16_at(bytes, at) | u16_at(bytes, at + 2) << 16
}

/// Sums up what is written.
struct Summing<'a, W> {
    into: &'a mut W,
    digest: Digest,
}

impl<W: Write> Write for Summing<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.into.write(bytes)?;
        self.digest.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.into.flush()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use flate2::Compression;
    use flate2::write::DeflateEncoder;

    use super::*;

    const LIBRARY: &str = "onnxruntime/capi/libonnxruntime.so.1.31.1";

    /// A file to be put into a package.
    #[derive(Clone)]
    pub(in super::super) struct Packed {
        name: String,
        content: Vec<u8>,
        claimed: Vec<u8>,
        is_deflated: bool,
    }

    impl Packed {
        pub(in super::super) fn new(name: &str, content: &[u8]) -> Self {
            let (name, content) = (name.to_owned(), content.to_vec());
            Self { name, claimed: content.clone(), content, is_deflated: false }
        }

        pub(in super::super) fn deflated(mut self) -> Self {
            self.is_deflated = true;
            self
        }

        /// The package lists the sum of other bytes.
        pub(in super::super) fn claiming(mut self, other: &[u8]) -> Self {
            self.claimed = other.to_vec();
            self
        }
    }

    /// A package as a build tool writes it: files, the list of their sums, the directory.
    pub(in super::super) fn wheel(files: &[Packed]) -> Vec<u8> {
        let sum = |bytes: &[u8]| {
            let mut digest = Digest::new(&SHA256);
            digest.update(bytes);
            URL_SAFE_NO_PAD.encode(digest.finish())
        };
        let line = |file: &Packed| {
            format!("{},sha256={},{}\n", file.name, sum(&file.claimed), file.content.len())
        };
        let name = "onnxruntime-1.31.1.dist-info/RECORD";
        let record: String = files.iter().map(line).chain([format!("{name},,\n")]).collect();
        let record = Packed::new(name, record.as_bytes());
        let (mut all, mut directory) = (Vec::new(), Vec::new());
        for file in files.iter().chain([&record]) {
            let packed = if file.is_deflated {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(&file.content).unwrap();
                encoder.finish().unwrap()
            } else {
                file.content.clone()
            };
            let at = u32::try_from(all.len()).unwrap();
            let sizes = [packed.len(), file.content.len()].map(|n| u32::try_from(n).unwrap());
            let method = if file.is_deflated { 8_u16 } else { 0 };
            let mut middle = Vec::new();
            for number in [20, 0, method, 0, 0] {
                middle.extend(number.to_le_bytes());
            }
            middle.extend(0_u32.to_le_bytes());
            middle.extend(sizes.iter().flat_map(|size| size.to_le_bytes()));
            middle.extend(u16::try_from(file.name.len()).unwrap().to_le_bytes());
            let extra = [7_u8; 4];
            all.extend(LOCAL);
            all.extend(&middle);
            all.extend(4_u16.to_le_bytes());
            all.extend(file.name.as_bytes());
            all.extend(extra);
            all.extend(packed);
            directory.extend(ENTRY);
            directory.extend(20_u16.to_le_bytes());
            directory.extend(&middle);
            directory.extend([0; 12]);
            directory.extend(at.to_le_bytes());
            directory.extend(file.name.as_bytes());
        }
        let start = u32::try_from(all.len()).unwrap();
        let length = u32::try_from(directory.len()).unwrap();
        let count = u16::try_from(files.len() + 1).unwrap();
        all.extend(directory);
        all.extend(END);
        all.extend([0; 4]);
        all.extend(count.to_le_bytes());
        all.extend(count.to_le_bytes());
        all.extend(length.to_le_bytes());
        all.extend(start.to_le_bytes());
        all.extend(0_u16.to_le_bytes());
        all
    }

    fn opened(bytes: &[u8]) -> Result<Wheel> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("package.whl");
        std::fs::write(&path, bytes).unwrap();
        Wheel::open(&path)
    }

    #[test]
    fn files_come_out_as_they_went_in() {
        let content: Vec<u8> = (0..100_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        for deflated in [false, true] {
            let file = Packed::new(LIBRARY, &content);
            let file = if deflated { file.deflated() } else { file };
            let mut wheel = opened(&wheel(&[Packed::new("other.py", b"x = 1"), file])).unwrap();
            let library = wheel.library().unwrap();
            assert_eq!(library.file_name(), "libonnxruntime.so.1.31.1");
            let mut out = Vec::new();
            wheel.copy(&library, &mut out).unwrap();
            assert!(out == content, "deflated: {deflated}");
        }
    }

    #[test]
    fn what_is_not_listed_so_is_refused() {
        let cases = [
            (wheel(&[Packed::new(LIBRARY, b"bytes").claiming(b"other")]), "lists"),
            (
                {
                    let mut bytes = wheel(&[Packed::new(LIBRARY, b"the bytes")]);
                    let at = bytes.windows(9).position(|bytes| bytes == b"the bytes").unwrap();
                    bytes[at] ^= 1;
                    bytes
                },
                "SHA-256",
            ),
        ];
        for (bytes, reason) in cases {
            let mut wheel = opened(&bytes).unwrap();
            let library = wheel.library().unwrap();
            let failure = wheel.copy(&library, &mut Vec::new()).unwrap_err();
            assert_eq!(failure.exit(), crate::exit::Exit::Verification);
            assert!(failure.text().contains(reason), "{}", failure.text());
        }
    }

    #[test]
    fn what_is_no_package_of_it_is_refused() {
        let two = [Packed::new(LIBRARY, b"1"), Packed::new(&format!("{LIBRARY}.2"), b"2")];
        let out = [Packed::new("../libonnxruntime.so.1", b"1")];
        let named = [Packed::new("onnxruntime/capi/libonnxruntime.so/../../x", b"1")];
        let cases: [(&[Packed], &str); 4] =
            [(&[], "has no"), (&two, "more than one"), (&out, "has no"), (&named, "has no")];
        for (files, reason) in cases {
            let failure = opened(&wheel(files)).unwrap().library().unwrap_err();
            assert!(failure.text().contains(reason), "{}", failure.text());
        }
        let whole = wheel(&[Packed::new(LIBRARY, b"1")]);
        for bytes in [&b""[..], b"PK\x05\x06", b"text", &whole[..whole.len() - 10]] {
            let failure = opened(bytes).map(drop).unwrap_err();
            assert!(failure.text().contains("not a Python package"), "{}", failure.text());
        }
    }

    #[test]
    fn every_damaged_byte_is_refused_or_harmless() {
        let content = b"the library, the library, the library";
        let whole = wheel(&[Packed::new(LIBRARY, content).deflated()]);
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            let Ok(mut wheel) = opened(&bytes) else { continue };
            let Ok(library) = wheel.library() else { continue };
            let mut out = Vec::new();
            if wheel.copy(&library, &mut out).is_ok() {
                assert_eq!(out, content, "byte {at}");
            }
        }
    }
}
