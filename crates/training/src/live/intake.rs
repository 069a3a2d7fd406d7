//! What requests noted down.

use std::collections::HashSet;

use falaj_base::{Error, Result};
use falaj_scheduler::{Event, Restored};
use falaj_store::db::Tx;

use super::inbox::{self, Note};
use super::memory::{Held, LiveJob, Memory};
use crate::Training;
use crate::job::store as jobs;
use crate::job::{Job, explain, millis};
use crate::name::{JobId, TaskId};
use crate::queue::store as queues;

/// Notes that are taken at a time.
const NOTES: usize = 1000;
/// Passes go on after so many: those who wait must not wait for all who come.
const ROUNDS: usize = 20;

impl Training {
    pub(super) async fn take_in(&self, memory: &mut Memory) -> Result<()> {
        for _ in 0..ROUNDS {
            if !self.db().read(inbox::any).await? {
                return Ok(());
            }
            let taken = self.commit(memory, |tx| {
                let notes = inbox::take(tx, NOTES)?;
                let submitted = notes.iter().filter_map(|note| match note {
                    Note::Submitted(job) => Some(*job),
                    _ => None,
                });
                let found = submitted
                    .map(|job| jobs::by_id_if_readable(tx, job))
                    .collect::<Result<Vec<_>>>()?;
                Ok((notes, found.into_iter().flatten().collect::<Vec<Job>>()))
            });
            let (notes, submitted) = taken.await?;
            let more = notes.len() == NOTES;
            for job in submitted {
                self.submitted(memory, job).await?;
            }
            let mut reported = HashSet::new();
            for note in notes {
                match note {
                    Note::Submitted(_) => {}
                    Note::Cancelled(job) => self.cancel(memory, job).await?,
                    Note::Lost(job) => self.lose(memory, job).await?,
                    Note::Reported(job) => drop(reported.insert(job)),
                    Note::Queues => self.queues_changed(memory).await?,
                    Note::Budgets => self.budgets_changed(memory).await?,
                    Note::Nodes => self.read_nodes(memory).await?,
                }
            }
            self.hear_of_reports(memory, reported).await?;
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
        let project = match self.project(&mut memory.projects, job.project).await {
            Err(error) if !error.kind().is_ours() => {
                tracing::error!(job = %job.id, error = error.chain(), "a job has no project");
                return Ok(());
            }
            found => found?,
        };
        let (id, count) = (job.id, job.tasks.count);
        let cancelled = job.cancel_requested_at.is_some();
        let least = if memory.ledger.is_empty() { None } else { self.least_of(&job) };
        memory.add(job, project, least);
        if cancelled {
            return self.cancel(memory, id).await;
        }
        let now = millis(self.db().now());
        memory.scheduler.apply(now, Event::Tick);
        // What its definition asks for of each task is the same, so they are refused as a whole.
        let mut spec = match self.spec_of(memory, id, now)? {
            Ok(spec) => match memory.scheduler.check(&spec) {
                Ok(()) => spec,
                Err(why) => {
                    let why = self.in_words(memory, id, &why);
                    return self.refuse(memory, id, count, &why).await;
                }
            },
            Err(why) => return self.refuse(memory, id, count, &why).await,
        };
        let first = spec.id.0;
        for task in 0..u64::from(count) {
            spec.id.0 = first + task;
            memory.scheduler.apply(now, Event::Submitted(spec.clone()));
        }
        Ok(())
    }

    /// The specification of a job's first task, or why it cannot have one as things are now.
    pub(super) fn spec_of(
        &self,
        memory: &mut Memory,
        id: JobId,
        now: falaj_scheduler::Millis,
    ) -> Result<Result<falaj_scheduler::JobSpec, String>> {
        match memory.spec(id, 0, self.pool_list(), now) {
            Ok(Some(spec)) => Ok(Ok(spec)),
            Ok(None) => Ok(Err("its queue or its pool is not there any more".to_owned())),
            Err(error) if error.kind().is_ours() => Err(error),
            Err(error) => Ok(Err(error.message().to_owned())),
        }
    }

    /// Why the scheduler would not take a job.
    pub(super) fn in_words(
        &self,
        memory: &Memory,
        id: JobId,
        why: &falaj_scheduler::Refusal,
    ) -> String {
        let Some(live) = memory.jobs.get(&id) else { return String::new() };
        let (definition, pool) = (&live.job.definition, live.job.pool.as_str());
        let error: Error = explain(why, definition, pool, (&memory.tree, self.pool_list()));
        error.message().to_owned()
    }

    async fn refuse(&self, memory: &mut Memory, id: JobId, count: u32, why: &str) -> Result<()> {
        let all = (0..count).map(|task| (TaskId { job: id, task }, why.to_owned()));
        self.give_up_all(memory, all.collect()).await
    }

    /// Tells the scheduler of jobs that were held, as far as it would take them now.
    fn let_go(&self, memory: &mut Memory) -> Result<()> {
        let now = millis(self.db().now());
        // What waits for money waits for that alone.
        let lacks = |live: &LiveJob| live.held.as_ref().is_some_and(|it| it.needs.is_none());
        let held = memory.jobs.iter().filter(|(_, live)| lacks(live));
        let held: Vec<JobId> = held.map(|(id, _)| *id).collect();
        for id in held {
            let spec = match self.spec_of(memory, id, now)? {
                Ok(spec) => match memory.scheduler.check_restored(&spec) {
                    Ok(()) => Ok(spec),
                    Err(why) => Err(self.in_words(memory, id, &why)),
                },
                Err(why) => Err(why),
            };
            let Some(live) = memory.jobs.get_mut(&id) else { continue };
            let Some(held) = live.held.take() else { continue };
            let spec = match spec {
                Ok(spec) => spec,
                Err(why) => {
                    live.held = Some(Held { why, ..held });
                    continue;
                }
            };
            let tasks = held.tasks;
            let submitted = millis(live.job.created_at);
            for task in tasks {
                let ran = live.tasks.get(&task).map_or(0, |(_, row)| row.ran_ms);
                let mut spec = spec.clone();
                spec.id = live.number(task);
                let restored = Restored { spec, submitted, ran, running: None };
                memory.scheduler.apply(now, Event::Restored(Box::new(restored)));
            }
            memory.let_loose(id);
        }
        Ok(())
    }

    async fn budgets_changed(&self, memory: &mut Memory) -> Result<()> {
        self.read_budgets(memory).await?;
        for held in memory.jobs.values_mut().filter_map(|live| live.held.as_mut()) {
            // What was too dear may not be by now.
            held.again_at = None;
        }
        self.let_go_of_affordable(memory, self.db().now())
    }

    async fn queues_changed(&self, memory: &mut Memory) -> Result<()> {
        let kept = self.db().read(|tx: &mut Tx<'_>| queues::all(tx)).await?;
        let now = millis(self.db().now());
        for event in memory.tree.update(&kept, self.pool_list()) {
            memory.scheduler.apply(now, event);
        }
        self.let_go(memory)
    }
}
