//! Rows that are read once and needed several times: kept meanwhile as a Parquet file, sealed, among
//! the blobs of the project's zone.

use std::sync::Arc;
use std::time::Duration;

use falaj_base::{BlobId, ByteSize, Error, Result, code, hex};
use falaj_catalog::blob::BlobRanges;
use falaj_governance::tenancy::Project;
use falaj_store::objects::{Expected, Objects};
use falaj_tables::{Limits, Ranges, Table};
use futures::{Stream, StreamExt};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::open::blocking;

/// How often it is said that the file is still needed: well within any grace.
const STILL: Duration = Duration::from_mins(1);

/// A file that goes away with this. After a crash it goes away as an upload that failed.
#[derive(Debug)]
pub(super) struct Spool {
    objects: Objects,
    blob: BlobId,
    runtime: Handle,
    kept: JoinHandle<()>,
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.kept.abort();
        let (objects, blob) = (self.objects.clone(), self.blob);
        self.runtime.spawn(async move { objects.discard(blob).await });
    }
}

/// A file that was spooled.
pub(super) struct Spooled {
    pub(super) spool: Arc<Spool>,
    pub(super) table: Table,
    pub(super) sha256: String,
}

/// Keeps the bytes of a Parquet file, no more than so many. `name` tells whose they are.
pub(super) async fn spooled(
    objects: &Objects,
    project: &Project,
    name: &str,
    most: ByteSize,
    pieces: impl Stream<Item = Result<bytes::Bytes>> + Send,
) -> Result<Spooled> {
    let text = format!("the rows of `{name}` take more than {most} (`features.max_database_size`)");
    let mut left = most.bytes();
    let bounded = pieces.map(move |piece| {
        let piece = piece?;
        left = left
            .checked_sub(piece.len() as u64)
            .ok_or_else(|| Error::new(&code::TOO_LARGE, text.clone()))?;
        Ok(piece)
    });
    let (tenant, zone) = (project.tenant_id, &project.zone);
    let staged = objects.upload(tenant, zone, std::pin::pin!(bounded), Expected::default()).await?;
    let (keeper, blob) = (objects.clone(), staged.blob);
    let kept = tokio::spawn(async move {
        loop {
            tokio::time::sleep(STILL).await;
            if let Err(error) = keeper.keep(blob).await {
                tracing::warn!(%blob, error = error.chain(), "rows that are kept meanwhile may go");
            }
        }
    });
    let runtime = Handle::current();
    let spool = Arc::new(Spool { objects: objects.clone(), blob, runtime, kept });
    let ranges: Arc<dyn Ranges> = Arc::new(BlobRanges::new(objects.staged(tenant, &staged).await?));
    let table = blocking(move || Table::open(ranges, Limits::default())).await?;
    Ok(Spooled { spool, table, sha256: hex(&staged.sha256) })
}
