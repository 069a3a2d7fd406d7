//! Where a job saves its work, what a start goes on from, and what was found in a folder.

use std::path::{Path, PathBuf};

use falaj_base::{Name, Result};
use falaj_store::db::Tx;

use super::folder::{self, Whole};
use super::keep::{leaving, paths, touches};
use super::store::{self, Checkpoint};
use crate::job::{Job, store as jobs};
use crate::live::Plan;
use crate::live::inbox::{self, Note};
use crate::name::{StartId, TaskId};
use crate::{Training, blocking};

/// The most bytes that are checked while everything else waits; more are checked beside it.
const AT_ONCE: u64 = 64 << 20;
/// Where jobs of an engine save their work that name no folder for it, below that of its pool. No start
/// is called that.
const OF_POOL: &str = ".checkpoints";

impl Training {
    /// The folder of a job's checkpoints; none if it saves nothing.
    pub(crate) fn checkpoint_folder(&self, job: &Job, task: u32) -> Option<PathBuf> {
        let asked = job.definition.checkpoint.as_ref()?;
        Some(match &asked.dir {
            Some(dir) if job.tasks.count == 1 => PathBuf::from(dir),
            Some(dir) => PathBuf::from(dir).join(task.to_string()),
            None => {
                // What nodes of others write to is never below our own data.
                let pool = self.config().pool.iter().find(|pool| pool.name == job.pool);
                let folder = pool.and_then(|pool| pool.folder.as_ref());
                let root = folder.map_or_else(|| self.own_checkpoints(), |it| it.join(OF_POOL));
                root.join(job.id.to_string()).join(task.to_string())
            }
        })
    }

    /// The folder of a pool, and where below it jobs save their work that name no folder for it.
    pub(crate) fn pool_folder(&self, pool: &Name) -> Option<(&Path, PathBuf)> {
        let config = self.config().pool.iter().find(|it| it.name == *pool)?;
        let folder = config.folder.as_deref()?;
        Some((folder, folder.join(OF_POOL)))
    }

    /// Whether a folder of a pool is seen from here.
    fn sees(&self, pool: usize) -> bool {
        self.pool_list().list.get(pool).is_some_and(|pool| pool.is_server)
    }

    /// The checkpoint that a start goes on from. On the way, what earlier starts finished and nobody saw
    /// is counted, and halves that they left behind are cleared away, if they lie in a folder of our own.
    pub(crate) async fn resume_from(&self, plan: &Plan) -> Result<Option<Checkpoint>> {
        let (id, job) = (plan.id, &plan.job);
        let Some(folder) = self.checkpoint_folder(job, id.task.task) else { return Ok(None) };
        let ours = job.definition.checkpoint.as_ref().is_some_and(|it| it.dir.is_none());
        let sees = self.sees(plan.flight.pool);
        if sees || ours {
            let folder = folder.clone();
            blocking(move || {
                // A job that cannot save says so itself.
                if let Err(error) = std::fs::create_dir_all(&folder) {
                    tracing::warn!(folder = %folder.display(), %error, "no folder for checkpoints");
                }
                Ok(())
            })
            .await?;
        }
        if sees {
            self.count_unseen(id, &folder).await?;
        }
        let halves = self.db().write(move |tx| store::take_halves(tx, id)).await?;
        if ours && sees {
            self.clear_away_halves(id.task, &folder, halves).await?;
        }
        loop {
            let task = id.task;
            let found = self.db().read(move |tx| store::last_whole(tx, task)).await?;
            let Some(found) = found else { return Ok(None) };
            if !sees {
                return Ok(Some(found));
            }
            let (root, manifest) = (folder.clone(), found.manifest.clone());
            let Some(why) = blocking(move || Ok(folder::broken(&root, &manifest))).await? else {
                return Ok(Some(found));
            };
            tracing::warn!(job = %task.job, step = found.step, why, "a checkpoint is passed over");
            let step = found.step;
            self.db().write(move |tx| store::mark_broken(tx, task, step, &why)).await?;
        }
    }

    /// Counts what starts before this one finished in a folder just before they ended.
    async fn count_unseen(&self, id: StartId, folder: &Path) -> Result<()> {
        let look = folder.to_owned();
        let found = blocking(move || Ok(folder::whole_ones(&look))).await?;
        for whole in found.into_iter().filter(|whole| whole.attempt < id.attempt) {
            let task = id.task;
            let count = move |tx: &mut Tx<'_>| {
                let start = jobs::find_start(tx, task, Some(whole.attempt))?;
                let is_its = start.is_some_and(|start| start.shown.world_size == whole.world);
                // What a later start saved at the same step is newer.
                let known = store::at_step(tx, task, whole.step)?;
                let is_new = known.is_none_or(|known| {
                    known.attempt < whole.attempt
                        || (known.attempt == whole.attempt && known.manifest != whole.parts)
                });
                if is_its && is_new {
                    let of = StartId { task, attempt: whole.attempt };
                    store::count(tx, of, whole.step, &whole.parts)?;
                }
                Ok(())
            };
            self.db().write(count).await?;
        }
        Ok(())
    }

    async fn clear_away_halves(
        &self,
        task: TaskId,
        folder: &Path,
        halves: Vec<String>,
    ) -> Result<()> {
        let all = self.db().read(move |tx| store::all(tx, task)).await?;
        let folder = folder.to_owned();
        blocking(move || {
            let stays: Vec<&str> = all.iter().flat_map(paths).collect();
            for path in halves.iter().filter(|path| !touches(path, &stays)) {
                folder::remove(&folder, path);
            }
            folder::clear_halves(&folder, &stays);
            Ok(())
        })
        .await
    }

    /// Looks into the folder of a running start for checkpoints that count by now. True if there is a
    /// new one; a large one is checked beside this, and heard of later.
    pub(crate) async fn look_into_folder(
        &self,
        id: StartId,
        job: &Job,
        world: u32,
    ) -> Result<bool> {
        let Some(folder) = self.checkpoint_folder(job, id.task.task) else { return Ok(false) };
        self.keep_some(id.task, job).await?;
        let look = folder.clone();
        let found = blocking(move || Ok(folder::whole_ones(&look))).await?;
        let own = found.into_iter().filter(|it| (it.attempt, it.world) == (id.attempt, world));
        let mut newest = None;
        for whole in own.rev() {
            let (task, step) = (id.task, whole.step);
            let known = self.db().read(move |tx| store::at_step(tx, task, step)).await?;
            let is_same = |known: &Checkpoint| {
                known.attempt == whole.attempt && known.manifest == whole.parts
            };
            match known.filter(is_same) {
                None => {
                    newest = Some(whole);
                    break;
                }
                // It is no checkpoint, but one before it may be.
                Some(known) if known.broken.is_some() => {}
                Some(_) => break,
            }
        }
        let Some(whole) = newest else { return Ok(false) };
        let parts = whole.parts.clone();
        if blocking(move || Ok(folder::size(&parts))).await? <= AT_ONCE {
            return self.count_if_good(id, folder, whole).await;
        }
        if self.checking().insert(id) {
            let training = self.clone();
            tokio::spawn(async move {
                if let Err(error) = training.count_if_good(id, folder, whole).await {
                    let error = error.chain();
                    tracing::warn!(start = %id, error, "a checkpoint was not looked at");
                }
                training.checking().remove(&id);
                training.live().wake();
            });
        }
        Ok(false)
    }

    /// Counts a checkpoint whose files are what they are said to be. One that is not so is remembered as
    /// broken, so that it is not read again.
    async fn count_if_good(&self, id: StartId, folder: PathBuf, whole: Whole) -> Result<bool> {
        let parts = whole.parts.clone();
        let why = blocking(move || Ok(folder::broken(&folder, &parts))).await?;
        let write = move |tx: &mut Tx<'_>| {
            store::count(tx, id, whole.step, &whole.parts)?;
            if let Some(why) = &why {
                store::mark_broken(tx, id.task, whole.step, why)?;
                return Ok(false);
            }
            inbox::note(tx, &Note::Reported(id.task.job))?;
            Ok(true)
        };
        self.db().write(write).await
    }

    /// Removes the oldest checkpoints of a folder of our own, if the job wants but some kept.
    async fn keep_some(&self, task: TaskId, job: &Job) -> Result<()> {
        let Some(asked) = &job.definition.checkpoint else { return Ok(()) };
        let (Some(keep), None) = (asked.keep, &asked.dir) else { return Ok(()) };
        let Some(folder) = self.checkpoint_folder(job, task.task) else { return Ok(()) };
        let read = move |tx: &mut Tx<'_>| {
            if store::good(tx, task)? <= u64::from(keep) {
                return Ok(Vec::new());
            }
            store::all(tx, task)
        };
        let all = self.db().read(read).await?;
        let leaving = leaving(&all, usize::try_from(keep).unwrap_or(usize::MAX));
        if leaving.steps.is_empty() {
            return Ok(());
        }
        let forget = move |tx: &mut Tx<'_>| {
            leaving.steps.iter().try_for_each(|step| store::forget(tx, task, *step))?;
            Ok(leaving.paths)
        };
        let gone = self.db().write(forget).await?;
        blocking(move || {
            for path in &gone {
                folder::remove(&folder, path);
            }
            Ok(())
        })
        .await
    }
}
