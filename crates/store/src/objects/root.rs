//! One place blobs lie in: a local directory or an S3 bucket.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use falaj_base::{BlobId, Error, Name, Result, TenantId, code};
use object_store::local::LocalFileSystem;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::bucket::BucketConfig;
use super::config::{ObjectsConfig, RootConfig};
use super::failure::store_error;
use super::staged::{create_directory, remove_staging};

/// How much of a part is sealed at a time.
const BATCH: usize = 1 << 20;

/// An open root.
pub struct Root {
    pub name: Name,
    pub zone: Name,
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) part_size: usize,
    pub(super) kind: Kind,
    prefix: Path,
}

/// How blobs are written, and what a writer that never finished leaves behind.
pub(super) enum Kind {
    /// Files below this directory. A crash leaves a staging file beside the final place.
    Directory(PathBuf),
    /// Parts of a multipart upload. An unfinished one stays; its id is kept with the blob.
    Bucket(Arc<dyn MultipartStore>),
    /// Any other store; it cleans up by itself.
    Other,
}

impl Root {
    pub fn open(
        config: &RootConfig,
        objects: &ObjectsConfig,
        data_dir: &std::path::Path,
    ) -> Result<Self> {
        if config.url.is_empty() {
            Self::local(config, objects, data_dir.join(&config.path))
        } else {
            Self::s3(config, objects)
        }
    }

    /// A root over any store: for tests that need one which fails.
    #[must_use]
    pub fn over(name: Name, zone: Name, store: Arc<dyn ObjectStore>, part_size: usize) -> Self {
        Self { name, zone, store, part_size, kind: Kind::Other, prefix: Path::default() }
    }

    fn local(config: &RootConfig, objects: &ObjectsConfig, directory: PathBuf) -> Result<Self> {
        create_directory(&directory).map_err(|error| {
            let text = format!("the object root {} cannot be used", directory.display());
            Error::new(&code::INVALID_CONFIG, text).at("objects.roots").caused_by(error)
        })?;
        let files =
            LocalFileSystem::new_with_prefix(&directory).map_err(store_error)?.with_fsync(true);
        Ok(Self {
            name: config.name.clone(),
            zone: config.zone.clone(),
            store: Arc::new(files),
            part_size: objects.local_part.as_usize().max(1),
            kind: Kind::Directory(directory),
            prefix: Path::default(),
        })
    }

    fn s3(config: &RootConfig, objects: &ObjectsConfig) -> Result<Self> {
        let bucket = BucketConfig {
            url: config.url.clone(),
            endpoint: config.endpoint.clone(),
            region: config.region.clone(),
            access_key: config.access_key.clone(),
            secret_key: config.secret_key.clone(),
            session_token: config.session_token.clone(),
            allow_http: config.allow_http,
            timeout: objects.s3_timeout.get(),
            retries: objects.s3_retries,
            retry_for: None,
            setting: "objects.roots.url",
        };
        let (store, prefix) = bucket.open()?;
        let store = Arc::new(store);
        Ok(Self {
            name: config.name.clone(),
            zone: config.zone.clone(),
            store: store.clone(),
            // S3 refuses smaller parts than 5 MiB, except the last.
            part_size: objects.s3_part.as_usize().max(5 << 20),
            kind: Kind::Bucket(store),
            prefix,
        })
    }

    /// Where a blob lies. The last digits of its id are random, so they spread the directories.
    pub(super) fn location(&self, tenant: TenantId, blob: BlobId) -> Path {
        let (tenant, blob) = (tenant.as_uuid().simple(), blob.as_uuid().simple().to_string());
        let spread = &blob[blob.len() - 2..];
        let parts = [tenant.to_string(), spread.to_owned(), blob.clone()];
        parts.into_iter().fold(self.prefix.clone(), Path::join)
    }

    /// How much of a blob is worked on at a time: to a file it is written as it was sealed, parts
    /// are gathered.
    pub(super) fn batch(&self) -> usize {
        match self.kind {
            Kind::Directory(_) => self.part_size,
            Kind::Bucket(_) | Kind::Other => BATCH,
        }
    }

    /// The file that lies at a location, if this root has files.
    pub(super) fn file(&self, location: &Path) -> Option<PathBuf> {
        match &self.kind {
            Kind::Directory(directory) => Some(directory.join(location.as_ref())),
            Kind::Bucket(_) | Kind::Other => None,
        }
    }

    /// Deletes a blob's bytes and whatever an unfinished upload of it left. Absence is success.
    pub(super) async fn remove(&self, location: &Path, upload: Option<&str>) -> Result<()> {
        match self.store.delete(location).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(store_error(error)),
        }
        match (&self.kind, upload) {
            (Kind::Directory(directory), _) => {
                let place = directory.join(location.as_ref());
                let sweep = tokio::task::spawn_blocking(move || remove_staging(&place)).await;
                sweep.map_err(Error::internal)?.map_err(Error::internal)
            }
            (Kind::Bucket(store), Some(upload)) => {
                let aborted = store.abort_multipart(location, &upload.to_owned()).await;
                match aborted {
                    Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                    Err(error) => Err(store_error(error)),
                }
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root")
            .field("name", &self.name)
            .field("zone", &self.zone)
            .finish_non_exhaustive()
    }
}
