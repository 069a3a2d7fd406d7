//! One place blobs lie in: a local directory or an S3 bucket.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use falaj_base::{BlobId, Error, Name, Result, TenantId, code};
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt, RetryConfig};
use reqwest::Url;

use super::config::{ObjectsConfig, RootConfig};
use super::failure::store_error;

/// An open root.
pub struct Root {
    pub name: Name,
    pub zone: Name,
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) part_size: usize,
    /// What a writer that never finished leaves behind, and how it is found again.
    pub(super) leftovers: Leftovers,
    prefix: Path,
}

/// How an upload that was cut off is cleaned up.
pub(super) enum Leftovers {
    /// A staging file beside the final place.
    Files(LocalFileSystem),
    /// An unfinished multipart upload; its id is kept with the blob.
    Parts(Arc<dyn MultipartStore>),
    /// The store cleans up by itself.
    None,
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
        Self { name, zone, store, part_size, leftovers: Leftovers::None, prefix: Path::default() }
    }

    fn local(config: &RootConfig, objects: &ObjectsConfig, directory: PathBuf) -> Result<Self> {
        create_private(&directory).map_err(|error| {
            let text = format!("the object root {} cannot be used", directory.display());
            Error::new(&code::INVALID_CONFIG, text).at("objects.roots").caused_by(error)
        })?;
        // Without fsync a finished upload would only be in the page cache when its row commits.
        let files =
            LocalFileSystem::new_with_prefix(&directory).map_err(store_error)?.with_fsync(true);
        Ok(Self {
            name: config.name.clone(),
            zone: config.zone.clone(),
            store: Arc::new(files.clone()),
            part_size: objects.local_part.as_usize().max(1),
            leftovers: Leftovers::Files(files),
            prefix: Path::default(),
        })
    }

    fn s3(config: &RootConfig, objects: &ObjectsConfig) -> Result<Self> {
        let refuse = || {
            let text = format!("`url` is {:?}; allowed: s3://bucket/prefix", config.url);
            Error::new(&code::INVALID_CONFIG, text).at("objects.roots.url")
        };
        let url = Url::parse(&config.url).map_err(|_| refuse())?;
        let bucket = url.host_str().filter(|_| url.scheme() == "s3").ok_or_else(refuse)?;
        let prefix = Path::parse(url.path().trim_matches('/')).map_err(|_| refuse())?;
        let options = ClientOptions::new().with_timeout(objects.s3_timeout.get());
        let retry = RetryConfig { max_retries: objects.s3_retries, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::new()
            .with_client_options(options)
            .with_retry(retry)
            .with_bucket_name(bucket)
            .with_region(&config.region)
            .with_allow_http(config.allow_http);
        if !config.endpoint.is_empty() {
            builder = builder.with_endpoint(&config.endpoint);
        }
        if !config.access_key.is_empty() {
            builder = builder
                .with_access_key_id(&config.access_key)
                .with_secret_access_key(config.secret_key.expose());
        }
        if !config.session_token.is_empty() {
            builder = builder.with_token(config.session_token.expose());
        }
        let store = builder.build().map_err(|error| refuse().caused_by(error))?;
        let store = Arc::new(store);
        Ok(Self {
            name: config.name.clone(),
            zone: config.zone.clone(),
            store: store.clone(),
            // S3 refuses smaller parts than 5 MiB, except the last.
            part_size: objects.s3_part.as_usize().max(5 << 20),
            leftovers: Leftovers::Parts(store),
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

    /// Deletes a blob's bytes and whatever an unfinished upload of it left. Absence is success.
    pub(super) async fn remove(&self, location: &Path, upload: Option<&str>) -> Result<()> {
        match self.store.delete(location).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(store_error(error)),
        }
        match (&self.leftovers, upload) {
            (Leftovers::Files(files), _) => {
                let place = files.path_to_filesystem(location).map_err(store_error)?;
                let sweep = tokio::task::spawn_blocking(move || remove_staging(&place)).await;
                sweep.map_err(Error::internal)?.map_err(Error::internal)
            }
            (Leftovers::Parts(store), Some(upload)) => {
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

/// Removes the staging files of one blob: its place with `#` and a number behind it.
fn remove_staging(place: &std::path::Path) -> std::io::Result<()> {
    for number in 1.. {
        let mut staging = place.as_os_str().to_owned();
        staging.push(format!("#{number}"));
        match std::fs::remove_file(PathBuf::from(staging)) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn create_private(directory: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if directory.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => std::fs::File::open(parent)?.sync_all(),
        _ => Ok(()),
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
