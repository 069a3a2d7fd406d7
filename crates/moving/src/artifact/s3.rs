//! Files in a bucket. Credentials, region and endpoint come from the environment, as MLflow takes
//! them: `AWS_ACCESS_KEY_ID` and its kin, and `MLFLOW_S3_ENDPOINT_URL` or `AWS_ENDPOINT_URL`.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::{File, boxed};
use crate::error::{Error, Result};

/// A prefix of a bucket.
#[derive(Clone, Debug)]
pub struct Bucket {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    shown: String,
}

impl Bucket {
    pub(super) fn open(bucket: &str, prefix: &str) -> Result<Self> {
        let shown = format!("s3://{bucket}/{prefix}");
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        if let Ok(endpoint) = std::env::var("MLFLOW_S3_ENDPOINT_URL") {
            builder = builder.with_allow_http(endpoint.starts_with("http://"));
            builder = builder.with_endpoint(endpoint);
        }
        let failed = |cause: &dyn std::fmt::Display| Error::Read {
            what: shown.clone(),
            cause: cause.to_string(),
        };
        let store = builder.build().map_err(|cause| failed(&cause))?;
        let prefix = Path::parse(prefix).map_err(|cause| failed(&cause))?;
        Ok(Self { store: Arc::new(store), prefix, shown })
    }

    pub(super) async fn files(&self) -> Result<Vec<File>> {
        let mut found: Vec<File> = self
            .store
            .list(Some(&self.prefix))
            .map_err(|cause| self.failed(&cause))
            .try_filter_map(|object| async move {
                let parts = object.location.prefix_match(&self.prefix);
                let parts: Option<Vec<String>> =
                    parts.map(|parts| parts.map(|part| part.as_ref().to_owned()).collect());
                let path = parts.filter(|parts| !parts.is_empty()).map(|parts| parts.join("/"));
                let modified = object.last_modified.timestamp_micros();
                Ok(path.map(|path| File { path, size: object.size, modified }))
            })
            .try_collect()
            .await?;
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    pub(super) async fn read(&self, file: &str) -> Result<BoxStream<'static, Result<Bytes>>> {
        let at = Path::parse(format!("{}/{file}", self.prefix)).map_err(|c| self.failed(&c))?;
        let found = self.store.get(&at).await.map_err(|cause| self.failed(&cause))?;
        let shown = format!("{}/{file}", self.shown);
        let named = move |cause: object_store::Error| Error::Read {
            what: shown.clone(),
            cause: cause.to_string(),
        };
        Ok(boxed(found.into_stream().map(move |piece| piece.map_err(&named))))
    }

    fn failed(&self, cause: &dyn std::fmt::Display) -> Error {
        Error::Read { what: self.shown.clone(), cause: cause.to_string() }
    }
}
