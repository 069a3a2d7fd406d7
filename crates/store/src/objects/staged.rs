//! A blob on its way into a local directory: a staging file beside its place, which gets its name
//! once the bytes are on the disk.
//!
//! Everything here blocks. Sealed bytes are written by the thread that sealed them, while they are
//! still in its cache.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use tokio::task::JoinHandle;

/// How much is written before the disk is told to begin: at the end there is little left to wait
/// for, and the disk works while the processor does.
const SYNC_EVERY: usize = 16 << 20;

/// A file that is not there yet. Dropped before [`StagedFile::publish`], it leaves nothing.
#[derive(Debug)]
pub(super) struct StagedFile {
    place: PathBuf,
    /// None until there is something to write.
    staging: Option<(File, PathBuf)>,
    unsynced: usize,
    syncing: Option<JoinHandle<()>>,
}

impl StagedFile {
    pub(super) fn new(place: PathBuf) -> Self {
        Self { place, staging: None, unsynced: 0, syncing: None }
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (file, path) = match &mut self.staging {
            Some(staging) => staging,
            none => none.insert(create(&self.place)?),
        };
        file.write_all(bytes)?;
        self.unsynced += bytes.len();
        if self.unsynced >= SYNC_EVERY && self.syncing.as_ref().is_none_or(JoinHandle::is_finished)
        {
            self.unsynced = 0;
            self.syncing = start_sync(path.clone());
        }
        Ok(())
    }

    /// Puts the file in its place. When this returns `Ok`, it is there after a crash as well.
    pub(super) fn publish(mut self) -> io::Result<()> {
        let (file, path) = self.staging.as_ref().ok_or(ErrorKind::InvalidInput)?;
        file.sync_all()?;
        std::fs::rename(path, &self.place)?;
        self.staging = None;
        sync_parent(&self.place)
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        let Some((file, path)) = self.staging.take() else { return };
        // If this fails, the collector finds the file by its name.
        let remove = move || drop((std::fs::remove_file(path), file));
        // To free a long file takes longer than a task may block.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

/// Has the disk begin on what was written. The file is opened once more for it: a failure to write
/// is told once to everyone who has the file open, and must not be told here alone.
fn start_sync(path: PathBuf) -> Option<JoinHandle<()>> {
    let runtime = tokio::runtime::Handle::try_current().ok()?;
    Some(runtime.spawn_blocking(move || drop(File::open(path).and_then(|file| file.sync_data()))))
}

/// Creates the first staging file that is not there yet, and the directories above it.
fn create(place: &Path) -> io::Result<(File, PathBuf)> {
    if let Some(parent) = place.parent() {
        create_directory(parent)?;
    }
    let mut number = 1;
    loop {
        let path = staging_path(place, number);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Removes the staging files that a crash left of one blob.
pub(super) fn remove_staging(place: &Path) -> io::Result<()> {
    for number in 1.. {
        match std::fs::remove_file(staging_path(place, number)) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn staging_path(place: &Path, number: u32) -> PathBuf {
    let mut path = place.as_os_str().to_owned();
    path.push(format!("#{number}"));
    path.into()
}

/// Creates a directory for its owner alone, with those above it, so that it outlives a crash.
pub(super) fn create_directory(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        create_directory(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => sync_parent(path),
        // Another was faster, or it is a file.
        Err(error) if error.kind() != ErrorKind::AlreadyExists || !path.is_dir() => Err(error),
        Err(_) => Ok(()),
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}
