//! Where files lie.

mod bucket;
mod file;
mod folder;

use std::fmt;

use falaj_base::Result;

pub use bucket::Bucket;
pub use file::{File, Hashes};
pub use folder::Folder;

/// A file in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the folder.
    pub name: String,
    pub size: u64,
    /// When it was written, in milliseconds since 1970.
    pub modified: i64,
}

/// Files below a root. Paths are relative, of parts between single slashes.
///
/// Nothing outside of the root is ever opened, whatever a path says and wherever links lead.
/// Called on threads that may block.
pub trait Place: fmt::Debug + Send + Sync {
    /// What people call a path here.
    fn shown(&self, path: &str) -> String;
    /// The files of a folder by name, those after a name if one is given. A folder with more than
    /// so many is refused; one that is not there is empty.
    fn list(&self, folder: &str, after: Option<&str>, most: usize) -> Result<Vec<Entry>>;
    /// A file as it is now; none if there is none.
    fn open(&self, path: &str) -> Result<Option<File>>;
}
