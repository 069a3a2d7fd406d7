//! Where a job saves its work, what a start goes on from, and what was found in a folder.

use std::path::PathBuf;

use falaj_base::Result;
use falaj_store::db::Tx;

use super::store::{self, Checkpoint};
use super::{folder, store::Part};
use crate::job::Job;
use crate::live::Plan;
use crate::name::StartId;
use crate::{Training, blocking};

impl Training {
    /// The folder of a job's checkpoints; none if it saves nothing.
    pub(crate) fn checkpoint_folder(&self, job: &Job, task: u32) -> Option<PathBuf> {
        let asked = job.definition.checkpoint.as_ref()?;
        Some(match &asked.dir {
            Some(dir) if job.tasks.count == 1 => PathBuf::from(dir),
            Some(dir) => PathBuf::from(dir).join(task.to_string()),
            None => self.own_checkpoints().join(job.id.to_string()).join(task.to_string()),
        })
    }

    /// Whether a folder of a pool is seen from here.
    fn sees(&self, pool: usize) -> bool {
        self.pool_list().list.get(pool).is_some_and(|pool| pool.is_server)
    }

    /// The checkpoint that a start goes on from. On the way, halves that earlier starts left behind are
    /// cleared away, if they lie in a folder of our own.
    pub(crate) async fn resume_from(&self, plan: &Plan) -> Result<Option<Checkpoint>> {
        let (id, job) = (plan.id, &plan.job);
        let Some(folder) = self.checkpoint_folder(job, id.task.task) else { return Ok(None) };
        let ours = job.definition.checkpoint.as_ref().is_some_and(|it| it.dir.is_none());
        let sees = self.sees(plan.flight.pool);
        if sees {
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
        let halves = self.db().write(move |tx| store::take_halves(tx, id)).await?;
        if ours && sees {
            let folder = folder.clone();
            blocking(move || {
                for path in &halves {
                    folder::remove(&folder, path);
                }
                Ok(())
            })
            .await?;
        }
        loop {
            let task = id.task;
            let found = self.db().read(move |tx| store::last_whole(tx, task)).await?;
            let Some(found) = found else { return Ok(None) };
            if !sees {
                return Ok(Some(found));
            }
            let manifest = found.manifest.clone();
            let Some(why) = blocking(move || Ok(folder::broken(&manifest))).await? else {
                return Ok(Some(found));
            };
            tracing::warn!(job = %task.job, step = found.step, why, "a checkpoint is passed over");
            let step = found.step;
            self.db().write(move |tx| store::mark_broken(tx, task, step, &why)).await?;
        }
    }

    /// Looks into the folder of a running start for checkpoints that count by now. True if there is a
    /// new one.
    pub(crate) async fn look_into_folder(
        &self,
        id: StartId,
        job: &Job,
        world: u32,
    ) -> Result<bool> {
        let Some(folder) = self.checkpoint_folder(job, id.task.task) else { return Ok(false) };
        let look = folder.clone();
        let found = blocking(move || Ok(folder::whole_ones(&look, world))).await?;
        let Some((step, parts)) = found.into_iter().next_back() else { return Ok(false) };
        let task = id.task;
        let last = self.db().read(move |tx| store::last_whole(tx, task)).await?;
        let same = |last: &Checkpoint| last.step > step || last.manifest == parts;
        if last.as_ref().is_some_and(same) {
            return Ok(false);
        }
        self.db().write(move |tx: &mut Tx<'_>| store::count(tx, id, step, &parts)).await?;
        self.keep_some(id, job).await?;
        Ok(true)
    }

    /// Removes the oldest checkpoints of a folder of our own, if the job wants but some kept.
    pub(crate) async fn keep_some(&self, id: StartId, job: &Job) -> Result<()> {
        let Some(asked) = &job.definition.checkpoint else { return Ok(()) };
        let (Some(keep), None) = (asked.keep, &asked.dir) else { return Ok(()) };
        let Some(folder) = self.checkpoint_folder(job, id.task.task) else { return Ok(()) };
        let task = id.task;
        let read =
            move |tx: &mut Tx<'_>| store::list(tx, task.job, Some(task.task), usize::MAX >> 1);
        let all = self.db().read(read).await?;
        let gone = all.into_iter().skip(usize::try_from(keep).unwrap_or(usize::MAX));
        for checkpoint in gone {
            let step = checkpoint.step;
            self.db().write(move |tx| store::forget(tx, task, step)).await?;
            let paths: Vec<Part> = checkpoint.manifest.into_values().collect();
            let folder = folder.clone();
            blocking(move || {
                for part in &paths {
                    folder::remove(&folder, &part.path);
                }
                Ok(())
            })
            .await?;
        }
        Ok(())
    }
}
