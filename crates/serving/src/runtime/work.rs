//! What a thread of a model does: batch after batch, until there is nothing to do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use falaj_base::{Error, Result};
use falaj_inference::Session;
use tracing::Span;

use super::SPANS;
use super::ask::Times;
use super::batch::Turn;
use super::instances::{Departed, Instances};
use super::job::{Computed, Entry, Job, Run};
use super::run::{Outcome, run, told};

pub(super) fn work(instances: &Arc<Instances>) {
    while let Some(departed) = instances.next() {
        compute(instances, departed);
    }
}

/// Computes a batch and answers everybody in it.
pub(super) fn compute(instances: &Arc<Instances>, (session, entries): Departed) {
    // A run that panics is met where it runs. Should anything else here panic, the thread goes on:
    // a model whose thread is gone would never answer again.
    let computed = catch_unwind(AssertUnwindSafe(|| attempt(instances, session, entries)));
    if let Err(payload) = computed {
        instances.replace(&told(&*payload));
    }
}

fn attempt(
    instances: &Arc<Instances>,
    mut session: Box<dyn Session>,
    mut entries: Vec<(Turn, Entry)>,
) {
    let started = Instant::now();
    let rows: usize = entries.iter().map(|(_, entry)| entry.job.rows).sum();
    let progress = Run::new(entries.len());
    let mut spans: Vec<Span> = Vec::with_capacity(entries.len());
    for (_, entry) in &mut entries {
        // What it held while it waited.
        (entry.waits, entry.taken) = (None, None);
        spans.push(span(&entry.caller, entry.job.rows, rows));
        entry.ticket.ride(&progress);
        // Gone since it was taken out of the line.
        if entry.reply.is_closed() {
            entry.ticket.leave();
        }
    }
    let jobs: Vec<&Job> = entries.iter().map(|(_, entry)| &entry.job).collect();
    let outcome = spans[0].in_scope(|| run(&mut *session, &jobs, Some(&progress.cancel)));
    drop(spans);
    instances.count_run(&jobs, rows, &outcome);
    match outcome {
        Outcome::Done(outputs, times) => {
            instances.give_back(session);
            for ((_, entry), outputs) in entries.into_iter().zip(outputs) {
                let queued = started - entry.job.since;
                instances.meter.queued(queued);
                let times =
                    Times { queued, computed: times.infer, batch_rows: rows, cached: false };
                let _ = entry.reply.send(Ok((outputs, times)));
            }
        }
        Outcome::Failed(error) => {
            // One of several may be at fault, and the others must not suffer for it.
            refuse_or_part(instances, entries, || error);
            instances.give_back(session);
        }
        Outcome::NotByRow => {
            instances.never_together();
            let fault = || Error::internal("a request alone was taken for one of several");
            refuse_or_part(instances, entries, fault);
            instances.give_back(session);
        }
        Outcome::Panicked(told) => {
            refuse_or_part(instances, entries, || panicked(&told));
            instances.lost(session, &told);
        }
    }
}

/// Tells a single request why; several are tried again, each alone.
fn refuse_or_part(
    instances: &Arc<Instances>,
    mut entries: Vec<(Turn, Entry)>,
    error: impl FnOnce() -> Error,
) {
    if entries.len() > 1 {
        instances.again_alone(entries);
    } else if let Some((_, entry)) = entries.pop() {
        let _ = entry.reply.send(Err(error()));
    }
}

fn panicked(told: &str) -> Error {
    Error::internal(format!("the model panicked: {told}"))
}

fn span(caller: &Span, rows: usize, batch_rows: usize) -> Span {
    tracing::debug_span!(target: SPANS, parent: caller, "compute", rows, batch_rows)
}

impl Instances {
    /// Computes a job here and now, on a session that was free.
    pub(super) fn compute_at_once(
        self: &Arc<Self>,
        mut session: Box<dyn Session>,
        job: &Job,
    ) -> Result<Computed> {
        let queued = job.since.elapsed();
        let span = span(&Span::current(), job.rows, job.rows);
        let outcome = span.in_scope(|| run(&mut *session, &[job], None));
        self.count_run(&[job], job.rows, &outcome);
        match outcome {
            Outcome::Done(mut outputs, times) => {
                self.give_back(session);
                self.meter.queued(queued);
                let outputs = outputs.pop().unwrap_or_default();
                let (computed, batch_rows) = (times.infer, job.rows);
                Ok((outputs, Times { queued, computed, batch_rows, cached: false }))
            }
            Outcome::Failed(error) => {
                self.give_back(session);
                Err(error)
            }
            Outcome::NotByRow => {
                self.give_back(session);
                Err(Error::internal("a request alone was taken for one of several"))
            }
            Outcome::Panicked(told) => {
                self.lost(session, &told);
                Err(panicked(&told))
            }
        }
    }

    fn count_run(&self, jobs: &[&Job], rows: usize, outcome: &Outcome) {
        if let Outcome::Done(_, times) = outcome {
            let took: Duration = times.input + times.infer + times.output;
            self.costs.learn(jobs.iter().map(|job| job.bytes).sum(), took);
            self.meter.ran(jobs.len(), rows, *times);
        }
    }
}
