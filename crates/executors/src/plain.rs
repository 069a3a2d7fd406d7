//! Files in the folder of an attempt. The attempt's own processes can write there too, and may leave
//! anything under any name.
//!
//! Must hold:
//! - No link is followed, neither the last name of a path nor the folder it lies in.
//! - Nothing but a plain file is read or written, and opening one never waits: a pipe, a device or a folder
//!   under the name of a file is no file, and so is one that may not be read or is too long.
//! - What is written is seen whole, or as it was before, and replaces whatever had that name. A record that is
//!   [written over](put_over) may be seen as none for a moment.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, fstat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Part;

/// The most that is read of a record of how things are.
pub(crate) const RECORD: u64 = 1 << 20;
/// The most that is read of what is to be started, which has the whole environment in it.
pub(crate) const LAUNCH: u64 = 64 << 20;
/// The most that is read of a number or a name.
pub(crate) const WORD: u64 = 128;

const NEVER_WAITS: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

static COUNTER: AtomicU64 = AtomicU64::new(0);

/// The folder that a file lies in, held, and the file's name in it.
fn parent(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other(format!("{} is no path of a file", path.display())));
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = match rustix::fs::open(folder, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            give_back(folder)?;
            rustix::fs::open(folder, flags, Mode::empty())?
        }
        other => other?,
    };
    let mode = Mode::from_raw_mode(fstat(&held)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        fchmod(&held, Mode::RWXU)?;
    }
    Ok((held, name))
}

/// Gives the owner of a folder back the rights that a process of the attempt took away.
fn give_back(folder: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::open(folder, flags, Mode::empty())?;
    // By the descriptor: the name may be another's by now.
    let path = format!("/proc/self/fd/{}", held.as_raw_fd());
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
}

/// Opens a file to read it; `None` if there is none.
pub(crate) fn open(path: &Path) -> io::Result<Option<File>> {
    let (folder, name) = match parent(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let file = match openat(&folder, name, OFlags::RDONLY | NEVER_WAITS, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP | Errno::NXIO | Errno::ACCESS | Errno::PERM) => return Ok(no_file(path)),
        Err(error) => return Err(error.into()),
    };
    Ok(if file.metadata()?.is_file() { Some(file) } else { no_file(path) })
}

fn no_file<T>(path: &Path) -> Option<T> {
    // Seen at every look, and whoever runs the job can bring it about: not worth more.
    tracing::debug!(path = %path.display(), "no plain file that can be read");
    None
}

/// Opens a file to add to it, and makes it if it is not there. What is no plain file is replaced by one
/// with `instead` in it.
pub(crate) fn open_to_add(path: &Path, instead: &[u8]) -> io::Result<File> {
    let add = || -> io::Result<Option<File>> {
        let (folder, name) = parent(path)?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | NEVER_WAITS;
        match openat(&folder, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => {
                let file = File::from(file);
                Ok(file.metadata()?.is_file().then_some(file))
            }
            Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR | Errno::ACCESS | Errno::PERM) => Ok(None),
            Err(error) => Err(error.into()),
        }
    };
    if let Some(file) = add()? {
        return Ok(file);
    }
    put_bytes(path, instead, 0o600)?;
    add()?.ok_or_else(|| io::Error::other(format!("{} is no plain file", path.display())))
}

/// Opens a pipe to say something to whoever listens; `None` if nobody does.
pub(crate) fn open_pipe(path: &Path) -> Option<File> {
    let (folder, name) = parent(path).ok()?;
    let file = openat(&folder, name, OFlags::WRONLY | NEVER_WAITS, Mode::empty()).ok()?;
    let file = File::from(file);
    file.metadata().is_ok_and(|about| about.file_type().is_fifo()).then_some(file)
}

/// Whether anything has that name, whatever it is.
pub(crate) fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Some bytes of a file from an offset on; none if there is no such file.
pub(crate) fn read_part(path: &Path, from: u64, most: usize) -> io::Result<Vec<u8>> {
    let Some(mut file) = open(path)? else { return Ok(Vec::new()) };
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The next bytes of a file that are no hole, from an offset on; no part reaches across one.
pub(crate) fn next_part(path: &Path, from: u64, most: usize) -> io::Result<Part> {
    use rustix::fs::{SeekFrom as Place, seek};
    let Some(mut file) = open(path)? else { return Ok(Part { at: from, bytes: Vec::new() }) };
    // Past its end, and in a file system without holes, all that is asked for is there.
    let at = seek(&file, Place::Data(from)).unwrap_or(from);
    // There is always one at the very end; a file system without holes tells of no other.
    let hole = seek(&file, Place::Hole(at)).unwrap_or(u64::MAX);
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take((most as u64).min(hole.saturating_sub(at))).read_to_end(&mut bytes)?;
    Ok(Part { at, bytes })
}

/// A whole file; `None` if there is none, or it is longer than that.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = open(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok(if bytes.len() as u64 > most { no_file(path) } else { Some(bytes) })
}

/// A record; `None` if it is not there or was torn by a power cut.
pub(crate) fn get<T: DeserializeOwned>(path: &Path, most: u64) -> io::Result<Option<T>> {
    let bytes = read(path, most)?.unwrap_or_default();
    if bytes.is_empty() {
        return Ok(None);
    }
    Ok(serde_json::from_slice(&bytes)
        .map_err(|error| tracing::debug!(path = %path.display(), %error, "unreadable"))
        .ok())
}

/// Writes a record so that others see all of it or nothing.
pub(crate) fn put<T: Serialize>(path: &Path, record: &T) -> io::Result<()> {
    put_bytes(path, &serde_json::to_vec(record)?, 0o600)
}

/// Writes a record that must not be there yet; `AlreadyExists` if it is. The file is for [`put_over`].
pub(crate) fn put_new<T: Serialize>(path: &Path, record: &T) -> io::Result<File> {
    let bytes = serde_json::to_vec(record)?;
    let (folder, name) = parent(path)?;
    let mut file = make(&folder, name, 0o600)?;
    file.write_all(&bytes)?;
    Ok(file)
}

/// Writes a record in the place of an earlier one, without making another file: for records that are looked
/// at again. Whoever reads meanwhile may find a torn one, which is none.
pub(crate) fn put_over<T: Serialize>(file: &File, record: &T) -> io::Result<()> {
    let bytes = serde_json::to_vec(record)?;
    file.write_all_at(&bytes, 0)?;
    if file.metadata()?.len() > bytes.len() as u64 {
        file.set_len(bytes.len() as u64)?;
    }
    Ok(())
}

/// Writes a record so that it is there after a power cut as well.
///
/// It is renamed before it is synced: one commit of the file system's journal takes both, where syncing
/// twice waits for two. A power cut in between may leave a torn record, and that is none.
pub(crate) fn put_durably<T: Serialize>(path: &Path, record: &T) -> io::Result<()> {
    let (file, folder) = write(path, &serde_json::to_vec(record)?, 0o600)?;
    file.sync_all()?;
    Ok(rustix::fs::fsync(&folder)?)
}

/// A file that others see whole.
pub(crate) fn put_bytes(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    write(path, bytes, mode).map(drop)
}

/// Makes an empty file; whether it was there already does not matter.
pub(crate) fn mark(path: &Path) -> io::Result<()> {
    let (folder, name) = parent(path)?;
    match make(&folder, name, 0o600) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => return other.map(drop),
    }
    let is_file = fs::symlink_metadata(path).is_ok_and(|about| about.is_file());
    if is_file { Ok(()) } else { put_bytes(path, b"", 0o600) }
}

/// A new file, which nothing stood in the place of.
fn make(folder: &OwnedFd, name: &OsStr, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | NEVER_WAITS;
    Ok(File::from(openat(folder, name, flags, Mode::from_raw_mode(mode))?))
}

/// Writes a file aside and renames it; the file, and the folder it lies in.
fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<(File, OwnedFd)> {
    let (folder, name) = parent(path)?;
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let beside = |what: &str| {
        let mut other = OsString::from(".");
        other.push(name);
        other.push(format!(".{}-{count}.{what}", std::process::id()));
        other
    };
    let aside = beside("part");
    let written = (|| {
        let mut file = make(&folder, &aside, mode)?;
        file.write_all(bytes)?;
        match renameat(&folder, &aside, &folder, name) {
            Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {
                // A folder has the name; it goes with the attempt.
                renameat(&folder, name, &folder, beside("was"))?;
                renameat(&folder, &aside, &folder, name)?;
            }
            other => other?,
        }
        Ok(file)
    })();
    match written {
        Ok(file) => Ok((file, folder)),
        Err(error) => {
            let _ = unlinkat(&folder, &aside, AtFlags::empty());
            Err(error)
        }
    }
}

/// Removes a file or a link, and nothing else.
pub(crate) fn remove(path: &Path) {
    if let Ok((folder, name)) = parent(path)
        && statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    {
        let _ = unlinkat(&folder, name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, mknodat};
    use std::os::unix::fs::symlink;

    /// Everything that may stand where a file is expected, with a file outside that must not be touched.
    fn traps(folder: &Path) -> Vec<std::path::PathBuf> {
        let outside = folder.join("outside");
        fs::write(&outside, "17").unwrap();
        let here = folder.join("attempt");
        fs::create_dir(&here).unwrap();
        symlink(&outside, here.join("link")).unwrap();
        symlink(folder.join("new"), here.join("nowhere")).unwrap();
        mknodat(CWD, here.join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        fs::create_dir_all(here.join("folder/full")).unwrap();
        std::os::unix::net::UnixListener::bind(here.join("socket")).unwrap();
        ["link", "nowhere", "pipe", "folder", "socket"].map(|name| here.join(name)).to_vec()
    }

    fn untouched(folder: &Path) {
        assert_eq!(fs::read(folder.join("outside")).unwrap(), b"17");
        assert!(!folder.join("new").exists());
    }

    #[test]
    fn what_is_no_plain_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        for trap in traps(folder.path()) {
            assert!(open(&trap).unwrap().is_none(), "{}", trap.display());
            assert_eq!(read(&trap, WORD).unwrap(), None);
            assert_eq!(get::<u32>(&trap, RECORD).unwrap(), None);
            assert_eq!(read_part(&trap, 0, 100).unwrap(), b"");
        }
    }

    #[test]
    fn what_is_written_replaces_what_is_no_plain_file() {
        type Way = fn(&Path) -> io::Result<()>;
        let ways: [Way; 4] = [
            |path| put_bytes(path, b"word", 0o600),
            mark,
            |path| open_to_add(path, b"").map(drop),
            |path| put_durably(path, &1),
        ];
        for way in ways {
            let folder = tempfile::tempdir().unwrap();
            for trap in traps(folder.path()) {
                way(&trap).unwrap();
                assert!(fs::symlink_metadata(&trap).unwrap().is_file(), "{}", trap.display());
                untouched(folder.path());
            }
        }
    }

    #[test]
    fn a_new_record_is_not_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        for trap in traps(folder.path()) {
            let kind = put_new(&trap, &1).unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::AlreadyExists, "{}", trap.display());
        }
        untouched(folder.path());
        assert!(open_pipe(&folder.path().join("attempt/link")).is_none());
    }

    #[test]
    fn a_record_is_written_over_by_longer_and_shorter_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let file = put_new(&path, &1).unwrap();
        for record in [123_456, 7, 89] {
            put_over(&file, &record).unwrap();
            assert_eq!(get::<u32>(&path, RECORD).unwrap(), Some(record));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_is_a_link_is_not_entered() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("real")).unwrap();
        fs::write(folder.path().join("real/exit"), "17").unwrap();
        symlink(folder.path().join("real"), folder.path().join("attempt")).unwrap();
        let inside = folder.path().join("attempt/exit");
        assert!(read(&inside, WORD).is_err());
        assert!(put_bytes(&inside, b"18", 0o600).is_err());
        assert_eq!(fs::read(folder.path().join("real/exit")).unwrap(), b"17");
    }

    #[test]
    fn rights_that_were_taken_away_are_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("attempt");
        fs::create_dir(&here).unwrap();
        fs::write(here.join("exit"), "17").unwrap();
        for mode in [0o000, 0o400, 0o300] {
            fs::set_permissions(&here, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&here.join("exit"), WORD).unwrap().unwrap(), b"17");
            let mode = fs::metadata(&here).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
        // Its own rights are what they are; for a user who may not read it, it is none.
        fs::set_permissions(here.join("exit"), fs::Permissions::from_mode(0o000)).unwrap();
        assert!(read(&here.join("exit"), WORD).is_ok());
    }

    #[test]
    fn what_is_too_long_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("exit");
        fs::write(&path, "123").unwrap();
        assert_eq!(read(&path, 3).unwrap().unwrap(), b"123");
        assert_eq!(read(&path, 2).unwrap(), None);
    }

    #[test]
    fn a_torn_record_is_no_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("exit.json");
        assert_eq!(get::<u32>(&path, RECORD).unwrap(), None);
        fs::write(&path, b"").unwrap();
        assert_eq!(get::<u32>(&path, RECORD).unwrap(), None);
        put_durably(&path, &5).unwrap();
        assert_eq!(get::<u32>(&path, RECORD).unwrap(), Some(5));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
