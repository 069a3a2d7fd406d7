//! Deleting jobs that have ended: their rows, their output, their checkpoints in folders of our own. What
//! they cost stays, and so do their runs, which are the tracking's.
//!
//! Must hold: a job goes whole, in one transaction; its folders go after that, as often as it takes. Each
//! is removed by a server that sees where it lies: one that does not takes nothing for gone.

use std::path::{Path, PathBuf};
use std::time::Duration;

use falaj_base::{Ctx, Error, ProjectId, Result, Timestamp, code};
use falaj_mlflow::Call;
use falaj_store::db::{Tx, params};
use falaj_store::record::Change;
use falaj_store::worker::Worker;

use super::job::{Job, resource};
use super::store;
use crate::live::inbox;
use crate::log::archive;
use crate::name::JobId;
use crate::{JOB_DELETE, Training, blocking, budget, cost};

const NAME: &str = "training-ended";
const EVERY: Duration = Duration::from_mins(10);
const ORPHANS_EVERY: Duration = Duration::from_hours(6);
/// Jobs that are deleted by one run of the worker, and folders that are looked at in one go.
const AT_ONCE: usize = 500;
/// Folders of one place that one run of the worker looks at.
const MOST_FOLDERS: usize = 20 * AT_ONCE;
/// Jobs that go with their project; whoever has more deletes some before.
const WITH_PROJECT: usize = 10_000;

/// The worker that deletes jobs that were kept for long enough, and clears away what deleted ones and
/// those that never came to be left.
pub(crate) fn worker(training: &Training) -> Worker {
    let training = training.clone();
    Worker::new(NAME, EVERY, move || {
        let training = training.clone();
        async move {
            training.delete_old().await?;
            training.db().write(budget::store::forget_tenants).await?;
            training.end_orphans_at_times().await
        }
    })
}

/// The worker that removes folders of deleted jobs, on each server those that it sees.
pub(crate) fn clearer(training: &Training) -> Worker {
    let training = training.clone();
    Worker::new("training-folders", EVERY, move || {
        let training = training.clone();
        async move { training.clear_folders().await }
    })
    .on_every_server()
}

/// A place as notes name it, and where this server sees it.
struct Seen {
    place: String,
    roots: Vec<PathBuf>,
    /// Whether what was left there lies below one of them, if anywhere.
    surely: bool,
}

/// Takes a job out of the database. Says whether it was there: its own row is held from the beginning,
/// so that of two who do this at once one waits and finds nothing, and what it cost is added once.
fn take_out(tx: &mut Tx<'_>, job: &Job) -> Result<bool> {
    let hold = "UPDATE training_job SET live = live WHERE id = $1";
    if tx.execute(hold, &params![job.id])? == 0 {
        return Ok(false);
    }
    let queue = job.definition.queue.as_ref().map_or("", |name| name.as_str());
    cost::kept::keep(tx, job.id, (job.tenant, job.project, queue))?;
    let places = inbox::places_of(tx, job.id)?;
    archive::detach(tx, job.id)?;
    for table in [
        "training_decision",
        "training_part",
        "training_progress",
        "training_checkpoint",
        "training_telemetry",
        "training_attempt",
        "training_task",
        "training_inbox",
    ] {
        tx.execute(&format!("DELETE FROM {table} WHERE job = $1"), &params![job.id])?;
    }
    tx.execute("DELETE FROM training_job WHERE id = $1", &params![job.id])?;
    // Where others say where it saves its work, that is theirs.
    let ours = job.definition.checkpoint.as_ref().is_some_and(|it| it.dir.is_none());
    if ours {
        places.iter().try_for_each(|place| inbox::folder_is_left(tx, job.id, place))?;
    }
    Ok(true)
}

/// Why a job cannot be deleted now: it goes on, or its end is still being seen to.
fn why_not(tx: &mut Tx<'_>, job: &Job) -> Result<Option<String>> {
    if !job.state.is_over() {
        let text = format!("it is {}; jobs that have ended can be deleted", job.state.as_str());
        return Ok(Some(text));
    }
    if store::has_open_starts(tx, job.id)? {
        return Ok(Some("its output is still being kept; try again in a moment".to_owned()));
    }
    // Without its job nobody could say how a run ended.
    if inbox::has_open_runs(tx, job.id)? {
        let text = "its runs are still being told how it ended; try again in a moment";
        return Ok(Some(text.to_owned()));
    }
    Ok(None)
}

/// Takes all jobs of a project out that is deleted, as part of that. One that goes on stays, and with it
/// the project.
pub(crate) fn forget_project(tx: &mut Tx<'_>, project: ProjectId) -> Result<()> {
    let jobs = store::list(tx, project, "", (None, false), WITH_PROJECT + 1)?;
    if jobs.len() > WITH_PROJECT {
        let text =
            format!("the project has more than {WITH_PROJECT} jobs; delete some of them before");
        return Err(Error::new(&code::CONFLICT, text));
    }
    for job in jobs {
        if let Some(why) = why_not(tx, &job)? {
            let text = format!("job {} of the project cannot be deleted: {why}", job.id);
            return Err(Error::new(&code::IN_USE, text));
        }
        take_out(tx, &job)?;
    }
    budget::store::forget_project(tx, project)
}

impl Training {
    /// Deletes a job that has ended.
    pub async fn delete_job(&self, call: &Call, id: &str) -> Result<Job> {
        let job = self.seen(call, id, &JOB_DELETE).await?;
        let of = resource(&call.place, &job.id.to_string(), false);
        let (ctx, project) = (call.ctx.clone(), call.place.id);
        let write = move |tx: &mut Tx<'_>| {
            let found = store::find(tx, project, job.id)?;
            let job = found.ok_or_else(|| Error::not_found("job", job.id))?;
            if let Some(why) = why_not(tx, &job)? {
                return Err(Error::new(&code::CONFLICT, why));
            }
            if !take_out(tx, &job)? {
                return Err(Error::not_found("job", job.id));
            }
            let told = serde_json::json!({ "job": job.id });
            let change = Change::new(&JOB_DELETE, &of)
                .event("job.deleted", &told)
                .before(&job)
                .reply(200, &job);
            tx.record(&ctx, change)?;
            Ok(job)
        };
        let job = self.db().write(write).await?;
        // Those of others are left to the worker.
        if let Err(error) = self.clear_folders_of(job.id).await {
            tracing::warn!(job = %job.id, error = error.chain(), "a folder stays for now");
        }
        Ok(job)
    }

    /// They are rare, and looking for them looks at every job that goes on.
    async fn end_orphans_at_times(&self) -> Result<()> {
        let now = self.db().now();
        let looked = *self.orphans_looked();
        if looked.is_some_and(|at| now.since(at) < ORPHANS_EVERY) {
            return Ok(());
        }
        self.end_orphans().await?;
        *self.orphans_looked() = Some(now);
        Ok(())
    }

    async fn delete_old(&self) -> Result<()> {
        let Some(keep) = self.config().keep_ended else { return Ok(()) };
        let before = self.db().now() - keep.get();
        let old = self.db().read(move |tx| store::ended_before(tx, before, AT_ONCE)).await?;
        let ctx = Ctx::system(NAME);
        for id in old {
            self.delete_one(&ctx, id, before).await?;
        }
        Ok(())
    }

    async fn delete_one(&self, ctx: &Ctx, id: JobId, before: Timestamp) -> Result<()> {
        let job = self.db().read(move |tx| store::by_id_if_readable(tx, id)).await?;
        let Some(job) = job else { return Ok(()) };
        let project = self.tenancy().project_by_id(ctx, job.project).await?;
        let of = resource(&project, &id.to_string(), false);
        ctx.authorize(&JOB_DELETE, &of).await?;
        let ctx = ctx.clone();
        let write = move |tx: &mut Tx<'_>| {
            if job.ended_at.is_none_or(|at| at >= before) || why_not(tx, &job)?.is_some() {
                return Ok(());
            }
            if !take_out(tx, &job)? {
                return Ok(());
            }
            let told = serde_json::json!({ "job": job.id });
            let change = Change::new(&JOB_DELETE, &of).event("job.deleted", &told).before(&job);
            tx.record(&ctx, change)
        };
        self.db().write(write).await
    }

    /// Removes folders of jobs that are not there any more, where this server sees them.
    async fn clear_folders(&self) -> Result<()> {
        let mut places = self.seen_places()?;
        for place in self.db().read(inbox::folder_places).await? {
            places.extend(self.without_pool(place)?);
        }
        for Seen { place, roots, surely } in places {
            let mut after = String::new();
            for _ in 0..MOST_FOLDERS / AT_ONCE {
                let (at, from) = (place.clone(), after.clone());
                let read = move |tx: &mut Tx<'_>| inbox::left_folders(tx, &at, &from, AT_ONCE);
                let notes = self.db().read(read).await?;
                let Some((last, _)) = notes.last() else { break };
                after.clone_from(last);
                for (note, job) in notes {
                    self.clear(note, job, &roots, surely).await?;
                }
            }
        }
        Ok(())
    }

    /// The same of one job.
    async fn clear_folders_of(&self, job: JobId) -> Result<()> {
        for Seen { place, roots, surely } in self.seen_places()? {
            if !place.is_empty() {
                self.clear(format!("folder-{job}-{place}"), job, &roots, surely).await?;
            }
        }
        Ok(())
    }

    /// Removes what a job left below some folders, and the note about it. Where it is not sure that it lies
    /// there, nothing is taken for gone that was not found.
    async fn clear(&self, note: String, job: JobId, roots: &[PathBuf], surely: bool) -> Result<()> {
        let folders: Vec<PathBuf> = roots.iter().map(|root| root.join(job.to_string())).collect();
        let gone = move || {
            let found = folders.iter().any(|folder| is_there(folder));
            Ok(folders.iter().all(|folder| remove(folder)) && (surely || found))
        };
        if blocking(gone).await? {
            self.db().write(move |tx| inbox::folder_is_gone(tx, &note)).await
        } else {
            Ok(())
        }
    }

    /// Places as notes name them, and where this server sees them. A folder of a pool that is not there,
    /// because nobody has mounted it, is not seen. Notes from before there were places name none: all that
    /// are seen are meant.
    fn seen_places(&self) -> Result<Vec<Seen>> {
        let me = self.server_id()?;
        let mut places = Vec::new();
        let mut see = |place: String, roots| places.push(Seen { place, roots, surely: true });
        for pool in &self.pool_list().list {
            let own = format!("{}/{me}", pool.name);
            match self.pool_folder(&pool.name) {
                // What is kept there is our own.
                None => see(own, vec![self.own_checkpoints()]),
                Some((folder, root)) if is_there(folder) => {
                    see(own, vec![root.clone()]);
                    see(format!("{}/", pool.name), vec![root]);
                }
                Some(_) => {}
            }
        }
        see(String::new(), self.seen_roots());
        Ok(places)
    }

    /// All folders below which jobs save their work that this server sees.
    fn seen_roots(&self) -> Vec<PathBuf> {
        let pools = self.pool_list().list.iter().filter_map(|pool| self.pool_folder(&pool.name));
        let seen = pools.filter(|(folder, _)| is_there(folder)).map(|(_, root)| root);
        std::iter::once(self.own_checkpoints()).chain(seen).collect()
    }

    /// Where to look for what lies in a pool that was taken out or has another name by now, if it may be
    /// seen from here: in all folders. What this machine ran is there or nowhere; what others ran may lie in
    /// a folder that nobody names any more.
    fn without_pool(&self, place: String) -> Result<Option<Seen>> {
        let Some((pool, server)) = place.split_once('/') else { return Ok(None) };
        let ours = server == self.server_id()?;
        if self.pool_list().by_name(pool).is_some() || !(ours || server.is_empty()) {
            return Ok(None);
        }
        Ok(Some(Seen { place, roots: self.seen_roots(), surely: ours }))
    }
}

fn is_there(folder: &Path) -> bool {
    std::fs::metadata(folder).is_ok_and(|it| it.is_dir())
}

fn remove(folder: &Path) -> bool {
    match std::fs::remove_dir_all(folder) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => {
            tracing::warn!(folder = %folder.display(), %error, "a folder of a deleted job stays");
            false
        }
    }
}
