//! Starting a shim: its lock, its folder, its secrets.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use falaj_base::Secret;
use rustix::fs::{CWD, FileType, FlockOperation, MemfdFlags, Mode, flock, memfd_create, mknodat};
use rustix::io::Errno;
use zeroize::Zeroizing;

use super::nursery::Nursery;
use crate::plain;
use crate::shim::record::{CONTROL, Kept, LAUNCH, SHIM};

/// Whether a launch of an attempt was ever done.
pub(super) fn was_launched(folder: &Path) -> bool {
    std::fs::symlink_metadata(folder.join(SHIM)).is_ok_and(|about| about.len() > 0)
}

/// The lock of an attempt, held. It belongs to the open file: a process that inherits the file holds
/// it as well, and it is free when the last of them is gone.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Lock {
    /// `None` if somebody holds it, or the attempt has just been removed.
    pub(super) fn take(folder: &Path) -> io::Result<Option<Self>> {
        let path = folder.join(SHIM);
        // Where its processes have put something else, it was launched, and can only be buried.
        let file = match plain::open_to_add(&path, b"launched\n") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(None),
            other => other?,
        }
        // It may have been removed, and another made, between opening and locking it.
        let same = std::fs::symlink_metadata(&path).is_ok_and(|there| {
            file.metadata().is_ok_and(|here| (here.dev(), here.ino()) == (there.dev(), there.ino()))
        });
        Ok(same.then_some(Self(file)))
    }
}

/// Fills the folder of a new attempt, and holds its lock.
pub(super) fn fill(folder: &Path, kept: &Kept) -> io::Result<Lock> {
    // Nobody sees it before all is there, so that nothing need be written aside.
    plain::put_new(&folder.join(LAUNCH), kept)?;
    let private = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, folder.join(CONTROL), FileType::Fifo, private, 0)?;
    Lock::take(folder)?.ok_or_else(|| io::Error::other("a new lock is held by another"))
}

/// Starts the shim of an attempt, which from now on holds the lock; gives it back if it cannot.
pub(super) fn shim(
    nursery: &Nursery,
    folder: &Path,
    secrets: &BTreeMap<String, Secret>,
    lock: Lock,
) -> Result<Option<OwnedFd>, (io::Error, Lock)> {
    let started = in_memory(secrets)
        .and_then(|secrets| nursery.shim(folder, secrets.as_fd(), lock.0.as_fd()));
    match started {
        Ok(shim) => {
            // If this fails, and the shim too, the attempt was never launched; if not, nobody looks.
            let _ = (&lock.0).write_all(b"launched\n");
            Ok(shim)
        }
        Err(error) => Err((error, lock)),
    }
}

/// The secrets in a piece of memory that has no name, and goes with the last process that has it open.
fn in_memory(secrets: &BTreeMap<String, Secret>) -> io::Result<File> {
    let mut file = File::from(memfd_create("falaj", MemfdFlags::CLOEXEC)?);
    if !secrets.is_empty() {
        let shown: BTreeMap<&str, &str> =
            secrets.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        file.write_all(&Zeroizing::new(serde_json::to_vec(&shown)?))?;
        file.rewind()?;
    }
    Ok(file)
}
