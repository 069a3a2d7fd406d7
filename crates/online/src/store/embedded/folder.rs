//! The files of a store: what they are called, and who has them open.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use falaj_base::{Error, Result, code};

use super::tail;

/// Held by whoever has the store open.
const LOCK: &str = "lock";
const MANIFEST: &str = "manifest";
const RUN: &str = "run";
const TAIL: &str = "tail";

/// The folder of a store that this process has open.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// The number of the next file.
    next: AtomicU64,
    _lock: File,
}

impl Folder {
    /// Opens the folder, or makes it; its own name lasts.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let opened = fs::create_dir_all(path).and_then(|()| {
            let above = path.parent().filter(|above| !above.as_os_str().is_empty());
            File::open(above.unwrap_or(Path::new(".")))?.sync_all()?;
            let lock = path.join(LOCK);
            File::options().write(true).create(true).truncate(false).open(lock)
        });
        let lock = opened.map_err(|error| unopened(path, error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let text =
                    format!("the online store {} is in use by another process", path.display());
                return Err(Error::new(&code::INTEGRITY, text));
            }
            Err(TryLockError::Error(error)) => return Err(unopened(path, error)),
        }
        let folder = Self { path: path.to_owned(), next: AtomicU64::new(1), _lock: lock };
        let numbers = folder.files()?.into_iter().map(|(number, _)| number);
        folder.next.store(numbers.max().unwrap_or(0) + 1, Ordering::Relaxed);
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A number that no file has.
    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn manifest(&self) -> PathBuf {
        self.path.join(MANIFEST)
    }

    pub(super) fn run(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number}.{RUN}"))
    }

    pub(super) fn tail(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number}.{TAIL}"))
    }

    /// Makes new names and those that are gone last.
    pub(super) fn sync(&self) -> Result<()> {
        File::open(&self.path).and_then(|folder| folder.sync_all()).map_err(failed)
    }

    /// The numbered files.
    fn files(&self) -> Result<Vec<(u64, PathBuf)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let known = path.extension().is_some_and(|it| it == RUN || it == TAIL);
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            if let (true, Some(number)) = (known, stem.and_then(|stem| stem.parse().ok())) {
                found.push((number, path));
            }
        }
        Ok(found)
    }

    /// Whether there are files of rows. A tail without any is what a process leaves that was stopped
    /// before it had made its first manifest.
    pub(super) fn has_rows(&self) -> Result<bool> {
        for (_, path) in self.files()? {
            let is_tail = path.extension().is_some_and(|it| it == TAIL);
            if !is_tail || path.metadata().map_err(failed)?.len() > tail::BARE {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes the numbered files but these: what a process that died was about to write.
    pub(super) fn keep_only(&self, kept: impl Fn(u64) -> bool) -> Result<()> {
        for (number, path) in self.files()? {
            if !kept(number) {
                fs::remove_file(path).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Removes a file that nothing names any more. One that stays is removed when the store is opened
    /// again.
    pub(super) fn remove_run(&self, number: u64) {
        removed(&self.run(number));
    }

    pub(super) fn remove_tail(&self, number: u64) {
        removed(&self.tail(number));
    }
}

/// Removes a file, if it is there.
pub(super) fn forget(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        _ => Ok(()),
    }
}

fn removed(path: &Path) {
    if let Err(error) = forget(path) {
        let error = error.chain();
        tracing::warn!(path = %path.display(), error, "a file of the online store is left over");
    }
}

#[cold]
fn unopened(path: &Path, error: io::Error) -> Error {
    let kinds = [io::ErrorKind::NotADirectory, io::ErrorKind::AlreadyExists];
    if kinds.contains(&error.kind()) {
        return damaged(path).caused_by(error);
    }
    let text = format!("the online store {} could not be opened", path.display());
    Error::new(&code::INTEGRITY, text).caused_by(error)
}

/// What is told of files that are not what they should be.
#[cold]
pub(super) fn damaged(path: &Path) -> Error {
    let path = path.display();
    // What was pushed is in the log; what was materialised is where it came from.
    let text = format!(
        "the online store {path} is damaged: move it away, and rows that were pushed are restored at \
         the next start; materialise the other views again"
    );
    Error::new(&code::INTEGRITY, text)
}

/// What is told once the disk has not kept what it was given.
#[cold]
pub(super) fn unkept(
    path: &Path,
    why: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    let text = format!(
        "the disk did not keep a file of the online store {}: nothing more is made to last there until \
         the server is restarted, which reads the log from where it was kept last",
        path.display()
    );
    Error::new(&code::INTEGRITY, text).caused_by(why)
}

#[cold]
pub(super) fn failed(error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::StorageFull {
        return Error::new(&code::STORAGE_FULL, "the disk of the online store is full")
            .caused_by(error);
    }
    Error::internal(error)
}
