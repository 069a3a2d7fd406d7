//! The root key in a file that only the server's user may read.
//!
//! Must hold: the file is never seen half written (new file, fsync, rename, fsync of the
//! directory), never wider than 0600, and never overwritten by a first start. Versions are only
//! ever added: data keys in an old backup still open.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use falaj_base::{Clock, Error, Result, Timestamp, code};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::manager::{KeyManager, RootVersion, Wrapped};
use crate::seal::{self, DataKey};

const ROOT: &str = "local";
const FORMAT: u32 = 1;

/// Root keys in a local file.
#[derive(Debug)]
pub struct LocalKeyring(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    roots: RwLock<Vec<Root>>,
}

#[derive(Clone, Debug)]
struct Root {
    version: u32,
    created_at: Timestamp,
    key: DataKey,
}

/// The file as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyringFile {
    format: u32,
    /// Oldest first; the last one wraps.
    roots: Vec<RootEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RootEntry {
    version: u32,
    created_at: Timestamp,
    key: Zeroizing<String>,
}

impl LocalKeyring {
    /// Reads the keyring; makes one with a first root key if there is none.
    pub fn open(path: &Path) -> Result<Self> {
        let roots = match read(path)? {
            Some(roots) => roots,
            None => create(path)?,
        };
        Ok(Self::with(path, roots))
    }

    /// Reads the keyring that must be there: a new one could open nothing that exists.
    pub fn open_existing(path: &Path) -> Result<Self> {
        let roots = read(path)?.ok_or_else(|| {
            let text = format!(
                "there is no keyring at {}; without it nothing can be decrypted. Put back the copy",
                path.display()
            );
            Error::new(&code::INVALID_CONFIG, text).at("keys.keyring")
        })?;
        Ok(Self::with(path, roots))
    }

    fn with(path: &Path, roots: Vec<Root>) -> Self {
        Self(Arc::new(Inner { path: path.to_owned(), roots: RwLock::new(roots) }))
    }
}

impl Inner {
    fn newest(&self) -> Result<Root> {
        let roots = self.roots.read().unwrap_or_else(PoisonError::into_inner);
        roots.last().cloned().ok_or_else(|| Error::internal("the keyring is empty"))
    }

    /// The key of a version. One that is not known may have been added by another server that
    /// shares the file.
    fn version(&self, by: &RootVersion) -> Result<DataKey> {
        if by.root != ROOT {
            return Err(Error::new(
                &code::INVALID_CONFIG,
                format!("a key is wrapped by `{by}`, but its zone now has a local keyring"),
            ));
        }
        if let Some(key) = self.known(by.version) {
            return Ok(key);
        }
        if let Some(roots) = read(&self.path)? {
            *self.roots.write().unwrap_or_else(PoisonError::into_inner) = roots;
        }
        self.known(by.version).ok_or_else(|| {
            Error::new(&code::UNAVAILABLE, format!("the keyring file has no root key `{by}`"))
        })
    }

    fn known(&self, version: u32) -> Option<DataKey> {
        let roots = self.roots.read().unwrap_or_else(PoisonError::into_inner);
        roots.iter().find(|root| root.version == version).map(|root| root.key.clone())
    }

    fn wrap(&self, name: &str, key: &DataKey) -> Result<Wrapped> {
        let root = self.newest()?;
        let bytes = seal::seal_small(&root.key, name.as_bytes(), key.expose())?;
        Ok(Wrapped { by: named(root.version), bytes })
    }

    fn unwrap(&self, name: &str, wrapped: &Wrapped) -> Result<DataKey> {
        let root = self.version(&wrapped.by)?;
        let bytes = Zeroizing::new(seal::open_small(&root, name.as_bytes(), &wrapped.bytes)?);
        let bytes = bytes.as_slice().try_into().map(Zeroizing::new);
        bytes
            .map(DataKey::from_bytes)
            .map_err(|_| Error::new(&code::INTEGRITY, "a wrapped key has the wrong length"))
    }

    /// Adds a version. The file is read again under a lock: another server may share it.
    fn rotate(&self) -> Result<RootVersion> {
        let lock = lock(&self.path)?;
        let mut roots = read(&self.path)?.ok_or_else(|| {
            Error::new(&code::UNAVAILABLE, "the keyring file is gone; restore it first")
        })?;
        let last = roots.last().map_or(0, |root| root.version);
        roots.push(fresh(last + 1)?);
        replace(&self.path, &roots)?;
        *self.roots.write().unwrap_or_else(PoisonError::into_inner) = roots;
        drop(lock);
        Ok(named(last + 1))
    }
}

impl KeyManager for LocalKeyring {
    fn wrap<'a>(&'a self, name: &'a str, key: &'a DataKey) -> BoxFuture<'a, Result<Wrapped>> {
        async { self.0.wrap(name, key) }.boxed()
    }

    fn unwrap<'a>(&'a self, name: &'a str, wrapped: &'a Wrapped) -> BoxFuture<'a, Result<DataKey>> {
        async { self.0.unwrap(name, wrapped) }.boxed()
    }

    fn rewrap<'a>(&'a self, name: &'a str, wrapped: &'a Wrapped) -> BoxFuture<'a, Result<Wrapped>> {
        async { self.0.wrap(name, &self.0.unwrap(name, wrapped)?) }.boxed()
    }

    fn rotate(&self) -> BoxFuture<'_, Result<RootVersion>> {
        let inner = self.0.clone();
        async move {
            let rotated = tokio::task::spawn_blocking(move || inner.rotate()).await;
            rotated.unwrap_or_else(|panic| Err(Error::internal(panic)))
        }
        .boxed()
    }

    fn current(&self) -> BoxFuture<'_, Result<RootVersion>> {
        async { self.0.newest().map(|root| named(root.version)) }.boxed()
    }
}

fn named(version: u32) -> RootVersion {
    RootVersion { root: ROOT.to_owned(), version }
}

fn fresh(version: u32) -> Result<Root> {
    Ok(Root { version, created_at: Clock::System.now(), key: DataKey::generate()? })
}

/// Reads the file; `None` if there is none.
fn read(path: &Path) -> Result<Option<Vec<Root>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(path, "cannot be opened").caused_by(error)),
    };
    let mode = file.metadata().map_err(Error::internal)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let text = format!("has mode {mode:04o}: others may read it. Make it 0600");
        return Err(unusable(path, &text));
    }
    let text = Zeroizing::new(std::io::read_to_string(file).map_err(Error::internal)?);
    let parsed: KeyringFile = serde_json::from_str(&text)
        .map_err(|error| unusable(path, "is not a keyring").caused_by(error))?;
    if parsed.format > FORMAT {
        return Err(unusable(path, "was written by a newer version"));
    }
    let roots = parsed.roots.iter().map(decode).collect::<Result<Vec<_>>>();
    let roots = roots.map_err(|error| unusable(path, "is damaged").caused_by(error))?;
    if roots.is_empty() || !roots.is_sorted_by(|a, b| a.version < b.version) {
        return Err(unusable(path, "is damaged: its versions are not in order"));
    }
    Ok(Some(roots))
}

fn decode(entry: &RootEntry) -> Result<Root> {
    let bytes = STANDARD.decode(entry.key.as_bytes()).map(Zeroizing::new);
    let bytes = bytes.map_err(|_| Error::internal("a root key is not base64"))?;
    let bytes = bytes.as_slice().try_into().map(Zeroizing::new);
    let key = bytes.map_err(|_| Error::internal("a root key is not 32 bytes long"))?;
    Ok(Root { version: entry.version, created_at: entry.created_at, key: DataKey::from_bytes(key) })
}

/// Makes the first keyring. Linking refuses to replace a file that another server has just made.
fn create(path: &Path) -> Result<Vec<Root>> {
    let roots = vec![fresh(1)?];
    let staged = stage(path, &roots)?;
    let linked = fs::hard_link(&staged, path);
    fs::remove_file(&staged).map_err(Error::internal)?;
    match linked {
        Ok(()) => sync_directory(path).map(|()| roots),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            read(path)?.ok_or_else(|| unusable(path, "came and went during the start"))
        }
        Err(error) => Err(unusable(path, "cannot be created").caused_by(error)),
    }
}

fn replace(path: &Path, roots: &[Root]) -> Result<()> {
    let staged = stage(path, roots)?;
    fs::rename(&staged, path).map_err(Error::internal)?;
    sync_directory(path)
}

/// Writes the keyring beside its place, complete and on disk.
fn stage(path: &Path, roots: &[Root]) -> Result<PathBuf> {
    let encode = |root: &Root| RootEntry {
        version: root.version,
        created_at: root.created_at,
        key: Zeroizing::new(STANDARD.encode(root.key.expose())),
    };
    let file = KeyringFile { format: FORMAT, roots: roots.iter().map(encode).collect() };
    let text = Zeroizing::new(serde_json::to_vec_pretty(&file).map_err(Error::internal)?);
    let staged = path.with_extension(format!("new.{}", uuid::Uuid::now_v7().simple()));
    let write = || {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&staged)?;
        file.write_all(&text)?;
        file.sync_all()
    };
    write().map_err(|error| unusable(path, "cannot be written").caused_by(error))?;
    Ok(staged)
}

fn sync_directory(path: &Path) -> Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = File::open(directory.unwrap_or(Path::new("."))).map_err(Error::internal)?;
    directory.sync_all().map_err(Error::internal)
}

/// Held while the file is replaced; released when dropped.
fn lock(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600);
    let file = file.open(path.with_extension("lock")).map_err(Error::internal)?;
    file.lock().map_err(Error::internal)?;
    Ok(file)
}

fn unusable(path: &Path, why: &str) -> Error {
    Error::new(&code::INVALID_CONFIG, format!("the keyring {} {why}", path.display()))
}
