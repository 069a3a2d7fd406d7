//! What follows from the end of a start: its token ends, its run knows, its output is kept, and its
//! executor forgets it. Each is done as often as it takes, and doing it again changes nothing.

use std::time::Duration;

use falaj_base::{Ctx, Error, Result, TokenId};
use falaj_governance::identity::Authenticator;
use falaj_store::db::Tx;

use super::memory::Memory;
use crate::job::store::{self as jobs, StartRow};
use crate::log::archive;
use crate::name::StartId;
use crate::{Training, blocking};

/// How long after a failure it is tried again.
const PAUSE: Duration = Duration::from_secs(15);

impl Training {
    pub(super) fn see_to_ends(&self, memory: &mut Memory) {
        let now = self.db().now();
        for (id, done) in std::mem::take(&mut self.live().mail().settled) {
            memory.settling.remove(&id);
            if done {
                memory.ended.remove(&id);
            } else {
                memory.settle_again = Some(now + PAUSE);
            }
        }
        if memory.settle_again.is_some_and(|at| at > now) {
            return;
        }
        memory.settle_again = None;
        let due: Vec<StartId> =
            memory.ended.iter().filter(|id| !memory.settling.contains(id)).copied().collect();
        for id in due {
            memory.settling.insert(id);
            let training = self.clone();
            let permits = self.live().settles.clone();
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
                training.live().wake();
            });
        }
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
