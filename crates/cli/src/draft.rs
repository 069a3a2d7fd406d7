//! A file that is written under another name and takes its own when it is complete: whoever reads
//! it sees the whole of it or what was there before, never half.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tokio::fs::File;

use crate::exit::{Result, file_error};

/// Whoever may read the folder may read the file, as the umask says.
pub(crate) const SHARED: u32 = 0o666;
/// The user alone.
pub(crate) const PRIVATE: u32 = 0o600;

/// Removed when dropped, unless it was kept.
#[derive(Debug)]
pub(crate) struct Draft {
    path: PathBuf,
    target: PathBuf,
}

impl Draft {
    /// Begins a file that is to become `target`, in the same folder. A target that is no plain
    /// file, such as `/dev/null` or a pipe, cannot be replaced and is written to as it is.
    pub(crate) fn create(target: &Path, mode: u32) -> Result<(Self, File)> {
        // Through a link, what it points to is replaced, and not the link.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        if fs::metadata(&target).is_ok_and(|there| !there.is_file()) {
            let file = OpenOptions::new().write(true).open(&target);
            let file = File::from_std(file.map_err(file_error("write", &target))?);
            return Ok((Self { path: target.clone(), target }, file));
        }
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let draft = Self { path: target.with_file_name(name), target };
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(mode).open(&draft.path);
        let file = file.map_err(file_error("write", &draft.path))?;
        Ok((draft, File::from_std(file)))
    }

    /// Puts the complete file in its place, durably.
    pub(crate) async fn keep(self, file: File) -> Result<()> {
        if self.path == self.target {
            return Ok(());
        }
        file.sync_all().await.map_err(file_error("write", &self.path))?;
        fs::rename(&self.path, &self.target).map_err(file_error("write", &self.target))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After `keep` there is nothing under this name any more.
        if self.path != self.target {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn what_was_there_stays_until_all_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&target, "before").unwrap();
        symlink(&target, &link).unwrap();
        for path in [&target, &link] {
            let (draft, mut file) = Draft::create(path, SHARED).unwrap();
            file.write_all(b"half").await.unwrap();
            file.flush().await.unwrap();
            drop(draft);
            assert_eq!(fs::read(&target).unwrap(), b"before");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no draft is left");
        }
        let (draft, mut file) = Draft::create(&link, PRIVATE).unwrap();
        file.write_all(b"after").await.unwrap();
        file.flush().await.unwrap();
        draft.keep(file).await.unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"after");
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[tokio::test]
    async fn a_device_is_written_to_and_not_replaced() {
        let (draft, mut file) = Draft::create(Path::new("/dev/null"), SHARED).unwrap();
        file.write_all(b"gone").await.unwrap();
        draft.keep(file).await.unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
