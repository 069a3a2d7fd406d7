//! Which files of a model could run code when it is loaded.
//!
//! Every file is recognised from its name and its first bytes, and gets a [`Class`] with the reason.
//! Nothing is unpacked, decoded, imported or executed: a pickle is known by the outline of its
//! opcodes, an archive by the names in its directory.
//!
//! What must hold: a file is [`Class::Safe`] only if its *content* is of a format that cannot carry
//! code, never because of its name; a name that makes loaders unpickle counts as such whatever
//! the content; and what is not recognised is never safe.
//!
//! Not here: a judgement of what the code would do. Malware and a trained model look the same.

mod content;
mod name;
mod npy;
mod pickle;
mod protobuf;
mod text;
mod zip;

use std::ops::Range;

use bytes::Bytes;
use falaj_base::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use content::Hint;

/// How many bytes from the start of a file [`examine`] wants to see.
pub const HEAD_BYTES: usize = 4096;

/// What a file can do to the one who loads it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Data in a format that carries no code.
    Safe,
    /// Not recognised, or not looked into.
    Unknown,
    /// Code that is meant to be run: scripts, notebooks, libraries.
    Code,
    /// Data in a format that runs code while it is read.
    OpaqueExecutable,
}

/// What a version as a whole is: the worst of its files.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Safe,
    /// Some files were not recognised; none is known to be able to run code.
    Unrecognised,
    ContainsCode,
    UnsafeFormat,
}

/// What was found about one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    pub path: String,
    pub class: Class,
    /// One sentence for a person.
    pub reason: String,
}

/// Every file of a version, and what follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    pub verdict: Verdict,
    pub files: Vec<Finding>,
}

impl Report {
    #[must_use]
    pub fn new(files: Vec<Finding>) -> Self {
        let worst = files.iter().map(|file| file.class).max().unwrap_or(Class::Safe);
        let verdict = match worst {
            Class::Safe => Verdict::Safe,
            Class::Unknown => Verdict::Unrecognised,
            Class::Code => Verdict::ContainsCode,
            Class::OpaqueExecutable => Verdict::UnsafeFormat,
        };
        Self { verdict, files }
    }
}

/// A file to look at. `head` is its first [`HEAD_BYTES`], or all of it if it is shorter.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    pub path: &'a str,
    pub size: u64,
    pub head: &'a [u8],
}

impl Probe<'_> {
    /// Whether `head` is the whole file.
    fn is_whole(&self) -> bool {
        self.head.len() as u64 >= self.size
    }
}

/// Classifies one file. `read` fetches a range of its bytes; it is asked only where the head does
/// not decide (the directory of an archive, a long header), a bounded number of times and bytes.
pub async fn examine<R, F>(probe: Probe<'_>, mut read: R) -> Result<Finding>
where
    R: FnMut(Range<u64>) -> F,
    F: Future<Output = Result<Bytes>>,
{
    let named = name::recognise(probe.path);
    let contained = match content::recognise(&probe) {
        Hint::Known(found) => Some(found),
        Hint::Zip => Some(zip::examine(&probe, &mut read).await?),
        Hint::Npy => Some(npy::examine(&probe, &mut read).await?),
        Hint::None => text::examine(&probe, &mut read).await?,
    };
    // The worse of the two: a pickle named `.json` is a pickle, and so is anything named `.pkl`.
    let (class, reason) = match (named, contained) {
        (Some(named), Some(found)) if found.class > named.class => (found.class, found.reason),
        (Some(named), _) => (named.class, named.reason),
        (None, Some(found)) => (found.class, found.reason),
        (None, None) => (Class::Unknown, "neither its content nor its name is known".into()),
    };
    Ok(Finding { path: probe.path.to_owned(), class, reason })
}

/// A class and why, before the file's path is added.
#[derive(Clone, Debug)]
struct Found {
    class: Class,
    reason: String,
}

impl Found {
    fn new(class: Class, reason: impl Into<String>) -> Self {
        Self { class, reason: reason.into() }
    }

    fn safe(reason: impl Into<String>) -> Self {
        Self::new(Class::Safe, reason)
    }

    fn unknown(reason: impl Into<String>) -> Self {
        Self::new(Class::Unknown, reason)
    }

    fn code(reason: impl Into<String>) -> Self {
        Self::new(Class::Code, reason)
    }

    fn opaque(reason: impl Into<String>) -> Self {
        Self::new(Class::OpaqueExecutable, reason)
    }
}

#[cfg(test)]
mod tests;
