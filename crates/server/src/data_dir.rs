//! The server's own folder: made for its user alone, and held by one server at a time.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use falaj_base::{Error, RequestId, Result, Secret, code};

/// The first admin's token.
pub const ADMIN_TOKEN: &str = "admin.token";
/// Stands while the first admin is being made: found at a start, it tells that the last one died
/// before the token was written.
const PENDING: &str = "admin.pending";
/// Names this server among those that share a database; locked while it runs.
const SERVER_ID: &str = "server.id";

/// The folder, held.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    server_id: String,
    /// The lock lasts as long as the file is open.
    _lock: File,
}

impl DataDir {
    /// Makes the folder if need be, and takes hold of it.
    pub fn open(path: &Path) -> Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|cause| unusable(path, cause))?;
        let file = path.join(SERVER_ID);
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&file)
            .map_err(|cause| unusable(&file, cause))?;
        lock.try_lock().map_err(|cause| match cause {
            TryLockError::WouldBlock => {
                let message = format!("another server is using {}", path.display());
                Error::new(&code::CONFLICT, message).at("data_dir")
            }
            TryLockError::Error(cause) => unusable(&file, cause),
        })?;
        let server_id = server_id(&mut lock).map_err(|cause| unusable(&file, cause))?;
        Ok(Self { path: path.to_owned(), server_id, _lock: lock })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same at every start from this folder: a server that died finds its leases again.
    #[must_use]
    pub fn server_id(&self) -> &str {
        &self.server_id
    }

    #[must_use]
    pub fn admin_token_path(&self) -> PathBuf {
        self.path.join(ADMIN_TOKEN)
    }

    /// Notes that an admin is about to be made; answers whether one already was, and its token
    /// never written.
    pub(crate) fn expect_admin(&self) -> Result<bool> {
        let pending = self.path.join(PENDING);
        if pending.exists() {
            return Ok(true);
        }
        write_private(&pending, b"")?;
        Ok(false)
    }

    /// Writes the token, if one was made, and forgets that one was expected.
    pub(crate) fn keep_admin_token(&self, token: Option<&Secret>) -> Result<()> {
        if let Some(token) = token {
            let line = zeroize_line(token);
            write_private(&self.admin_token_path(), line.as_bytes())?;
        }
        let pending = self.path.join(PENDING);
        std::fs::remove_file(&pending).map_err(|cause| unusable(&pending, cause))
    }
}

/// The token on a line of its own, wiped after use.
fn zeroize_line(token: &Secret) -> zeroize::Zeroizing<String> {
    zeroize::Zeroizing::new(format!("{}\n", token.expose()))
}

fn server_id(file: &mut File) -> std::io::Result<String> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let known = text.trim();
    if !known.is_empty() {
        return Ok(known.to_owned());
    }
    let id = RequestId::new().as_uuid().simple().to_string();
    file.write_all(id.as_bytes())?;
    file.sync_all()?;
    Ok(id)
}

/// Writes a file that only its owner may read, whole or not at all.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    let part = path.with_extension("part");
    let write = || -> std::io::Result<()> {
        // A leftover could carry a wider mode, which opening it would keep.
        let _ = std::fs::remove_file(&part);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&part, path)?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    };
    write().map_err(|cause| unusable(path, cause))
}

fn unusable(path: &Path, cause: std::io::Error) -> Error {
    let message = format!("cannot use {}: {cause}", path.display());
    Error::new(&code::INVALID_CONFIG, message).at("data_dir").caused_by(cause)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn one_server_at_a_time_and_always_the_same_name() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        let first = DataDir::open(&path).unwrap();
        let id = first.server_id().to_owned();
        assert_eq!(DataDir::open(&path).unwrap_err().code(), &code::CONFLICT);
        drop(first);
        assert_eq!(DataDir::open(&path).unwrap().server_id(), id);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_token_that_was_never_written_is_noticed() {
        let home = tempfile::tempdir().unwrap();
        let dir = DataDir::open(home.path()).unwrap();
        assert!(!dir.expect_admin().unwrap());
        assert!(dir.expect_admin().unwrap(), "the first start died here");
        dir.keep_admin_token(Some(&Secret::new("flj_x"))).unwrap();
        assert!(!dir.expect_admin().unwrap());
        let token = dir.admin_token_path();
        assert_eq!(std::fs::read_to_string(&token).unwrap(), "flj_x\n");
        assert_eq!(std::fs::metadata(&token).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
