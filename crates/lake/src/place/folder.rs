//! A folder of the server's disk.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use falaj_base::{Error, Result};

use super::file::{File, Hashes, unreadable};
use super::{Entry, Place};

/// Files below a folder. Links are followed as far as they stay below it.
#[derive(Clone, Debug)]
pub struct Folder {
    name: String,
    root: PathBuf,
    hashes: Hashes,
}

impl Folder {
    /// The folder, and what paths in it begin with when people are told of them. What is hashed of it is
    /// remembered in `hashes`.
    pub fn open(name: &str, root: &Path, hashes: Hashes) -> Result<Self> {
        let root = root.canonicalize().map_err(|error| unreadable(name, error))?;
        Ok(Self { name: name.to_owned(), root, hashes })
    }

    /// Where a path really is; none if nothing is there.
    fn real(&self, path: &str) -> Result<Option<PathBuf>> {
        let real = match self.root.join(path).canonicalize() {
            Ok(real) => real,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(unreadable(&self.shown(path), error)),
        };
        if real.starts_with(&self.root) {
            return Ok(Some(real));
        }
        let allowed = "files below the root, and no links out of it";
        Err(Error::invalid("path", self.shown(path), allowed))
    }
}

impl Place for Folder {
    fn shown(&self, path: &str) -> String {
        crate::path::joined(&self.name, path)
    }

    fn list(&self, folder: &str, after: Option<&str>, most: usize) -> Result<Vec<Entry>> {
        let Some(real) = self.real(folder)? else { return Ok(Vec::new()) };
        let at = |error| unreadable(&self.shown(folder), error);
        let mut found = Vec::new();
        for entry in fs::read_dir(&real).map_err(at)? {
            let entry = entry.map_err(at)?;
            // A name that is no text cannot be named by anything.
            let Ok(name) = entry.file_name().into_string() else { continue };
            if after.is_some_and(|after| name.as_str() <= after) {
                continue;
            }
            // One that is gone again, or leads nowhere, is not there.
            let Ok(about) = fs::metadata(entry.path()) else { continue };
            if about.is_dir() {
                continue;
            }
            let modified = about.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            let modified = modified.and_then(|since| i64::try_from(since.as_millis()).ok());
            found.push(Entry { name, size: about.len(), modified: modified.unwrap_or(0) });
            if found.len() > most {
                let allowed = format!("a folder of at most {most} files");
                return Err(Error::invalid("path", self.shown(folder), allowed));
            }
        }
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn open(&self, path: &str) -> Result<Option<File>> {
        let Some(real) = self.real(path)? else { return Ok(None) };
        let name = self.shown(path);
        // Looked at before it is opened: opening a pipe would wait for somebody to write to it.
        let plain = fs::metadata(&real).is_ok_and(|about| about.is_file());
        if !plain {
            return Err(Error::invalid("path", name, "plain files"));
        }
        let file = fs::File::open(&real).map_err(|error| unreadable(&name, error))?;
        File::disk(name, file, &self.hashes).map(Some)
    }
}
