//! Doing what was asked for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow_select::filter::filter_record_batch;
use bytes::Bytes;
use falaj_base::{Ctx, Error, Result, code};
use falaj_catalog::blob::BlobRanges;
use falaj_governance::tenancy::Project;
use falaj_store::db::{Tx, params};
use falaj_store::objects::{Expected, Objects};
use falaj_store::worker::Worker;
use falaj_tables::{Layout, Limits, Part, Ranges, RecordWriter, Table};
use futures::stream;

use super::erasure::{ErasureId, Report};
use super::sets::ORIGIN;
use super::store;
use super::target::{Target, targets};
use crate::Features;
use crate::definition::VersionId;
use crate::history::segment::{self, CLAIM, OfView};
use crate::history::{Position, log, view_lock};
use crate::knowledge::store as knowledge;
use crate::source::blocking;

const NAME: &str = "feature-erase";
const EVERY: Duration = Duration::from_secs(30);
/// Rows that are read at a time.
const ROWS: usize = 65_536;
/// How often something is tried that others change meanwhile.
const TRIES: usize = 10;
/// How long others are waited for that write to the log.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn worker(features: &Features) -> Worker {
    let features = features.clone();
    Worker::new(NAME, EVERY, move || {
        let features = features.clone();
        async move { features.run_erasures().await.map(drop) }
    })
}

impl Features {
    /// Does what was asked for and left undone; tells how many that were.
    pub async fn run_erasures(&self) -> Result<usize> {
        let running = self.db().read(store::running).await?;
        let count = running.len();
        let mut failed = None;
        for erasure in running {
            // One that cannot be done keeps no other from being done.
            if let Err(error) = self.run_erasure(erasure.id).await {
                failed.get_or_insert(error);
            }
        }
        if self.db().read(store::has_old_keys).await? {
            self.db().write(store::forget_keys).await?;
        }
        failed.map_or(Ok(count), Err)
    }

    /// Does one erasure; done twice, it changes nothing more.
    pub(super) async fn run_erasure(&self, id: ErasureId) -> Result<()> {
        let erasure = self.erasure(id).await?;
        let Some(keys) = erasure.keys.clone() else { return Ok(()) };
        let mut report = Report { log: 0, files: 0, ..erasure.report.clone() };
        // Online first: it is what is read.
        let store = self.shelf().opened().await?;
        self.shelf().erase(store, &erasure).await?;
        self.all_before_committed().await?;
        let (project, entity) = (erasure.project, erasure.entity.clone());
        let found = move |tx: &mut Tx<'_>| targets(tx, project, &entity, &keys);
        let found = self.db().read(found).await?;
        let home = self.tenancy()?.project_by_id(&Ctx::system(NAME), erasure.project).await?;
        for target in &found {
            // The log before the files: what is gathered from now on is without the rows.
            report.log += self.erase_log(target).await?;
            report.files += self.erase_files(&home, target).await?;
        }
        report.quarantined += self.erase_quarantined(&erasure, &found).await?;
        report.statistics += self.forget_statistics(&found).await?;
        let sets_done = self.erase_sets(&home, &erasure, &found).await;
        let (sets, successors) = self.erased_sets(id).await?;
        (report.training_sets, report.successors) = (sets, successors);
        if let Some(datasets) = self.datasets_if_any() {
            report.datasets = datasets.made_by(&home, ORIGIN, &id.to_string()).await?;
        }
        // Whatever was read before and applied since.
        report.online += self.shelf().erase(store, &erasure).await?;
        sets_done?;
        let views = views(&found);
        let finish = move |tx: &mut Tx<'_>| {
            // Whoever began to count before the rows were gone may have put something down since.
            report.statistics += knowledge::forget(tx, &views)?;
            store::finish(tx, id, &report)
        };
        self.db().write(finish).await.map(drop)
    }

    /// Waits until nothing that began before now is still being written: on PostgreSQL the log is
    /// only read as far as that, and pushes behind it would be left as they are.
    async fn all_before_committed(&self) -> Result<()> {
        if self.db().settled(PATIENCE).await? {
            return Ok(());
        }
        let text = "others are still writing; the erasure is done as soon as they have";
        Err(Error::new(&code::UNAVAILABLE, text).retry_after(EVERY))
    }

    /// Drops the statistics of views that have the entity; tells how many. They are counted anew when
    /// somebody asks for it.
    async fn forget_statistics(&self, targets: &[Target]) -> Result<u64> {
        let views = views(targets);
        self.db().write(move |tx| knowledge::forget(tx, &views)).await
    }

    /// Takes rows out of the pushes of the log; tells how many.
    async fn erase_log(&self, target: &Target) -> Result<u64> {
        let (view, mut after, mut gone) = (target.view.rows(), Position::START, 0);
        let until = self.db().read(log::end).await?;
        loop {
            let read = move |tx: &mut Tx<'_>| log::read_view(tx, view, after, until, false);
            let page = self.db().read(read).await?;
            let Some(last) = page.last().map(|entry| entry.position) else { return Ok(gone) };
            let of = target.clone();
            let changed = blocking(move || {
                let mut changed = Vec::new();
                for entry in page {
                    let batch = entry.batch()?;
                    let others = of.others(&batch)?;
                    let rows = others.true_count() as u64;
                    if let Some(bytes) = log::without(&batch, &others)? {
                        changed.push((entry, rows, bytes));
                    }
                }
                Ok(changed)
            });
            let changed = changed.await?;
            let fewer: u64 = changed.iter().map(|(entry, rows, _)| entry.rows - rows).sum();
            let write = move |tx: &mut Tx<'_>| {
                tx.lock(&view_lock(view))?;
                for (entry, rows, bytes) in &changed {
                    if !log::replace(tx, entry, *rows, bytes)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            };
            // Somebody else has changed a push meanwhile: it is read again.
            if self.db().write(write).await? {
                (after, gone) = (last, gone + fewer);
            }
        }
    }

    /// Writes the files of pushes anew that have such rows; tells how many rows are gone.
    async fn erase_files(&self, home: &Project, target: &Target) -> Result<u64> {
        let view = target.view.rows();
        let mut gone = 0;
        for _ in 0..TRIES {
            let mut again = false;
            for one in self.db().read(move |tx| segment::all(tx, Some(view))).await? {
                match self.erase_file(home, target, &one).await? {
                    Some(rows) => gone += rows,
                    None => again = true,
                }
            }
            if !again {
                return Ok(gone);
            }
        }
        Err(Error::new(&code::CHANGED, "the files of the view change all the time"))
    }

    /// Writes a file anew without such rows, if it has some; tells how many are gone, or nothing if
    /// somebody else has written it meanwhile.
    async fn erase_file(
        &self,
        home: &Project,
        target: &Target,
        one: &OfView,
    ) -> Result<Option<u64>> {
        let blob = self.objects().blob(one.tenant, one.blob).await?;
        let ranges: Arc<dyn Ranges> = Arc::new(BlobRanges::new(blob));
        let of = target.clone();
        let Some((content, rows, fewer)) = blocking(move || rewritten(ranges, &of)).await? else {
            return Ok(Some(0));
        };
        let size = content.len() as u64;
        let expected = Expected { size: Some(size), sha256: None };
        let pieces = stream::iter([Ok(content)]);
        let staged = self.objects().upload(one.tenant, &home.zone, pieces, expected).await?;
        let (new, old, view) = (staged.blob, one.clone(), target.view.rows());
        let write = move |tx: &mut Tx<'_>| {
            tx.lock(&view_lock(view))?;
            let blob = Objects::attach(tx, &staged, CLAIM, &old.id)?;
            let changed = tx.execute(
                "UPDATE feature_segment SET blob = $3, rows = $4, size = $5
                 WHERE id = $1 AND blob = $2",
                &params![old.id.as_str(), old.blob, blob, rows, size],
            )?;
            if changed == 0 {
                return Err(Error::new(&code::CHANGED, "the file was written anew by another"));
            }
            Objects::detach(tx, old.blob, CLAIM, &old.id)
        };
        match self.db().write(write).await {
            Ok(()) => Ok(Some(fewer)),
            Err(error) => {
                self.objects().discard(new).await;
                if error.code().id == code::CHANGED.id { Ok(None) } else { Err(error) }
            }
        }
    }
}

/// All versions of the views, each once and in an order that all who lock them keep.
fn views(targets: &[Target]) -> Vec<VersionId> {
    let versions = targets.iter().flat_map(|target| target.versions.iter().copied());
    versions.collect::<BTreeSet<_>>().into_iter().collect()
}

/// A file without the rows of an entity: its content, how many rows it has, and how many fewer than
/// before. None if it has none of them.
fn rewritten(ranges: Arc<dyn Ranges>, target: &Target) -> Result<Option<(Bytes, u64, u64)>> {
    let table = Table::open(ranges, Limits::default())?;
    let part = |columns| Part { columns, groups: None, rows_at_once: ROWS };
    let mut found = 0;
    for batch in table.records(&part(Some(target.columns())))? {
        found += target.others(&batch?)?.false_count() as u64;
    }
    if found == 0 {
        return Ok(None);
    }
    let mut writer = RecordWriter::new(Vec::new(), table.schema().clone(), Layout::default())?;
    for batch in table.records(&part(None))? {
        let batch = batch?;
        let others = target.others(&batch)?;
        writer.write(&filter_record_batch(&batch, &others).map_err(Error::internal)?)?;
    }
    let rows = writer.rows();
    Ok(Some((writer.close()?.into(), rows, found)))
}
