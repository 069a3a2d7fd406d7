//! Training sets that have an entity among their moments, and the datasets that they became.
//!
//! Must hold: a set that was made never changes. One that has the entity loses its file and its moments
//! in one transaction, in which another set with the other rows comes about, and with which every
//! version of a dataset goes that has the file. One that waits fails: it would be made of the entity.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_cast::cast;
use arrow_select::filter::filter_record_batch;
use aws_lc_rs::digest::{SHA256, digest};
use falaj_base::{BlobId, Ctx, Error, Result, TenantId, code, hex};
use falaj_catalog::blob::BlobRanges;
use falaj_catalog::pipe::pipe;
use falaj_catalog::replace::Replacement;
use falaj_catalog::version::Origin;
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::objects::{Expected, Objects, Staged};
use falaj_store::record::Change;
use falaj_tables::{Layout, Limits, Part, Ranges, RecordWriter, Table};
use serde_json::json;

use super::erasure::{Erasure, ErasureId};
use super::store as erasures;
use super::target::Target;
use crate::source::{blocking, fit, fits};
use crate::training::store::{self, CLAIM, Files, MOMENTS, Made};
use crate::training::{Manifest, State, TrainingSetId, resource};
use crate::{FEATURE_ERASE, Features, schema};

/// What the origin of a version is called that an erasure left.
pub(super) const ORIGIN: &str = "erasure";
const NAME: &str = "feature-erase";
/// Rows that are read at a time.
const ROWS: usize = 65_536;
/// How often something is tried that others change meanwhile.
const TRIES: usize = 10;
/// After how many sets it is put down that they are done.
const NOTED: usize = 100;
const WHY: &str = "an entity among its moments was erased: ask for it again, without that";

impl Features {
    /// Takes the entity out of every training set made of these views. One that cannot be read keeps no
    /// other from being done: the first failure is told at the end.
    pub(super) async fn erase_sets(
        &self,
        home: &Project,
        erasure: &Erasure,
        targets: &[Target],
    ) -> Result<()> {
        let id = erasure.id;
        let done = self.db().read(move |tx| erasures::looked(tx, id)).await?;
        let mut sets: BTreeMap<TrainingSetId, (Files, Vec<Target>)> = BTreeMap::new();
        for target in targets {
            let versions = target.versions.clone();
            for set in self.db().read(move |tx| store::files_of(tx, &versions)).await? {
                if !done.contains(&set.id) {
                    let known = sets.entry(set.id).or_insert_with(|| (set, Vec::new()));
                    known.1.push(target.clone());
                }
            }
        }
        let (mut looked, mut failed) = (Vec::new(), None);
        // The newest first: they are what is read.
        for (set, (files, of)) in sets.into_iter().rev() {
            let of: Arc<[Target]> = of.into();
            match self.erase_set(home, erasure, files, of).await {
                Ok(()) => looked.push(set),
                Err(error) => {
                    tracing::warn!(%set, error = error.chain(), "a training set is not erased from");
                    failed.get_or_insert(error);
                }
            }
            if looked.len() >= NOTED {
                let some = std::mem::take(&mut looked);
                self.db().write(move |tx| erasures::note_looked(tx, id, &some)).await?;
            }
        }
        let Some(error) = failed else { return Ok(()) };
        self.db().write(move |tx| erasures::note_looked(tx, id, &looked)).await?;
        Err(error)
    }

    /// Takes the entity out of a set. If it is made meanwhile, or its datasets change, it is looked at
    /// again.
    async fn erase_set(
        &self,
        home: &Project,
        erasure: &Erasure,
        files: Files,
        of: Arc<[Target]>,
    ) -> Result<()> {
        let mut set = Set { features: self, home, erasure, files, of };
        for _ in 1..TRIES {
            match set.erase().await {
                Err(error) if error.code() == &code::CHANGED => {}
                done => return done,
            }
            let id = set.files.id;
            match self.db().read(move |tx| store::files(tx, id)).await? {
                Some(files) => set.files = files,
                None => return Ok(()),
            }
        }
        set.erase().await
    }

    /// The sets that an erasure took away, and those that have their other rows.
    pub(super) async fn erased_sets(&self, id: ErasureId) -> Result<(Vec<String>, Vec<String>)> {
        let by = id.to_string();
        let found = self.db().read(move |tx| store::erased_by(tx, &by)).await?;
        let (sets, successors): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        Ok((sets, successors.into_iter().flatten().collect()))
    }

    async fn table(&self, tenant: TenantId, blob: BlobId) -> Result<(Table, String)> {
        let blob = self.objects().blob(tenant, blob).await?;
        let sha256 = hex(blob.sha256());
        let ranges: Arc<dyn Ranges> = Arc::new(BlobRanges::new(blob));
        let table = blocking(move || Table::open(ranges, Limits::default())).await?;
        Ok((table, sha256))
    }
}

/// A set that may have the entity.
struct Set<'a> {
    features: &'a Features,
    home: &'a Project,
    erasure: &'a Erasure,
    files: Files,
    of: Arc<[Target]>,
}

impl Set<'_> {
    async fn erase(&self) -> Result<()> {
        let done = match (self.files.state, self.files.blob, self.files.moments) {
            (State::Ready, Some(blob), _) => self.erase_made(blob).await,
            (State::Waiting | State::Failed, _, Some(moments)) => self.erase_asked(moments).await,
            _ => Ok(()),
        };
        match done {
            // Its key was destroyed: nobody can read it any more.
            Err(error) if error.code() == &code::ERASED => Ok(()),
            done => done,
        }
    }

    /// A set that is not made, or could not be.
    async fn erase_asked(&self, moments: BlobId) -> Result<()> {
        let (table, _) = self.features.table(self.files.tenant, moments).await?;
        let of = self.of.clone();
        if !blocking(move || has(&table, &of)).await? {
            return Ok(());
        }
        let (ctx, resource) = self.authorized().await?;
        let (id, by) = (self.files.id, self.erasure.id.to_string());
        let write = move |tx: &mut Tx<'_>| {
            if !store::forget_moments(tx, (id, moments), WHY, &by)? {
                return Ok(false);
            }
            Objects::detach(tx, moments, MOMENTS, &id.to_string())?;
            let told = json!({ "id": id, "error": WHY, "erasure": by });
            let change = Change::new(&FEATURE_ERASE, &resource)
                .event("training-set.failed", &told)
                .detail("erasure", &by);
            tx.record(&ctx, change)?;
            Ok(true)
        };
        if !self.features.db().write(write).await? {
            return Err(Error::new(&code::CHANGED, "a training set was made meanwhile"));
        }
        self.features.training().made.notify_waiters();
        Ok(())
    }

    /// A set that is made: another takes its place.
    async fn erase_made(&self, blob: BlobId) -> Result<()> {
        let (table, sha256) = self.features.table(self.files.tenant, blob).await?;
        let (of, look) = (self.of.clone(), table.clone());
        if !blocking(move || has(&look, &of)).await? {
            return Ok(());
        }
        let made = self.without(table).await?;
        self.succeeded(blob, &sha256, made).await
    }

    /// The file without the entity's rows, stored, and how many it has.
    async fn without(&self, table: Table) -> Result<(Staged, u64)> {
        let (out, pieces) = pipe();
        let (fail, of) = (out.failing(), self.of.clone());
        let writing =
            tokio::task::spawn_blocking(move || write_others(&table, &of, out).map_err(fail).ok());
        let (tenant, zone) = (self.home.tenant_id, &self.home.zone);
        let staged =
            self.features.objects().upload(tenant, zone, pieces, Expected::default()).await?;
        let written = writing.await.map_err(Error::internal)?;
        let rows = written.ok_or_else(|| Error::internal("a file failed and was stored"))?;
        Ok((staged, rows))
    }

    async fn authorized(&self) -> Result<(Ctx, falaj_base::Resource)> {
        let (ctx, resource) = (Ctx::system(NAME), resource(self.home, self.files.id, false));
        ctx.authorize(&FEATURE_ERASE, &resource).await?;
        Ok((ctx, resource))
    }

    /// Puts the other set down, and takes this one away.
    async fn succeeded(
        &self,
        old: BlobId,
        sha256: &str,
        (staged, rows): (Staged, u64),
    ) -> Result<()> {
        let features = self.features;
        let (ctx, resource) = self.authorized().await?;
        let by = self.erasure.id.to_string();
        let origin = Origin { kind: ORIGIN.to_owned(), id: by.clone(), digest: None };
        let replacement = match features.datasets_if_any() {
            Some(datasets) => {
                let prepared = datasets.replacement(&ctx, self.home, sha256, &staged, origin).await;
                if prepared.is_err() {
                    features.objects().discard(staged.blob).await;
                }
                Some(prepared?)
            }
            None => None,
        };
        let mut blobs = replacement.as_ref().map(Replacement::staged).unwrap_or_default();
        blobs.push(staged.blob);
        let (id, project, moments) = (self.files.id, self.home.id, self.files.moments);
        let write = move |tx: &mut Tx<'_>| {
            let next = TrainingSetId::new();
            let known = store::find(tx, project, id)?;
            let Some(manifest) = known.as_ref().and_then(|known| known.manifest.clone()) else {
                return Err(Error::new(&code::CHANGED, "a training set is gone"));
            };
            if !store::erase(tx, (id, old), &by, next)? {
                // Somebody else has done it.
                return Ok(false);
            }
            let (owner, claim) = (id.to_string(), next.to_string());
            Objects::detach(tx, old, CLAIM, &owner)?;
            if let Some(moments) = moments {
                Objects::detach(tx, moments, MOMENTS, &owner)?;
            }
            let blob = Objects::attach(tx, &staged, CLAIM, &claim)?;
            let before = known.and_then(|known| known.digest);
            let manifest = Manifest {
                rows,
                sha256: hex(&staged.sha256),
                without_rows_of: before.clone(),
                ..manifest
            };
            let text = serde_json::to_string(&manifest).map_err(Error::internal)?;
            let digest = hex(digest(&SHA256, text.as_bytes()).as_ref());
            let size = staged.size;
            let made = Made { manifest: &text, digest: &digest, rows, size, blob };
            store::succeed(tx, (id, next), &made)?;
            let told = json!({ "id": id, "successor": next, "erasure": by });
            let change = Change::new(&FEATURE_ERASE, &resource)
                .event("training-set.erased", &told)
                .before(&before)
                .after(&digest)
                .detail("erasure", &by)
                .detail("successor", next);
            tx.record(&ctx, change)?;
            replacement.map_or(Ok(()), |it| it.write(tx, &ctx, blob).map(drop))?;
            Ok(true)
        };
        let written = features.db().write(write).await;
        if !matches!(written, Ok(true)) {
            for blob in blobs {
                features.objects().discard(blob).await;
            }
        }
        written.map(drop)
    }
}

/// Whether a table has rows of the entity.
fn has(table: &Table, targets: &[Target]) -> Result<bool> {
    for target in targets.iter().filter(|target| tells(table, target)) {
        let part = Part { columns: Some(target.columns()), groups: None, rows_at_once: ROWS };
        for batch in table.records(&part)? {
            if others(&batch?, target)?.is_some_and(|others| others.false_count() > 0) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether a table has the columns that tell the entity.
fn tells(table: &Table, target: &Target) -> bool {
    target.columns().iter().all(|name| table.schema().field_with_name(name).is_ok())
}

/// Writes the rows that are not the entity's as a file of Parquet.
fn write_others<W: Write + Send>(table: &Table, targets: &[Target], out: W) -> Result<u64> {
    let mut writer = RecordWriter::new(out, table.schema().clone(), Layout::default())?;
    writer.note("falaj.training-set", "1");
    for batch in table.records(&Part { columns: None, groups: None, rows_at_once: ROWS })? {
        let mut batch = batch?;
        for target in targets.iter().filter(|target| tells(table, target)) {
            if let Some(others) = others(&batch, target)? {
                batch = filter_record_batch(&batch, &others).map_err(Error::internal)?;
            }
        }
        writer.write(&batch)?;
    }
    let rows = writer.rows();
    writer.close()?.flush().map_err(Error::internal)?;
    Ok(rows)
}

/// Which rows are not the entity's; none if all are others'. Moments have keys of any width: they are
/// looked at as the view has them, and those that cannot be so are nobody's.
fn others(batch: &RecordBatch, target: &Target) -> Result<Option<BooleanArray>> {
    let mut columns = Vec::new();
    for (name, kind, _) in target.keys.iter().filter(|(.., value)| value.is_some()) {
        let column = batch.column_by_name(name);
        let column = column.ok_or_else(|| Error::internal("a training set lacks a key"))?;
        let wanted = schema::arrow(*kind);
        if !fits(column.data_type(), &wanted) {
            return Ok(None);
        }
        // What does not fit is null, and so no key of anybody.
        let column = fit(name, column, &wanted).or_else(|_| cast(column, &wanted));
        let column = column.map_err(Error::internal)?;
        columns.push((name.clone(), column, true));
    }
    let keys = RecordBatch::try_from_iter_with_nullable(columns).map_err(Error::internal)?;
    target.others(&keys).map(Some)
}
