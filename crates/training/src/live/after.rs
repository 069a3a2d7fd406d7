//! What follows from the end of a start: its token ends, its run knows, its output is kept, and its
//! executor forgets it. Each is done as often as it takes, and doing it again changes nothing.

use std::time::Duration;

use falaj_base::{Ctx, Error, Result, TokenId};
use falaj_governance::identity::Authenticator;
use falaj_store::db::Tx;

use super::busy::{Task, Work};
use super::inbox;
use super::memory::Memory;
use crate::job::store::{self as jobs, StartRow};
use crate::log::archive;
use crate::name::{JobId, StartId};
use crate::{Training, blocking};

/// How long after its first failure it is tried again, and at most after how long.
const PAUSE: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_mins(5);
/// How often runs are looked for that do not know of the end of their job, and how many at a time.
const LOOK: Duration = Duration::from_secs(30);
const RUNS: usize = 500;

impl Training {
    pub(super) fn see_to_ends(&self, memory: &mut Memory) {
        let now = self.db().now();
        for (id, done) in std::mem::take(&mut self.live().mail().settled) {
            if done {
                memory.ended.remove(&id);
            } else if let Some(ending) = memory.ended.get_mut(&id) {
                let pause = PAUSE.saturating_mul(1 << ending.failures.min(8)).min(LONGEST);
                ending.failures += 1;
                ending.again_at = Some(now + pause);
            }
        }
        let busy = &self.live().busy;
        for (&id, ending) in &memory.ended {
            // While somebody asks for it still, it may be started once more.
            if ending.again_at.is_some_and(|at| at > now) || busy.is(Task::Ask(id)) {
                continue;
            }
            let Some(begun) = busy.begin(Task::Settle(id)) else { continue };
            let training = self.clone();
            let permits = busy.permits(Work::Settle(ending.pool));
            tokio::spawn(async move {
                let permit = permits.acquire_owned().await;
                let settling = training.clone();
                // In a task of its own: whatever goes wrong in there, it is tried again.
                let outcome = tokio::spawn(async move { settling.settle(id).await }).await;
                drop(permit);
                let outcome = outcome.unwrap_or_else(|error| Err(Error::internal(error)));
                if let Err(error) = &outcome {
                    let error = error.chain();
                    tracing::warn!(start = %id, error, "the end of a start was not seen to");
                }
                training.live().mail().settled.push((id, outcome.is_ok()));
                drop(begun);
                training.live().wake();
            });
        }
    }

    /// Looks for jobs that are over and whose runs do not know: whoever was to tell them was killed, or
    /// could not.
    pub(super) async fn see_to_runs(&self, memory: &mut Memory) -> Result<()> {
        let now = self.db().now();
        if memory.runs_looked.is_some_and(|looked| now.since(looked) < LOOK) {
            return Ok(());
        }
        memory.runs_looked = Some(now);
        for job in self.db().read(|tx| inbox::open_runs(tx, RUNS)).await? {
            self.tell_runs(job);
        }
        Ok(())
    }

    /// Lets the runs of a job know of its end, beside the pass.
    pub(super) fn tell_runs(&self, job: JobId) {
        let busy = &self.live().busy;
        let Some(begun) = busy.begin(Task::Runs(job)) else { return };
        let permits = busy.permits(Work::Runs);
        let training = self.clone();
        tokio::spawn(async move {
            let permit = permits.acquire_owned().await;
            if let Err(error) = training.end_runs(job).await {
                tracing::warn!(%job, error = error.chain(), "a run was not told of its end");
            }
            drop((permit, begun));
        });
    }

    async fn end_runs(&self, id: JobId) -> Result<()> {
        let read = move |tx: &mut Tx<'_>| Ok((jobs::by_id(tx, id)?, jobs::tasks(tx, id)?));
        let (job, tasks) = self.db().read(read).await?;
        if let Some(job) = job.filter(|job| job.state.is_over()) {
            let ctx = Ctx::system(super::NAME);
            let project = self.tenancy().project_by_id(&ctx, job.project).await?;
            let project = std::sync::Arc::new(project);
            for (_, state, row) in tasks {
                if let Some(run) = row.run.filter(|_| job.tasks.count > 1) {
                    self.run_ends_as(&project, &run, state).await?;
                }
            }
            self.run_ends(&job, &project, job.run_id.as_deref()).await?;
        }
        self.db().write(move |tx| inbox::runs_know(tx, id)).await
    }

    async fn settle(&self, id: StartId) -> Result<()> {
        let read = move |tx: &mut Tx<'_>| {
            let start = jobs::find_start(tx, id.task, Some(id.attempt))?;
            let job = jobs::by_id(tx, id.task.job)?;
            Ok((start, job, jobs::task(tx, id.task)?))
        };
        let (Some(start), Some(job), task) = self.db().read(read).await? else { return Ok(()) };
        let project = self.tenancy().project_by_id(&Ctx::system(super::NAME), job.project).await?;
        let project = std::sync::Arc::new(project);
        if start.open == 1 {
            self.end_tokens(&start).await?;
            if let Some((state, row)) = task.filter(|(state, _)| state.is_over()) {
                if job.tasks.count > 1
                    && let Some(run) = &row.run
                {
                    self.run_ends_as(&project, run, state).await?;
                }
                if job.state.is_over() {
                    self.run_ends(&job, &project, job.run_id.as_deref()).await?;
                }
            }
            let kept = archive::keep(self, &project, &start).await?;
            let close = move |tx: &mut Tx<'_>| {
                // Whoever was first has kept its output.
                if jobs::open_of(tx, id)? != Some(1) {
                    return Ok(());
                }
                let text = archive::attach(tx, id, &kept)?;
                jobs::close_start(tx, id, &text).map(drop)
            };
            self.db().write(close).await?;
        }
        let Some(pool) = self.pool_list().by_name(start.shown.pool.as_str()) else {
            return Ok(());
        };
        let executor = self.pool_list().list[pool].executor.clone();
        let attempt = id.outside()?;
        blocking(move || {
            if let Err(error) = executor.forget(&attempt) {
                tracing::debug!(%attempt, %error, "what is left of a start stays for now");
            }
            Ok(())
        })
        .await
    }

    async fn end_tokens(&self, start: &StartRow) -> Result<()> {
        let tokens = tokens_of(start);
        let Some(authenticator) = self.authenticator().filter(|_| !tokens.is_empty()) else {
            return Ok(());
        };
        // They ended with the start, unless one was given while it did.
        let end = move |tx: &mut Tx<'_>| Authenticator::end_job_tokens(tx, &tokens);
        if let Some(moved) = self.db().write(end).await? {
            authenticator.told_of(moved);
        }
        Ok(())
    }
}

/// The tokens that a start was given.
pub(super) fn tokens_of(start: &StartRow) -> Vec<TokenId> {
    let tokens = start.token.as_deref().unwrap_or_default().split(',');
    tokens.filter_map(|text| text.parse().ok()).collect()
}
