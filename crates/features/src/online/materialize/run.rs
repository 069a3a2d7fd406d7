//! Running jobs: some at a time, tenants in turn.
//!
//! Must hold: stop anywhere, run again, same result. A job is run by one server at a time; one whose
//! server is gone is run on by another that has the same store, from where it was last put down.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use falaj_base::{Ctx, Error, Result, Timestamp, code};
use falaj_governance::residency::Residency;
use falaj_governance::tenancy::Project;
use falaj_online::Online;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use falaj_store::worker::Worker;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::json;
use tokio::sync::{Notify, Semaphore, mpsc};
use uuid::Uuid;

use super::job::{Job, JobId, JobState, JobView, Progress};
use super::read::{Handed, Plan, read};
use super::store;
use crate::definition::{ViewVersion, store as definitions};
use crate::history::log;
use crate::online::lawful;
use crate::online::rows::Within;
use crate::online::shape::brought;
use crate::source::{Origins, Stop, blocking, source_zones};
use crate::turns::Turns;
use crate::{FEATURE_WRITE, Features};

const NAME: &str = "feature-materialize";
const EVERY: Duration = Duration::from_secs(5);
/// How long a job is its runner's without being heard of.
pub(super) const HELD: Duration = Duration::from_mins(1);
/// How often it is heard of.
const HEARD: Duration = Duration::from_secs(15);
/// How often it is put down how far a view is.
const SAVED: Duration = Duration::from_secs(1);
/// How often a job is begun without coming any further before it counts as failed.
const ATTEMPTS: i64 = 5;
/// Batches that wait to be applied.
const WAITING: usize = 1;

/// The jobs that this server runs. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Underway {
    /// Something waits to be run.
    pub(super) wake: Arc<Notify>,
    /// What this server calls itself, as a runner.
    name: Arc<str>,
    places: Arc<Semaphore>,
    stops: Arc<Mutex<HashMap<JobId, Arc<AtomicBool>>>>,
    /// Whether it was looked for jobs that an earlier life of this server left.
    looked: Arc<AtomicBool>,
}

impl Underway {
    /// At most so many at a time.
    pub(crate) fn new(at_once: usize) -> Self {
        Self {
            wake: Arc::default(),
            name: Uuid::now_v7().simple().to_string().into(),
            places: Arc::new(Semaphore::new(at_once)),
            stops: Arc::default(),
            looked: Arc::default(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn begin(&self, id: JobId) -> Begun {
        let stopped = Arc::new(AtomicBool::new(false));
        let mut stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
        stops.insert(id, stopped.clone());
        Begun { all: self.clone(), id, stopped }
    }

    /// Stops a job, if this server runs it.
    pub(super) fn stop(&self, id: JobId) {
        let stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stopped) = stops.get(&id) {
            stopped.store(true, Ordering::Relaxed);
        }
    }
}

/// A job under way; it is stopped when this is dropped.
struct Begun {
    all: Underway,
    id: JobId,
    stopped: Arc<AtomicBool>,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.all.stops.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

pub(crate) fn worker(features: &Features) -> Worker {
    let (signal, features) = (features.underway().wake.clone(), features.clone());
    Worker::new(NAME, EVERY, move || {
        let features = features.clone();
        async move { features.run_jobs().await.map(drop) }
    })
    .woken_by(signal)
    .on_every_server()
}

impl Features {
    /// Runs the jobs that wait for this server's store, some at a time, tenants in turn; tells how
    /// many it has run when none waits any more.
    pub async fn run_jobs(&self) -> Result<usize> {
        let store = self.shelf().store_id().await?;
        if self.shelf().is_own() && !self.underway().looked.swap(true, Ordering::Relaxed) {
            // Nobody else has the file open: whoever ran them is gone.
            let (store, name) = (store.clone(), self.underway().name().to_owned());
            self.db().write(move |tx| store::orphaned(tx, &store, &name)).await?;
        }
        let (mut turns, mut running, mut count) = (Turns::default(), FuturesUnordered::new(), 0);
        loop {
            while running.len() < self.config().at_once {
                let of = store.clone();
                let waiting = self.db().read(move |tx| store::waiting(tx, &of)).await?;
                let Some((tenant, id)) = turns.next(waiting) else { break };
                if !self.claim(id).await? {
                    continue;
                }
                turns.begin(tenant);
                running.push(async move { (tenant, id, self.run_claimed(id).await) });
            }
            if running.is_empty() {
                return Ok(count);
            }
            tokio::select! {
                Some((tenant, id, done)) = running.next() => {
                    turns.end(tenant);
                    count += 1;
                    if let Err(error) = done {
                        tracing::warn!(job = %id, error = error.chain(), "not materialised");
                    }
                }
                // Others may have come meanwhile, and there may be a place for them.
                () = self.underway().wake.notified() => {}
                () = tokio::time::sleep(EVERY) => {}
            }
        }
    }

    async fn claim(&self, id: JobId) -> Result<bool> {
        let (name, until) = (self.underway().name().to_owned(), self.db().now() + HELD);
        self.db().write(move |tx| store::claim(tx, id, &name, until)).await
    }

    /// Runs a job that is ours from the start. What stops it ends it: whoever waits is told why.
    pub(super) async fn run_at_once(&self, id: JobId) -> Result<()> {
        let done = self.run_kept(id).await;
        if let Err(error) = &done
            && error.kind().is_ours()
        {
            self.end_job(id, Some(error)).await?;
        }
        done
    }

    /// Runs a job that was claimed. One that something of ours stops is begun again after a while.
    async fn run_claimed(&self, id: JobId) -> Result<()> {
        let Err(error) = self.run_kept(id).await else { return Ok(()) };
        if !error.kind().is_ours() {
            return Err(error);
        }
        let job = self.job(id).await?;
        if job.attempts >= ATTEMPTS {
            self.end_job(id, Some(&error)).await?;
            return Err(error);
        }
        let name = self.underway().name().to_owned();
        let tries = u32::try_from(job.attempts).unwrap_or(1).max(1);
        let again = self.db().now() + EVERY * tries;
        self.db().write(move |tx| store::give_back(tx, id, &name, again)).await?;
        Err(error)
    }

    /// Runs a job for as long as it is ours.
    async fn run_kept(&self, id: JobId) -> Result<()> {
        let begun = self.underway().begin(id);
        let run = async {
            let closed = |_| Error::new(&code::SHUTTING_DOWN, "the work was stopped");
            let _place = self.underway().places.acquire().await.map_err(closed)?;
            self.run_job(id, &begun.stopped).await
        };
        tokio::select! {
            done = run => done,
            lost = self.keep_job(id) => Err(lost),
        }
    }

    /// Keeps a job; tells why it is kept no longer.
    async fn keep_job(&self, id: JobId) -> Error {
        loop {
            tokio::time::sleep(HEARD).await;
            let (name, until) = (self.underway().name().to_owned(), self.db().now() + HELD);
            match self.db().write(move |tx| store::renew(tx, id, &name, until)).await {
                Ok(true) | Err(_) => {}
                Ok(false) => return called_off(),
            }
        }
    }

    async fn run_job(&self, id: JobId, stopped: &Arc<AtomicBool>) -> Result<()> {
        let mut job = self.job(id).await?;
        let ctx = Ctx::system(NAME);
        let project = self.tenancy()?.project_by_id(&ctx, job.project).await?;
        let mut wrong = None;
        let views = std::mem::take(&mut job.views);
        for view in views.into_iter().filter(|view| !view.state.is_over()) {
            let run = View { features: self, ctx: &ctx, project: &project, job: &job, stopped };
            match run.bring(view).await {
                Ok(()) => {}
                Err(error) if error.kind().is_ours() || is_called_off(&error) => return Err(error),
                // One view that cannot be brought does not stop the others.
                Err(error) => drop(wrong.get_or_insert(error)),
            }
        }
        self.end_job(id, wrong.as_ref()).await?;
        wrong.map_or(Ok(()), Err)
    }

    /// Puts down that a job is over, and why it failed if it did.
    async fn end_job(&self, id: JobId, wrong: Option<&Error>) -> Result<()> {
        let state = if wrong.is_some() { JobState::Failed } else { JobState::Done };
        // Columns may be called anything, and a database does not keep everything.
        let why = wrong.map(|error| error.message().replace('\0', "\u{fffd}"));
        self.db().write(move |tx| store::end(tx, id, state, why.as_deref())).await.map(drop)
    }
}

fn called_off() -> Error {
    Error::new(&code::CONFLICT, "the job was called off")
}

fn is_called_off(error: &Error) -> bool {
    error.code().id == code::CONFLICT.id || error.code().id == code::SHUTTING_DOWN.id
}

/// A view of a job being run.
struct View<'a> {
    features: &'a Features,
    ctx: &'a Ctx,
    project: &'a Project,
    job: &'a Job,
    stopped: &'a Arc<AtomicBool>,
}

impl View<'_> {
    async fn bring(&self, mut view: JobView) -> Result<()> {
        let id = view.id;
        let found = self.features.db().read(move |tx| definitions::by_id(tx, id)).await?;
        let version = found.and_then(|(_, found)| ViewVersion::of(&Arc::new(found)));
        let version = version.ok_or_else(|| Error::internal("a version of a view is gone"))?;
        let done = self.rows(&version, &mut view).await.map_err(|error| {
            let text = format!("the feature view {}: {}", version.name(), error.message());
            Error::new(error.code(), text).caused_by(error)
        });
        match &done {
            Ok(()) => self.done(&version, view).await?,
            Err(error) if error.kind().is_ours() || is_called_off(error) => {}
            Err(error) => {
                view.state = JobState::Failed;
                view.error = Some(error.message().replace('\0', "\u{fffd}"));
                self.failed(&version, view).await?;
            }
        }
        done
    }

    /// Reads the rows and applies them.
    async fn rows(&self, version: &ViewVersion, view: &mut JobView) -> Result<()> {
        let (features, job) = (self.features, self.job);
        let store = features.shelf().store().await?;
        if features.shelf().store_id().await? != job.store {
            let text = "the online store was emptied after the job was asked for: ask again";
            return Err(Error::new(&code::CHANGED, text));
        }
        let until = features.db().read(log::end).await?;
        let origins = Origins { features, ctx: self.ctx, project: self.project, until };
        let (history, parts) = origins.open(version).await?;
        let plan = Plan::of(&parts);
        if view.plan.as_ref() != Some(&plan.digest) {
            view.progress = Progress::default();
            view.plan = Some(plan.digest.clone());
        }
        let from = plan.resume(view.progress.read);
        view.state = JobState::Running;
        (view.progress.read, view.progress.total) = (from, plan.total());
        (view.progress.file, view.progress.files) = plan.file(from);
        self.save(view, |_, _| Ok(())).await?;
        let shape = features.shelf().shape(version)?;
        let deadline = Instant::now() + features.config().max_time.get();
        let stop = Stop { stopped: self.stopped.clone(), deadline };
        let within = Within {
            start: view.from.map_or(i64::MIN, Timestamp::micros),
            end: view.to.micros(),
            // Of a job that is run on, what was known when it was asked for.
            now: job.created_at.micros(),
            log: brought(job.number),
            max_row: features.shelf().config().max_row,
        };
        let (give, take) = mpsc::channel(WAITING);
        let reading = blocking(move || read(&history, &shape, within, from, &stop, &give));
        let applying = self.apply(store, take, &plan, (version, view));
        let (read, applied) = tokio::join!(reading, applying);
        // Who reads is only told that nobody listens; why is said by who applies.
        applied?;
        if self.stopped.load(Ordering::Relaxed) {
            return Err(called_off());
        }
        read?;
        store.flush().await?;
        features.erase_again(store, job.project, job.created_at).await
    }

    /// Refuses to place rows where no rule allows it any more: those of the view, and of its source.
    async fn lawful(&self, version: &ViewVersion) -> Result<()> {
        let (project, version) = (self.project.clone(), version.clone());
        let online = self.features.shelf().config().zone.clone();
        let source = source_zones(self.features.config(), self.project, &version.form().source)?;
        let check = move |tx: &mut Tx<'_>| {
            for zone in &source {
                Residency::require(tx, zone, &project.zone)?;
            }
            lawful(tx, &project, &version, online.as_ref())
        };
        self.features.db().read(check).await
    }

    async fn apply(
        &self,
        store: &Online,
        mut take: mpsc::Receiver<Handed>,
        plan: &Plan,
        (version, view): (&ViewVersion, &mut JobView),
    ) -> Result<()> {
        let (before, mut saved) = (view.progress.rows, Instant::now());
        while let Some(Handed { batch, read, rows }) = take.recv().await {
            // Rules change while a job runs, and rows that are placed cannot be taken back.
            self.lawful(version).await?;
            let placed = store.apply(batch).await?;
            let progress = &mut view.progress;
            progress.placed += placed as u64;
            (progress.read, progress.rows) = (read, before + rows);
            (progress.file, progress.files) = plan.file(read);
            if saved.elapsed() >= SAVED {
                // What is put down is not read again, so it has to last.
                store.flush().await?;
                self.save(view, store::came_further).await?;
                saved = Instant::now();
            }
        }
        Ok(())
    }

    /// Puts down how far a view is, as long as the job is ours.
    async fn save(&self, view: &JobView, note: fn(&mut Tx<'_>, JobId) -> Result<()>) -> Result<()> {
        let (id, view) = (self.job.id, view.clone());
        let (name, until) = (self.features.underway().name().to_owned(), self.now() + HELD);
        let write = move |tx: &mut Tx<'_>| {
            if !store::renew(tx, id, &name, until)? {
                return Err(called_off());
            }
            store::save(tx, id, &view)?;
            note(tx, id)
        };
        self.features.db().write(write).await
    }

    fn now(&self) -> Timestamp {
        self.features.db().now()
    }

    /// Puts down that a view was brought, and how far.
    async fn done(&self, version: &ViewVersion, mut view: JobView) -> Result<()> {
        view.state = JobState::Done;
        let of = self.job.store.clone();
        let told = json!({ "view": version.name(), "version": version.version(),
            "rows": view.progress.rows, "until": view.to, "job": self.job.id });
        let note = move |tx: &mut Tx<'_>, view: &JobView| {
            store::note_brought(tx, &of, view.rows_of, view.to, view.progress.rows)
        };
        self.ended(version, view, "feature.materialized", told, note).await
    }

    async fn failed(&self, version: &ViewVersion, view: JobView) -> Result<()> {
        let told = json!({ "view": version.name(), "version": version.version(),
            "error": view.error, "job": self.job.id });
        self.ended(version, view, "feature.materialize-failed", told, |_, _| Ok(())).await
    }

    async fn ended(
        &self,
        version: &ViewVersion,
        view: JobView,
        event: &'static str,
        told: serde_json::Value,
        note: impl FnOnce(&mut Tx<'_>, &JobView) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let resource = version.resource(self.project);
        self.ctx.authorize(&FEATURE_WRITE, &resource).await?;
        let (ctx, id, number) = (self.ctx.clone(), self.job.id, version.version());
        let (name, until) = (self.features.underway().name().to_owned(), self.now() + HELD);
        let by = self.job.created_by.clone();
        let write = move |tx: &mut Tx<'_>| {
            if !store::renew(tx, id, &name, until)? {
                return Err(called_off());
            }
            store::save(tx, id, &view)?;
            note(tx, &view)?;
            let change = Change::new(&FEATURE_WRITE, &resource)
                .event(event, &told)
                .detail("version", number)
                .detail("rows", view.progress.rows)
                .detail("asked for by", &by)
                .detail("job", id);
            tx.record(&ctx, change)
        };
        self.features.db().write(write).await
    }
}
