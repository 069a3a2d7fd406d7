//! Makes the training sets that wait, some at a time.
//!
//! Must hold: stop anywhere, run again, same result. What a set is made of was settled when it was
//! asked for, but for the content of its sources, which is read now and put on record.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use falaj_base::{Ctx, Error, ProjectId, Result, TenantId, hex};
use falaj_catalog::blob::BlobRanges;
use falaj_catalog::pipe::pipe;
use falaj_catalog::version::Origin;
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::objects::{Expected, Objects, Staged};
use falaj_store::record::Change;
use falaj_store::worker::Worker;
use falaj_tables::{Limits, Ranges, Table};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::json;

use super::id::TrainingSetId;
use super::join::{Join, Side};
use super::set::{Task, resource};
use super::spec::{Chosen, FORMAT, Manifest, Register, Work};
use super::store::{self, Made};
use crate::definition::form::Noun;
use crate::definition::{ViewVersion, store as definitions};
use crate::history::log;
use crate::source::{Origins, SourceRead, Stop, blocking, bounds};
use crate::transform::Ready;
use crate::transform::derived::Derived;
use crate::turns::Turns;
use crate::{Features, TRAINING_SET_CREATE};

const NAME: &str = "training-sets";
const EVERY: Duration = Duration::from_secs(5);
/// How often a set is begun before it counts as failed.
const ATTEMPTS: i64 = 3;
/// How long one that was not made waits for another attempt.
const AGAIN: Duration = Duration::from_secs(30);

pub(crate) fn maker(features: &Features) -> Worker {
    let (signal, features) = (features.training().wake.clone(), features.clone());
    Worker::new(NAME, EVERY, move || {
        let features = features.clone();
        async move { features.make_training_sets().await.map(drop) }
    })
    .woken_by(signal)
}

/// The first of each tenant.
fn oldest(waiting: Vec<(TenantId, TrainingSetId)>) -> Vec<(TenantId, TrainingSetId)> {
    let mut seen = HashSet::new();
    waiting.into_iter().filter(|(tenant, _)| seen.insert(*tenant)).collect()
}

/// Stops the thread that works for a future which is no longer awaited.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Features {
    /// Makes what waits, some at a time, tenants in turn; tells how many that were. One that fails
    /// does not stop the others: what went wrong first is told at the end.
    pub async fn make_training_sets(&self) -> Result<usize> {
        let (mut turns, mut making) = (Turns::default(), FuturesUnordered::new());
        let (mut tried, mut count, mut wrong) = (HashMap::new(), 0, None);
        loop {
            tried.retain(|_, at: &mut Instant| at.elapsed() < AGAIN);
            while making.len() < self.config().at_once {
                let mut waiting = self.db().read(store::waiting).await?;
                waiting.retain(|(_, id)| !tried.contains_key(id));
                let Some((tenant, id)) = turns.next(oldest(waiting)) else { break };
                tried.insert(id, Instant::now());
                turns.begin(tenant);
                making.push(async move { (tenant, id, self.make_one(id).await) });
            }
            if making.is_empty() {
                return wrong.map_or(Ok(count), Err);
            }
            tokio::select! {
                Some((tenant, id, made)) = making.next() => {
                    turns.end(tenant);
                    count += 1;
                    // It is not begun again at once, however long it took.
                    tried.insert(id, Instant::now());
                    if let Err(error) = made {
                        tracing::warn!(set = %id, error = error.chain(), "a training set was not made");
                        wrong.get_or_insert(error);
                    }
                    self.training().made.notify_waiters();
                }
                // Others may have come meanwhile, and there may be a place for them.
                () = self.training().wake.notified() => {}
                () = tokio::time::sleep(EVERY) => {}
            }
        }
    }

    async fn make_one(&self, id: TrainingSetId) -> Result<()> {
        match self.db().read(move |tx| store::task(tx, id)).await? {
            Some(task) => self.make(task).await,
            None => Ok(()),
        }
    }

    async fn make(&self, task: Task) -> Result<()> {
        let ctx = Ctx::system(NAME);
        let id = task.id;
        // Counted before anything can fail, or it would be tried for ever.
        self.db().write(move |tx| store::begin(tx, id)).await?;
        let project = self.tenancy()?.project_by_id(&ctx, task.project).await?;
        if task.attempts >= ATTEMPTS {
            let why = format!("the server failed {ATTEMPTS} times to make it; its log says why");
            return self.failed(&ctx, &project, &task, why).await;
        }
        match self.computed(&ctx, &project, &task).await {
            Ok((staged, manifest)) => {
                match self.made(&ctx, &project, &task, staged, manifest).await {
                    // It cannot become a version of the dataset that it should be one of.
                    Err(error) if !error.kind().is_ours() => {
                        self.failed(&ctx, &project, &task, error.message().to_owned()).await
                    }
                    done => done,
                }
            }
            Err(error) if error.kind().is_ours() => {
                tracing::warn!(set = %id, error = error.chain(), "a training set was not made");
                Ok(())
            }
            Err(error) => {
                tracing::info!(set = %id, error = error.chain(), "a training set cannot be made");
                self.failed(&ctx, &project, &task, error.message().to_owned()).await
            }
        }
    }

    /// The views that are joined, those that others are computed from last, and those others.
    async fn views_to_join(
        &self,
        project: ProjectId,
        work: &Work,
    ) -> Result<(Vec<(Chosen, ViewVersion, bool)>, Vec<Derived>)> {
        let gone = || Error::internal("a version of a view is gone");
        let (mut views, mut derived, mut needed) = (Vec::new(), Vec::new(), Vec::new());
        for (chosen, view) in work.chosen.iter().zip(&work.views) {
            let view = *view;
            let found = self.db().read(move |tx| definitions::by_id(tx, view)).await?;
            let view = found.and_then(|(_, found)| ViewVersion::of(&Arc::new(found)));
            let view = view.ok_or_else(gone)?;
            if view.form().is_on_demand() {
                derived.push(Derived::new(chosen.clone(), view.form(), &mut needed)?);
            } else {
                views.push((chosen.clone(), view, false));
            }
        }
        for pick in needed {
            let (name, version) = (pick.view.clone(), pick.version);
            let find = move |tx: &mut Tx<'_>| {
                definitions::find(tx, project, Noun::View, &name, Some(version))
            };
            let found = self.db().read(find).await?.ok_or_else(gone)?;
            let view = ViewVersion::of(&Arc::new(found)).ok_or_else(gone)?;
            views.push((Chosen { pick, columns: Vec::new() }, view, true));
        }
        Ok((views, derived))
    }

    /// A join of what is asked for to some moments, and what it will read.
    pub(crate) async fn join_of(
        &self,
        ctx: &Ctx,
        project: &Project,
        work: &Work,
        table: Table,
        stop: Stop,
    ) -> Result<(Join, Vec<SourceRead>)> {
        let until = self.db().read(log::end).await?;
        let origins = Origins { features: self, ctx, project, until };
        let (mut sides, mut sources) = (Vec::new(), Vec::new());
        let (views, derived) = self.views_to_join(project.id, work).await?;
        for (chosen, view, hidden) in views {
            let (history, read) = if view.form().source.is_a_database() {
                let (moments, time) = (table.clone(), work.what.time().to_owned());
                // What is computed over time may reach back further than it answers.
                let ttl = view.form().ttl_us.filter(|_| view.form().transform.is_none());
                let window = blocking(move || bounds(&moments, &time, ttl)).await?;
                origins.open_within(&view, window).await?
            } else {
                origins.open(&view).await?
            };
            sources.extend(read);
            sides.push(Side {
                chosen,
                history,
                keys: view.form().keys().iter().map(|key| key.name.to_string()).collect(),
                ttl: view.form().ttl_us,
                view: view.form().clone(),
                ready: Ready::of(view.form())?,
                hidden,
            });
        }
        let join = Join {
            moments: table,
            what: work.what.clone(),
            sides,
            derived,
            rows_at_once: self.config().rows_at_once,
            memory: usize::try_from(self.config().memory.bytes()).unwrap_or(usize::MAX),
            stop,
        };
        Ok((join, sources))
    }

    /// The file, stored, and what it was made of.
    async fn computed(
        &self,
        ctx: &Ctx,
        project: &Project,
        task: &Task,
    ) -> Result<(Staged, Manifest)> {
        let moments = self.objects().blob(task.tenant, task.moments).await?;
        let moments_digest = hex(moments.sha256());
        let ranges: Arc<dyn Ranges> = Arc::new(BlobRanges::new(moments));
        let table = blocking(move || Table::open(ranges, Limits::default())).await?;
        let stopped = Arc::new(AtomicBool::new(false));
        let _guard = StopOnDrop(stopped.clone());
        let deadline = Instant::now() + self.config().max_time.get();
        let stop = Stop { stopped, deadline };
        let (join, sources) = self.join_of(ctx, project, &task.work, table, stop).await?;
        let (out, pieces) = pipe();
        let fail = out.failing();
        let joining = tokio::task::spawn_blocking(move || join.run(out).map_err(fail).ok());
        let staged = self
            .objects()
            .upload(project.tenant_id, &project.zone, pieces, Expected::default())
            .await?;
        let rows = joining.await.map_err(Error::internal)?;
        let rows = rows.ok_or_else(|| Error::internal("a join failed and was stored"))?;
        let what = &task.work.what;
        let manifest = Manifest {
            format: FORMAT,
            features: task.work.chosen.clone(),
            event_time: what.time().to_owned(),
            as_of: what.as_of,
            hindsight: what.hindsight,
            moments: moments_digest,
            sources,
            rows,
            sha256: hex(&staged.sha256),
            without_rows_of: None,
        };
        Ok((staged, manifest))
    }

    async fn made(
        &self,
        ctx: &Ctx,
        project: &Project,
        task: &Task,
        staged: Staged,
        manifest: Manifest,
    ) -> Result<()> {
        let text = serde_json::to_string(&manifest).map_err(Error::internal)?;
        let digest = hex(digest(&SHA256, text.as_bytes()).as_ref());
        let resource = resource(project, task.id, false);
        ctx.authorize(&TRAINING_SET_CREATE, &resource).await?;
        let registration = match &task.work.what.register {
            None => None,
            Some(Register { dataset, by }) => {
                let of = Origin {
                    kind: "training-set".to_owned(),
                    id: task.id.to_string(),
                    digest: Some(digest.clone()),
                };
                let told = (of, None, by.clone());
                let datasets = self.datasets()?;
                Some(datasets.registration(ctx, project, dataset.clone(), &staged, told).await?)
            }
        };
        let (ctx, id, blob) = (ctx.clone(), task.id, staged.blob);
        let write = move |tx: &mut Tx<'_>| {
            let blob = Objects::attach(tx, &staged, store::CLAIM, &id.to_string())?;
            let (rows, size) = (manifest.rows, staged.size);
            let made = Made { manifest: &text, digest: &digest, rows, size, blob };
            if !store::finish(tx, id, &made)? {
                return Err(Error::internal("a training set that nobody waits for"));
            }
            let told = json!({ "id": id, "digest": digest, "rows": rows, "size": size });
            let change = Change::new(&TRAINING_SET_CREATE, &resource)
                .event("training-set.ready", &told)
                .after(&digest)
                .detail("rows", rows);
            tx.record(&ctx, change)?;
            registration.map_or(Ok(()), |it| it.write(tx, &ctx, blob).map(drop))
        };
        let written = self.db().write(write).await;
        if written.is_err() {
            self.objects().discard(blob).await;
        }
        written
    }

    async fn failed(&self, ctx: &Ctx, project: &Project, task: &Task, why: String) -> Result<()> {
        let resource = resource(project, task.id, false);
        ctx.authorize(&TRAINING_SET_CREATE, &resource).await?;
        let (ctx, id) = (ctx.clone(), task.id);
        // Columns may be called anything, and a database does not keep everything.
        let why = why.replace('\0', "\u{fffd}");
        let write = move |tx: &mut Tx<'_>| {
            if !store::fail(tx, id, &why)? {
                return Ok(());
            }
            let told = json!({ "id": id, "error": why });
            let change = Change::new(&TRAINING_SET_CREATE, &resource)
                .event("training-set.failed", &told)
                .detail("failed", true);
            tx.record(&ctx, change)
        };
        self.db().write(write).await
    }
}
