//! What a model is made of: every file's path, digest and size, in one canonical order.

use std::cmp::Ordering;
use std::fmt;

use aws_lc_rs::digest;
use falaj_base::{Error, error::Result};

/// More files than any model has; a signature and a bill of materials name each of them.
pub const MAX_FILES: usize = 100_000;

/// The longest path, in bytes: what every file system can hold.
const MAX_PATH: usize = 1024;

/// What the stock tool leaves out unless told otherwise: it would find these missing if we signed
/// them. They steer Git, not the model.
pub(super) const UNSIGNED: [&str; 4] = [".git", ".gitattributes", ".github", ".gitignore"];

const ALLOWED_PATH: &str = "a relative path of up to 1024 bytes, parts joined by `/`, \
     without `.`, `..`, backslashes or control characters";

/// A SHA-256 digest; shown as 64 lowercase hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sha256([u8; 32]);

impl Sha256 {
    /// The digest of `content`.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        Self::from_digest(&digest::digest(&digest::SHA256, content))
    }

    /// Reads 64 hexadecimal digits.
    #[must_use]
    pub fn parse(hex: &str) -> Option<Self> {
        let digits = hex.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Self(bytes))
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn from_digest(digest: &digest::Digest) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

impl From<[u8; 32]> for Sha256 {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One file of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFile {
    pub path: String,
    pub sha256: Sha256,
    pub size: u64,
}

/// Every file of a model, sorted, each path once, each path safe to make on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    files: Vec<ManifestFile>,
}

impl Manifest {
    /// Checks and sorts `(path, SHA-256 in hexadecimal, size)`.
    pub fn new(files: Vec<(String, String, u64)>) -> Result<Self> {
        if files.len() > MAX_FILES {
            return Err(Error::invalid("files", files.len(), format!("up to {MAX_FILES} files")));
        }
        let mut checked = Vec::with_capacity(files.len());
        for (path, sha256, size) in files {
            if !is_safe(&path) {
                return Err(Error::invalid("path", path, ALLOWED_PATH));
            }
            let Some(sha256) = Sha256::parse(&sha256) else {
                return Err(Error::invalid("sha256", sha256, "64 hexadecimal digits"));
            };
            checked.push(ManifestFile { path, sha256, size });
        }
        checked.sort_by(|a, b| order(&a.path, &b.path));
        for pair in checked.windows(2) {
            let [first, next] = pair else { continue };
            if first.path == next.path {
                return Err(Error::invalid("path", &next.path, "each path once"));
            }
            // Sorted by parts, what lies below a path follows it directly.
            if is_below(&next.path, &first.path) {
                return Err(Error::invalid("path", &first.path, "a file or a folder, not both"));
            }
        }
        Ok(Self { files: checked })
    }

    #[must_use]
    pub fn files(&self) -> &[ManifestFile] {
        &self.files
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// One digest for the whole model: the one that signatures over it carry as their subject.
    #[must_use]
    pub fn digest(&self) -> Sha256 {
        root_digest(self.signed().map(|file| &file.sha256))
    }

    /// The files that a signature covers.
    pub(super) fn signed(&self) -> impl Iterator<Item = &ManifestFile> {
        self.files.iter().filter(|file| !is_ignored(&file.path, &UNSIGNED))
    }

    /// The size of all files together.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.size))
    }
}

/// One digest over the digests of files, in the order given: the name of the whole model.
pub(super) fn root_digest<'a>(digests: impl Iterator<Item = &'a Sha256>) -> Sha256 {
    let mut context = digest::Context::new(&digest::SHA256);
    digests.for_each(|digest| context.update(digest.bytes()));
    Sha256::from_digest(&context.finish())
}

/// Whether a path is one of `ignored` or lies below one. An excluded path that is not a plain
/// relative one (`.`, say, which would cover everything) excludes nothing.
pub(super) fn is_ignored<S: AsRef<str>>(path: &str, ignored: &[S]) -> bool {
    ignored
        .iter()
        .map(AsRef::as_ref)
        .filter(|folder| is_safe(folder))
        .any(|folder| path == folder || is_below(path, folder))
}

/// Orders paths part by part, as the stock tool does: `sub/w` comes before `sub-a`, although `-`
/// sorts before `/`.
pub(super) fn order(a: &str, b: &str) -> Ordering {
    a.split('/').cmp(b.split('/'))
}

/// Whether `path` lies inside the folder `folder`.
fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether a path can be joined to a folder without leaving it, on any system.
pub(super) fn is_safe(path: &str) -> bool {
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    let has_drive = path.as_bytes().get(1) == Some(&b':');
    path.len() <= MAX_PATH
        && !has_drive
        && !path.chars().any(|c| c == '\\' || c.is_control())
        && path.split('/').all(is_plain)
}
