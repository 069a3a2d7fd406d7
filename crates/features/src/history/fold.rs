//! Gathers pushed rows into Parquet files, view by view, and clears the log behind them.
//!
//! Must hold: stop anywhere, run again, same result. A file, the claim on its blob and the marks on
//! the log are one transaction; a file that was written and not put down is collected as any blob
//! without a claim is.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;
use falaj_base::{Ctx, Error, ProjectId, Result, Timestamp, code};
use falaj_governance::tenancy::Project;
use falaj_store::db::{Tx, params};
use falaj_store::objects::{Expected, Objects};
use falaj_store::record::Change;
use falaj_store::worker::Worker;
use falaj_tables::{Layout, RecordWriter};
use futures::stream;
use serde_json::json;
use uuid::Uuid;

use super::log::{self, Entry, Position};
use super::segment::{self, CLAIM, KNOWN, New, PLACE};
use crate::definition::{VersionId, ViewVersion, store};
use crate::online::place;
use crate::schema::moment;
use crate::source::blocking;
use crate::{FEATURE_WRITE, Features};

const NAME: &str = "feature-fold";
const EVERY: Duration = Duration::from_secs(30);
const TRIM_EVERY: Duration = Duration::from_mins(10);
/// How many pushes are deleted at a time.
const TRIM: usize = 1000;

pub(crate) fn folder(features: &Features) -> Worker {
    let features = features.clone();
    Worker::new(NAME, EVERY, move || {
        let features = features.clone();
        async move { features.fold().await.map(drop) }
    })
}

pub(crate) fn trimmer(features: &Features) -> Worker {
    let features = features.clone();
    Worker::new("feature-log-trim", TRIM_EVERY, move || {
        let features = features.clone();
        async move { features.trim().await.map(drop) }
    })
}

impl Features {
    /// Gathers what is due; tells how many files that made. A view that fails does not stop the
    /// others: what went wrong first is told at the end.
    pub async fn fold(&self) -> Result<usize> {
        let old = self.db().now() - self.config().segment_age.get();
        let size = self.config().segment_size.bytes();
        let due = self.db().read(move |tx| due(tx, old, size)).await?;
        let (mut made, mut wrong) = (0, None);
        for view in due {
            loop {
                match self.fold_view(view, old).await {
                    Ok(true) => made += 1,
                    Ok(false) => break,
                    Err(error) => {
                        tracing::warn!(%view, error = error.chain(), "rows were not gathered");
                        wrong.get_or_insert(error);
                        break;
                    }
                }
            }
        }
        wrong.map_or(Ok(made), Err)
    }

    /// Gathers the oldest pushes of a view into one file; false if nothing is due any more.
    async fn fold_view(&self, view: VersionId, old: Timestamp) -> Result<bool> {
        let ctx = Ctx::system(NAME);
        let known = self.db().read(move |tx| store::by_id(tx, view)).await?;
        let (project, definition) = known.ok_or_else(|| Error::internal("a push to no view"))?;
        let view = ViewVersion::of(&Arc::new(definition))
            .ok_or_else(|| Error::internal("a push to what is no view"))?;
        let project = self.home(&ctx, project).await?;
        let entries = self.oldest(view.rows(), self.config().segment_size.bytes()).await?;
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(false) };
        let bytes: usize = entries.iter().map(Entry::size).sum();
        if first.at > old && (bytes as u64) < self.config().segment_size.bytes() {
            return Ok(false);
        }
        let span = (first.position, last.position);
        let (count, rows) = (entries.len() as u64, entries.iter().map(|it| it.rows).sum::<u64>());
        let content = blocking(move || file(&entries)).await?;
        let size = content.len() as u64;
        let expected = Expected { size: Some(size), sha256: None };
        let pieces = stream::iter([Ok(content)]);
        let staged =
            self.objects().upload(project.tenant_id, &project.zone, pieces, expected).await?;
        let staged_blob = staged.blob;
        let resource = view.resource(&project);
        ctx.authorize(&FEATURE_WRITE, &resource).await?;
        let write = move |tx: &mut Tx<'_>| {
            tx.lock(&lock(view.rows()))?;
            let id = Uuid::now_v7().to_string();
            // Rows that were erased meanwhile are in the file that was just written.
            let same = segment::rows_of(tx, view.rows(), span)? == rows;
            if !same || segment::mark(tx, view.rows(), span, &id)? != count {
                return Err(Error::new(&code::CHANGED, "the rows were gathered by another"));
            }
            let blob = Objects::attach(tx, &staged, CLAIM, &id)?;
            let tenant = project.tenant_id;
            segment::insert(tx, &New { id: &id, view: view.rows(), tenant, rows, size, blob })?;
            let told = json!({ "view": view.name(), "version": view.version(), "rows": rows });
            let change = Change::new(&FEATURE_WRITE, &resource)
                .event("feature.gathered", &told)
                .detail("rows", rows);
            tx.record(&ctx, change)
        };
        let written = self.db().write(write).await;
        if written.is_err() {
            self.objects().discard(staged_blob).await;
        }
        written.map(|()| true)
    }

    /// The oldest pushes of a view that are in no file, about as many as a file holds.
    async fn oldest(&self, view: VersionId, most: u64) -> Result<Vec<Entry>> {
        let (mut found, mut bytes, mut after) = (Vec::new(), 0, Position::START);
        while bytes < most {
            let read = move |tx: &mut Tx<'_>| log::read_view(tx, view, after, Position::END, true);
            let page = self.db().read(read).await?;
            let Some(last) = page.last().map(|entry| entry.position) else { break };
            after = last;
            for entry in page {
                if bytes >= most {
                    break;
                }
                bytes += entry.size() as u64;
                found.push(entry);
            }
        }
        Ok(found)
    }

    async fn home(&self, ctx: &Ctx, project: ProjectId) -> Result<Project> {
        self.tenancy()?.project_by_id(ctx, project).await
    }

    /// Takes pushes off the log that have been in a file for long enough; tells how many.
    pub async fn trim(&self) -> Result<u64> {
        let before = self.db().now() - self.config().log_keep.get();
        let mut gone = 0;
        loop {
            let deleted = self.db().write(move |tx| log::trim(tx, before, TRIM)).await?;
            gone += deleted;
            if deleted < TRIM as u64 {
                return Ok(gone);
            }
        }
    }
}

/// Views with a push that waits for too long, or with too much of them.
fn due(tx: &mut Tx<'_>, old: Timestamp, size: u64) -> Result<Vec<VersionId>> {
    let rows = tx.query(
        "SELECT view FROM feature_log WHERE segment IS NULL GROUP BY view
         HAVING MIN(at) <= $1 OR CAST(SUM(size) AS BIGINT) >= $2 ORDER BY view",
        &params![old, size],
    )?;
    rows.iter().map(|row| row.get("view")).collect()
}

/// What is held by whoever changes which rows are in which files.
pub(crate) fn lock(view: VersionId) -> String {
    format!("{NAME}/{view}")
}

/// The file of these pushes, with since when each row is known.
fn file(entries: &[Entry]) -> Result<Bytes> {
    let mut writer = None;
    for entry in entries {
        let batch = entry.batch()?;
        let mut fields: Vec<Field> =
            batch.schema_ref().fields().iter().map(|it| Field::clone(it)).collect();
        fields.push(Field::new(KNOWN, moment(), false));
        fields.push(Field::new(PLACE, DataType::Int64, false));
        let schema = Arc::new(Schema::new(fields));
        let known = TimestampMicrosecondArray::from(vec![entry.at.micros(); batch.num_rows()]);
        let known: ArrayRef = Arc::new(known.with_timezone("UTC"));
        let stood = place(entry.position).cast_signed();
        let stood: ArrayRef = Arc::new(Int64Array::from(vec![stood; batch.num_rows()]));
        let columns = batch.columns().iter().cloned().chain([known, stood]).collect();
        let batch = RecordBatch::try_new(schema.clone(), columns).map_err(Error::internal)?;
        let writer = match &mut writer {
            Some(writer) => writer,
            none => none.insert(RecordWriter::new(Vec::new(), schema, Layout::default())?),
        };
        writer.write(&batch)?;
    }
    let writer = writer.ok_or_else(|| Error::internal("a file of no pushes"))?;
    Ok(writer.close()?.into())
}
