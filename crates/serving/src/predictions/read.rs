//! Reading predictions back.

use bytes::{Bytes, BytesMut};
use falaj_base::{Ctx, Error, Result, TenantId, Timestamp};
use falaj_store::objects::{Blob, Objects};
use falaj_store::record::AuditEntry;
use falaj_tables::{Batch, Batches, Limits, Part, Table};
use futures::{Stream, TryStreamExt, stream};
use uuid::Uuid;

use super::Predictions;
use super::actions::PREDICTION_READ;
use super::prediction::Home;
use super::store::{self, File};

/// How many files one call lists.
pub const MAX_FILES: usize = 1000;

/// The largest file that is read; those we write are far smaller.
const MAX_FILE: u64 = 4 << 30;

impl Predictions {
    /// Files with predictions from one moment up to another, in the order in which they end.
    pub async fn files(
        &self,
        ctx: &Ctx,
        home: &Home,
        span: (Timestamp, Timestamp),
        after: Option<(Timestamp, Uuid)>,
        limit: usize,
    ) -> Result<Vec<File>> {
        ctx.authorize(&PREDICTION_READ, &home.resource).await?;
        if span.0 > span.1 {
            return Err(Error::invalid("from", span.0, format!("not after {}", span.1)));
        }
        let (endpoint, limit) = (home.endpoint, limit.min(MAX_FILES));
        self.db().read(move |tx| store::files(tx, endpoint, span, after, limit)).await
    }

    /// A file as it lies: Parquet.
    pub async fn open(&self, ctx: &Ctx, home: &Home, file: &File) -> Result<Blob> {
        self.noted(ctx, home, std::slice::from_ref(file)).await?;
        self.objects().blob(home.tenant, file.blob).await
    }

    /// The rows of files, batch by batch; some of their columns, or all.
    pub async fn rows(
        &self,
        ctx: &Ctx,
        home: &Home,
        files: Vec<File>,
        columns: Option<Vec<String>>,
        rows_at_once: usize,
    ) -> Result<impl Stream<Item = Result<Batch>> + Send + use<>> {
        self.noted(ctx, home, &files).await?;
        let reading = Reading {
            objects: self.objects().clone(),
            tenant: home.tenant,
            files: files.into_iter(),
            part: Part { columns, groups: None, rows_at_once },
            current: None,
        };
        Ok(stream::try_unfold(reading, Reading::step))
    }

    async fn noted(&self, ctx: &Ctx, home: &Home, files: &[File]) -> Result<()> {
        ctx.authorize(&PREDICTION_READ, &home.resource).await?;
        let now = self.db().now();
        let mut entry = AuditEntry::allowed(ctx, &PREDICTION_READ, &home.resource, now);
        entry.details.insert("files".to_owned(), files.len().to_string());
        self.reads().note(entry);
        Ok(())
    }
}

/// Where a stream of rows stands.
struct Reading {
    objects: Objects,
    tenant: TenantId,
    files: std::vec::IntoIter<File>,
    part: Part,
    current: Option<Batches>,
}

impl Reading {
    async fn step(mut self) -> Result<Option<(Batch, Self)>> {
        loop {
            if let Some(mut batches) = self.current.take() {
                let next = tokio::task::spawn_blocking(move || {
                    let batch = batches.next().transpose();
                    batch.map(|batch| batch.map(|batch| (batch, batches)))
                });
                if let Some((batch, batches)) = next.await.map_err(Error::internal)?? {
                    self.current = Some(batches);
                    return Ok(Some((batch, self)));
                }
            }
            let Some(file) = self.files.next() else { return Ok(None) };
            let blob = self.objects.blob(self.tenant, file.blob).await?;
            let content = whole(&blob).await?;
            let part = self.part.clone();
            let opened = tokio::task::spawn_blocking(move || {
                Table::open(content, Limits::default())?.read(&part)
            });
            self.current = Some(opened.await.map_err(Error::internal)??);
        }
    }
}

async fn whole(blob: &Blob) -> Result<Bytes> {
    if blob.size() > MAX_FILE {
        return Err(Error::internal("a file of predictions that is too large"));
    }
    let mut content = BytesMut::with_capacity(usize::try_from(blob.size()).unwrap_or(0));
    let mut pieces = blob.read();
    while let Some(piece) = pieces.try_next().await? {
        content.extend_from_slice(&piece);
    }
    Ok(content.freeze())
}
