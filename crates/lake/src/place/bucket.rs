//! A bucket of an S3 server.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use falaj_base::{Error, Result, code};
use falaj_tables::Blocks;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{Error as StoreError, GetOptions, GetRange, ObjectStore, ObjectStoreExt};
use tokio::runtime::Handle;

use super::file::{File, Hashes, changed};
use super::{Entry, Place};

/// How many names are passed over that lie deeper than the folder that is listed.
const DEEPER: usize = 1_000_000;

/// Files below a prefix of a bucket.
#[derive(Clone, Debug)]
pub struct Bucket {
    name: String,
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    runtime: Handle,
    hashes: Hashes,
}

impl Bucket {
    /// A bucket from a prefix on, and what paths in it begin with when people are told of them. Must be
    /// called on a runtime, which the reading threads use.
    #[must_use]
    pub fn new(name: &str, store: Arc<dyn ObjectStore>, prefix: Path) -> Self {
        let (name, runtime) = (name.to_owned(), Handle::current());
        Self { name, store, prefix, runtime, hashes: Hashes::default() }
    }

    fn location(&self, path: &str) -> Result<Path> {
        let below = Path::parse(path).map_err(|error| {
            Error::invalid("path", self.shown(path), "names of objects").caused_by(error)
        })?;
        Ok(below.parts().fold(self.prefix.clone(), Path::join))
    }

    fn failed(&self, path: &str, error: StoreError) -> Error {
        let shown = self.shown(path);
        match error {
            StoreError::Precondition { .. } => changed(&shown).caused_by(error),
            StoreError::NotFound { .. } => {
                Error::invalid("path", shown, "objects that are there").caused_by(error)
            }
            StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
                let text = format!("the S3 server refuses our credentials for `{shown}`");
                Error::new(&code::UNAVAILABLE, text).caused_by(error)
            }
            _ => {
                let text = format!("the S3 server of `{}` does not answer", self.name);
                Error::new(&code::UNAVAILABLE, text)
                    .retry_after(Duration::from_secs(5))
                    .caused_by(error)
            }
        }
    }
}

impl Place for Bucket {
    fn shown(&self, path: &str) -> String {
        crate::path::joined(&self.name, path)
    }

    fn list(&self, folder: &str, after: Option<&str>, most: usize) -> Result<Vec<Entry>> {
        let prefix = self.location(folder)?;
        let start = match after {
            Some(after) => Some(self.location(&crate::path::joined(folder, after))?),
            None => None,
        };
        let listed = async {
            let mut stream = match &start {
                Some(start) => self.store.list_with_offset(Some(&prefix), start),
                None => self.store.list(Some(&prefix)),
            };
            let (mut found, mut deeper) = (Vec::new(), 0);
            while let Some(meta) = stream.try_next().await.map_err(|e| self.failed(folder, e))? {
                let Some(mut parts) = meta.location.prefix_match(&prefix) else { continue };
                let (Some(name), None) = (parts.next(), parts.next()) else {
                    deeper += 1;
                    if deeper > DEEPER {
                        let allowed = format!("a folder with at most {DEEPER} objects in folders");
                        return Err(Error::invalid("path", self.shown(folder), allowed));
                    }
                    continue;
                };
                let name = name.as_ref().to_owned();
                if after.is_some_and(|after| name.as_str() <= after) {
                    continue;
                }
                let modified = meta.last_modified.timestamp_millis();
                found.push(Entry { name, size: meta.size, modified });
                if found.len() > most {
                    let allowed = format!("a folder of at most {most} files");
                    return Err(Error::invalid("path", self.shown(folder), allowed));
                }
            }
            Ok(found)
        };
        let mut found = self.runtime.block_on(listed)?;
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn open(&self, path: &str) -> Result<Option<File>> {
        let location = self.location(path)?;
        let meta = match self.runtime.block_on(self.store.head(&location)) {
            Ok(meta) => meta,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.failed(path, error)),
        };
        let (of, shown, path) = (self.clone(), self.shown(path), path.to_owned());
        let version = meta.e_tag.as_ref().map_or(String::new(), |tag| format!("{path}\n{tag}"));
        // An object that was replaced meanwhile has another tag, and each read asks for this one.
        let (tag, whole) = (meta.e_tag.clone(), meta.size);
        let fetch = move |range: Range<u64>| -> Result<Bytes> {
            let options = GetOptions {
                range: Some(GetRange::Bounded(range)),
                if_match: tag.clone(),
                ..GetOptions::default()
            };
            let read = async {
                let found = of.store.get_opts(&location, options).await?;
                let same = found.meta.size == whole;
                found.bytes().await.map(|bytes| same.then_some(bytes))
            };
            let read = of.runtime.block_on(read).map_err(|error| of.failed(&path, error))?;
            read.ok_or_else(|| changed(&of.shown(&path)))
        };
        let blocks = Blocks::new(meta.size, fetch);
        Ok(Some(File::elsewhere(shown, blocks, &self.hashes, version)))
    }
}
