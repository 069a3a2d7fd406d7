//! The folder of an executor: in it one folder for each attempt, under the attempt's name.
//!
//! Must hold:
//! - An attempt's folder appears whole, or not at all: it is filled under another name and renamed.
//! - Of several that claim the same attempt, one succeeds.
//! - What is wrong with one attempt concerns that attempt alone.
//!
//! Nothing is fsynced here: what is launched dies with the machine, and a folder that a power cut tore
//! is an attempt that was lost. The files within are those of [`plain`](crate::plain).

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{IFlags, Mode, OFlags, ioctl_getflags, ioctl_setflags};

use crate::plain::{self, is_there};
use crate::{AttemptId, ExecutorError, Observed, Part, Phase};

const FILLING: &str = ".new-";
const GOING: &str = ".gone-";

static COUNTER: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes the folder where it is missing, closes it to others, and removes what killed processes left
    /// half done.
    pub(crate) fn open(path: &Path) -> Result<Self, ExecutorError> {
        let open = || -> io::Result<PathBuf> {
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
            let path = path.canonicalize()?;
            let mode = fs::metadata(&path)?.permissions().mode();
            if mode & 0o077 != 0
                && let Err(error) = fs::set_permissions(&path, fs::Permissions::from_mode(0o700))
            {
                tracing::warn!(path = %path.display(), %error, "others may read what jobs leave");
            }
            spread(&path);
            Ok(path)
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
        let is_folder = fs::symlink_metadata(&folder).is_ok_and(|about| about.is_dir());
        if is_folder { Ok(folder) } else { Err(ExecutorError::Unknown(attempt.clone())) }
    }

    /// What a rank has written, from an offset on; what is not there yet is empty.
    pub(crate) fn output(
        &self,
        attempt: &AttemptId,
        rank: u32,
        from: u64,
        most: usize,
    ) -> Result<Vec<u8>, ExecutorError> {
        let path = self.known(attempt)?.join(log_name(rank));
        let bytes = plain::read_part(&path, from, most).map_err(|error| away(&path, &error))?;
        self.still_known(attempt, &bytes)?;
        Ok(bytes)
    }

    /// The next part of a rank's output that was not dropped.
    pub(crate) fn output_part(
        &self,
        attempt: &AttemptId,
        rank: u32,
        from: u64,
        most: usize,
    ) -> Result<Part, ExecutorError> {
        let path = self.known(attempt)?.join(log_name(rank));
        let part = plain::next_part(&path, from, most).map_err(|error| away(&path, &error))?;
        self.still_known(attempt, &part.bytes)?;
        Ok(part)
    }

    /// Nothing was read because there is nothing, not because the folder went meanwhile.
    fn still_known(&self, attempt: &AttemptId, read: &[u8]) -> Result<(), ExecutorError> {
        if read.is_empty() { self.known(attempt).map(drop) } else { Ok(()) }
    }

    /// Makes the folder of an attempt with what `fill` puts into it; `None` if there is one.
    pub(crate) fn claim<T>(
        &self,
        attempt: &AttemptId,
        fill: impl FnOnce(&Path) -> io::Result<T>,
    ) -> Result<Option<T>, ExecutorError> {
        let target = self.of(attempt);
        if is_there(&target) {
            return Ok(None);
        }
        let filling = self.aside(FILLING, attempt);
        let claimed = (|| {
            DirBuilder::new().mode(0o700).create(&filling)?;
            let filled = fill(&filling)?;
            match fs::rename(&filling, &target) {
                Ok(()) => Ok(Some(filled)),
                // Never empty, so that a rename onto it fails.
                Err(error) if is_there(&target) => {
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
                let entry = entry?;
                let name = entry.file_name().into_string().ok();
                let Some(attempt) = name.and_then(AttemptId::new) else { continue };
                // Its own processes may have put something else in its place.
                if !entry.file_type()?.is_dir() {
                    let _ = fs::remove_file(entry.path());
                    let _ = DirBuilder::new().mode(0o700).create(entry.path());
                }
                found.push(attempt);
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

/// Tells the file system that the folders in this one have nothing to do with each other, so that it need not
/// put their files side by side. On ext4 without a journal, a file that is made where thousands were removed in
/// the last minutes costs a look at each of them. Other file systems do not know the word, or do so anyway.
fn spread(path: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::open(path, flags, Mode::empty()) else { return };
    if let Ok(known) = ioctl_getflags(&folder)
        && !known.contains(IFlags::TOPDIR)
        && let Err(error) = ioctl_setflags(&folder, known | IFlags::TOPDIR)
    {
        tracing::debug!(path = %path.display(), %error, "attempts lie side by side");
    }
}

pub(crate) fn away(path: &Path, error: &io::Error) -> ExecutorError {
    ExecutorError::Away(format!("{}: {error}", path.display()))
}

/// Why an attempt is not forgotten.
pub(crate) fn not_ended(attempt: &AttemptId) -> ExecutorError {
    ExecutorError::Refused(format!("attempt {attempt} has not ended"))
}

/// Where a rank's output lies.
pub(crate) fn log_name(rank: u32) -> String {
    format!("rank-{rank}.log")
}

/// What is told of an attempt that cannot be looked at now: that it goes on. It is asked for again, and to
/// take it for lost would start it a second time beside itself.
pub(crate) fn unreadable(
    attempt: AttemptId,
    error: &dyn std::fmt::Display,
    isolation: &str,
) -> Observed {
    tracing::warn!(%attempt, %error, "an attempt cannot be looked at");
    Observed {
        attempt,
        phase: Phase::Running,
        started: None,
        ended: None,
        isolation: isolation.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_claims_one_succeeds_and_leaves_nothing_aside() {
        let folder = tempfile::tempdir().unwrap();
        let here = Folder::open(folder.path()).unwrap();
        let attempt = AttemptId::new("job-1").unwrap();
        let fill = |dir: &Path| plain::put(&dir.join("launch.json"), &7);
        assert!(here.claim(&attempt, fill).unwrap().is_some());
        assert!(here.claim(&attempt, fill).unwrap().is_none());
        assert_eq!(here.attempts().unwrap(), std::slice::from_ref(&attempt));
        here.remove(&attempt).unwrap();
        here.remove(&attempt).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn output_is_there_or_unknown_and_never_found_empty_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let here = Folder::open(folder.path()).unwrap();
        let attempt = AttemptId::new("job-1").unwrap();
        for round in 0..200 {
            here.claim(&attempt, |dir| fs::write(dir.join(log_name(0)), "said")).unwrap();
            let read = || loop {
                match here.output_part(&attempt, 0, 0, 10) {
                    Ok(part) => assert_eq!(part.bytes, b"said", "{round}"),
                    Err(ExecutorError::Unknown(_)) => break,
                    Err(error) => panic!("{error:?}"),
                }
                match here.output(&attempt, 0, 0, 10) {
                    Ok(bytes) => assert_eq!(bytes, b"said", "{round}"),
                    Err(ExecutorError::Unknown(_)) => break,
                    Err(error) => panic!("{error:?}"),
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(read);
                std::thread::yield_now();
                here.remove(&attempt).unwrap();
            });
        }
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
    fn the_folder_is_closed_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (open, new) = (folder.path().join("open"), folder.path().join("new/inner"));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        for path in [&open, &new] {
            Folder::open(path).unwrap();
            assert_eq!(mode(path), 0o700, "{}", path.display());
        }
    }

    #[test]
    fn attempts_are_spread_where_that_can_be_said() {
        let folder = tempfile::tempdir().unwrap();
        let flags = || ioctl_getflags(fs::File::open(folder.path()).unwrap());
        let Ok(before) = flags() else { return };
        Folder::open(folder.path()).unwrap();
        let after = flags().unwrap();
        // Nothing else is touched; a file system that does not know the word changes nothing at all.
        assert_eq!(after.difference(IFlags::TOPDIR), before.difference(IFlags::TOPDIR));
        assert!(after == before || after.contains(IFlags::TOPDIR));
        Folder::open(folder.path()).unwrap();
        assert_eq!(flags().unwrap(), after);
    }

    #[test]
    fn what_has_the_name_of_an_attempt_and_is_no_folder_becomes_one() {
        let folder = tempfile::tempdir().unwrap();
        let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
        let here = Folder::open(&root).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("exit"), "17").unwrap();
        std::os::unix::fs::symlink(&outside, root.join("job-1")).unwrap();
        let attempt = AttemptId::new("job-1").unwrap();
        assert!(here.known(&attempt).is_err());
        assert_eq!(here.attempts().unwrap(), std::slice::from_ref(&attempt));
        assert!(!here.known(&attempt).unwrap().join("exit").exists());
        assert!(outside.join("exit").exists());
    }
}
