//! The folder of an executor: in it one folder for each attempt, under the attempt's name.
//!
//! Must hold:
//! - An attempt's folder appears whole, or not at all: it is filled under another name and renamed.
//! - Of several that claim the same attempt, one succeeds.
//! - A file written with [`put`] is seen whole, or as it was before.
//!
//! Nothing is fsynced here but what [`put_durably`] writes: what is launched dies with the machine, and
//! a folder that a power cut tore is an attempt that was lost.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{AttemptId, ExecutorError};

/// The most that is read of a file of ours.
const LARGEST_RECORD: u64 = 64 << 20;
const FILLING: &str = ".new-";
const GOING: &str = ".gone-";

static COUNTER: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes the folder where it is missing, and removes what killed processes left half done.
    pub(crate) fn open(path: &Path) -> Result<Self, ExecutorError> {
        let open = || -> io::Result<PathBuf> {
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
            path.canonicalize()
        };
        let path = open().map_err(|error| away(path, &error))?;
        let folder = Self { path };
        folder.tidy().map_err(|error| away(&folder.path, &error))?;
        Ok(folder)
    }

    fn tidy(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let Some(rest) = name.strip_prefix(FILLING).or_else(|| name.strip_prefix(GOING)) else {
                continue;
            };
            let owner = rest.split('-').next().unwrap_or_default();
            // A process that is still there may be filling it.
            if !Path::new("/proc").join(owner).exists() {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        Ok(())
    }

    pub(crate) fn of(&self, attempt: &AttemptId) -> PathBuf {
        self.path.join(attempt.as_str())
    }

    /// The folder of an attempt that must be there.
    pub(crate) fn known(&self, attempt: &AttemptId) -> Result<PathBuf, ExecutorError> {
        let folder = self.of(attempt);
        if folder.is_dir() { Ok(folder) } else { Err(ExecutorError::Unknown(attempt.clone())) }
    }

    /// Makes the folder of an attempt with what `fill` puts into it; `None` if there is one.
    pub(crate) fn claim<T>(
        &self,
        attempt: &AttemptId,
        fill: impl FnOnce(&Path) -> io::Result<T>,
    ) -> Result<Option<T>, ExecutorError> {
        let target = self.of(attempt);
        if target.exists() {
            return Ok(None);
        }
        let filling = self.aside(FILLING, attempt);
        let claimed = (|| {
            DirBuilder::new().mode(0o700).create(&filling)?;
            let filled = fill(&filling)?;
            match fs::rename(&filling, &target) {
                Ok(()) => Ok(Some(filled)),
                // Never empty, so that a rename onto it fails.
                Err(error) if target.exists() => {
                    tracing::debug!(%attempt, %error, "claimed by another");
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        })();
        if !matches!(claimed, Ok(Some(_))) {
            let _ = fs::remove_dir_all(&filling);
        }
        claimed.map_err(|error| away(&target, &error))
    }

    fn aside(&self, prefix: &str, attempt: &AttemptId) -> PathBuf {
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        self.path.join(format!("{prefix}{}-{count}-{attempt}", std::process::id()))
    }

    /// Every attempt that has a folder.
    pub(crate) fn attempts(&self) -> Result<Vec<AttemptId>, ExecutorError> {
        let list = || -> io::Result<Vec<AttemptId>> {
            let mut found = Vec::new();
            for entry in fs::read_dir(&self.path)? {
                let name = entry?.file_name().into_string().ok();
                found.extend(name.and_then(AttemptId::new));
            }
            Ok(found)
        };
        list().map_err(|error| away(&self.path, &error))
    }

    /// Removes an attempt's folder; in one step for those who look.
    pub(crate) fn remove(&self, attempt: &AttemptId) -> Result<(), ExecutorError> {
        let (from, going) = (self.of(attempt), self.aside(GOING, attempt));
        match fs::rename(&from, &going) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(away(&from, &error)),
            Ok(()) => {}
        }
        fs::remove_dir_all(&going).map_err(|error| away(&going, &error))
    }
}

pub(crate) fn away(path: &Path, error: &io::Error) -> ExecutorError {
    ExecutorError::Away(format!("{}: {error}", path.display()))
}

/// Where a rank's output lies.
pub(crate) fn log_name(rank: u32) -> String {
    format!("rank-{rank}.log")
}

/// Some bytes of a file from an offset on; none if there is no such file yet.
pub(crate) fn read_part(path: &Path, from: u64, most: usize) -> Result<Vec<u8>, ExecutorError> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(most as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|error| away(path, &error))
}

/// A record of ours; `None` if it is not there or was torn by a power cut.
pub(crate) fn get<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let bytes = read_small(path)?.unwrap_or_default();
    if bytes.is_empty() {
        return Ok(None);
    }
    Ok(serde_json::from_slice(&bytes)
        .map_err(|error| tracing::warn!(path = %path.display(), %error, "unreadable"))
        .ok())
}

pub(crate) fn read_small(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut bytes = Vec::new();
    file.take(LARGEST_RECORD).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Writes a record so that others see all of it or nothing.
pub(crate) fn put<T: Serialize>(path: &Path, record: &T) -> io::Result<()> {
    write_aside(path, &serde_json::to_vec(record)?, 0o600).map(drop)
}

/// Writes a record that must not be there yet; `AlreadyExists` if it is.
pub(crate) fn put_new<T: Serialize>(path: &Path, record: &T) -> io::Result<()> {
    let bytes = serde_json::to_vec(record)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(&bytes)
}

/// Writes a record so that it is there after a power cut as well.
///
/// It is renamed before it is synced: one commit of the file system's journal takes both, where syncing
/// twice waits for two. A power cut in between may leave a torn record, and that is none.
pub(crate) fn put_durably<T: Serialize>(path: &Path, record: &T) -> io::Result<()> {
    let file = write_aside(path, &serde_json::to_vec(record)?, 0o600)?;
    file.sync_all()?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// A file that others see whole.
pub(crate) fn put_bytes(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    write_aside(path, bytes, mode).map(drop)
}

fn write_aside(path: &Path, bytes: &[u8], mode: u32) -> io::Result<File> {
    let aside = path.with_extension("part");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&aside)?;
    file.write_all(bytes)?;
    fs::rename(&aside, path)?;
    Ok(file)
}

/// Makes an empty file; whether it was there already does not matter.
pub(crate) fn mark(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_claims_one_succeeds_and_leaves_nothing_aside() {
        let folder = tempfile::tempdir().unwrap();
        let here = Folder::open(folder.path()).unwrap();
        let attempt = AttemptId::new("job-1").unwrap();
        let fill = |dir: &Path| put(&dir.join("launch.json"), &7);
        assert!(here.claim(&attempt, fill).unwrap().is_some());
        assert!(here.claim(&attempt, fill).unwrap().is_none());
        assert_eq!(here.attempts().unwrap(), std::slice::from_ref(&attempt));
        here.remove(&attempt).unwrap();
        here.remove(&attempt).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_dead_process_left_half_done_goes() {
        let folder = tempfile::tempdir().unwrap();
        let own = format!(".new-{}-0-job-1", std::process::id());
        for name in [".new-999999999-0-job-1", ".gone-999999999-3-job-2", &own] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Folder::open(folder.path()).unwrap();
        let left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, [std::ffi::OsString::from(own)]);
    }

    #[test]
    fn a_torn_record_is_no_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("exit.json");
        assert_eq!(get::<u32>(&path).unwrap(), None);
        fs::write(&path, b"").unwrap();
        assert_eq!(get::<u32>(&path).unwrap(), None);
        put_durably(&path, &5).unwrap();
        assert_eq!(get::<u32>(&path).unwrap(), Some(5));
    }
}
