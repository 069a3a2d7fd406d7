//! Reading the rows of a version.

use std::sync::Arc;

use falaj_base::{BlobId, Ctx, Error, Result};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::objects::{Blob, Expected, Staged};
use falaj_store::record::AuditEntry;
use falaj_tables::{Limits, Ranges, Table};
use futures::{TryStreamExt, stream};

use super::store;
use super::tag::removed;
use super::version::{Version, VersionFile, Which};
use crate::blob::BlobRanges;
use crate::dataset::Dataset;
use crate::statistics::Profile;
use crate::{DATASET_READ, Datasets, blocking};

/// Bytes of statistics at most, as they are kept.
const MAX_STATISTICS: u64 = 256 << 20;

/// A version whose rows may be read.
#[derive(Debug)]
pub struct Opened {
    pub dataset: Dataset,
    pub version: Version,
    pub files: Vec<VersionFile>,
}

impl Datasets {
    /// A version for whoever reads its rows; that is put on record.
    pub async fn open(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        which: Which,
    ) -> Result<Opened> {
        let (dataset, version, files) = self.version(ctx, project, name, which).await?;
        if version.removed_at.is_some() {
            return Err(removed(version.version));
        }
        let resource = dataset.resource(project);
        let entry = AuditEntry::allowed(ctx, &DATASET_READ, &resource, self.db().now());
        self.reads().note(entry);
        Ok(Opened { dataset, version, files })
    }

    /// A file of a dataset, by its digest.
    pub async fn open_file(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        sha256: &str,
    ) -> Result<(VersionFile, Blob)> {
        let dataset = self.seen(ctx, project, name, &DATASET_READ).await?;
        let resource = dataset.resource(project);
        let digests = [sha256.to_owned()];
        let read = move |tx: &mut Tx<'_>| store::known_files(tx, &dataset.id, &digests);
        let found = self.db().read(read).await?.into_values().next();
        let file = found.ok_or_else(|| Error::not_found("file", sha256))?;
        let blob = self.blob(project, &file).await?;
        let entry = AuditEntry::allowed(ctx, &DATASET_READ, &resource, self.db().now());
        self.reads().note(entry);
        Ok((file, blob))
    }

    /// A file of a version, as it lies.
    pub async fn blob(&self, project: &Project, file: &VersionFile) -> Result<Blob> {
        self.objects().blob(project.tenant_id, file.blob).await
    }

    /// A file of a version, ready to be read.
    pub async fn table(&self, project: &Project, file: &VersionFile) -> Result<Table> {
        opened(self.blob(project, file).await?).await
    }

    /// The statistics that a blob holds.
    pub(crate) async fn profile(&self, project: &Project, blob: BlobId) -> Result<Profile> {
        let blob = self.objects().blob(project.tenant_id, blob).await?;
        if blob.size() > MAX_STATISTICS {
            return Err(Error::internal("statistics that are too large"));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(blob.size()).unwrap_or(0));
        let mut pieces = blob.read();
        while let Some(piece) = pieces.try_next().await? {
            bytes.extend_from_slice(&piece);
        }
        blocking(move || Profile::from_bytes(&bytes)).await
    }

    /// Stores statistics. Writing them out is work: there may be much of them.
    pub(crate) async fn store_profile(&self, project: &Project, of: Profile) -> Result<Staged> {
        let bytes = blocking(move || of.to_bytes()).await?;
        self.store_bytes(project, bytes).await
    }

    /// Stores bytes that lie in memory, in the zone of the project.
    async fn store_bytes(&self, project: &Project, bytes: Vec<u8>) -> Result<Staged> {
        let expected = Expected { size: Some(bytes.len() as u64), sha256: None };
        let pieces = stream::iter([Ok(bytes.into())]);
        self.objects().upload(project.tenant_id, &project.zone, pieces, expected).await
    }
}

/// A blob of Parquet, ready to be read.
pub(crate) async fn opened(blob: Blob) -> Result<Table> {
    let ranges: Arc<dyn Ranges> = Arc::new(BlobRanges::new(blob));
    blocking(move || Table::open(ranges, Limits::default())).await
}
