//! What requests noted down.

use falaj_base::Result;
use falaj_scheduler::Event;
use falaj_store::db::Tx;

use super::inbox::{self, Note};
use super::memory::Memory;
use crate::Training;
use crate::job::store as jobs;
use crate::job::{Job, millis};
use crate::name::JobId;
use crate::queue::store as queues;

/// Notes that are taken at a time.
const NOTES: usize = 1000;
/// Passes go on after so many: those who wait must not wait for all who come.
const ROUNDS: usize = 20;

impl Training {
    pub(super) async fn take_in(&self, memory: &mut Memory) -> Result<()> {
        for _ in 0..ROUNDS {
            let any = self.db().read(|tx| {
                Ok(tx.query_opt("SELECT 1 AS one FROM training_inbox LIMIT 1", &[])?.is_some())
            });
            if !any.await? {
                return Ok(());
            }
            let taken = self.commit(memory, |tx| {
                let notes = inbox::take(tx, NOTES)?;
                let submitted = notes.iter().filter_map(|note| match note {
                    Note::Submitted(job) => Some(*job),
                    _ => None,
                });
                let found =
                    submitted.map(|job| jobs::by_id(tx, job)).collect::<Result<Vec<_>>>()?;
                Ok((notes, found.into_iter().flatten().collect::<Vec<Job>>()))
            });
            let (notes, submitted) = taken.await?;
            let more = notes.len() == NOTES;
            for job in submitted {
                self.submitted(memory, job).await?;
            }
            for note in notes {
                match note {
                    Note::Submitted(_) => {}
                    Note::Cancelled(job) => self.cancel(memory, job).await?,
                    Note::Reported(job) => self.hear_of_checkpoints(memory, job).await?,
                    Note::Queues => self.queues_changed(memory).await?,
                }
            }
            if !more {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn submitted(&self, memory: &mut Memory, job: Job) -> Result<()> {
        if memory.jobs.contains_key(&job.id) || job.state.is_over() {
            return Ok(());
        }
        let project = self.project(&mut memory.projects, job.project).await?;
        let (id, count) = (job.id, job.tasks.count);
        let cancelled = job.cancel_requested_at.is_some();
        memory.add(job, project);
        if cancelled {
            return self.cancel(memory, id).await;
        }
        let now = millis(self.db().now());
        let Some(mut spec) = memory.spec(id, 0, self.pool_list(), now)? else {
            return self.give_all_up(memory, id, count).await;
        };
        let first = spec.id.0;
        for task in 0..u64::from(count) {
            spec.id.0 = first + task;
            memory.scheduler.apply(now, Event::Submitted(spec.clone()));
        }
        Ok(())
    }

    async fn give_all_up(&self, memory: &mut Memory, id: JobId, count: u32) -> Result<()> {
        for task in 0..count {
            let why = "its queue or its pool is not there any more";
            self.give_up(memory, id, task, why).await?;
        }
        Ok(())
    }

    async fn queues_changed(&self, memory: &mut Memory) -> Result<()> {
        let kept = self.db().read(|tx: &mut Tx<'_>| queues::all(tx)).await?;
        let now = millis(self.db().now());
        for event in memory.tree.update(&kept, self.pool_list()) {
            memory.scheduler.apply(now, event);
        }
        Ok(())
    }
}
