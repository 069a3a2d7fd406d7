//! A request on its way through a model, checked and measured.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use falaj_base::{Error, Result, code};
use falaj_inference::{Cancel, Metadata, Tensor};
use tokio::sync::oneshot;
use tracing::Span;

use super::ask::{Ask, Inputs, Priority, Times};
use super::batch::Kind;
use super::room::Taken;

/// A request that fits its model.
#[derive(Debug)]
pub(super) struct Job {
    pub inputs: Inputs,
    /// The places of the outputs wanted.
    pub outputs: Vec<usize>,
    /// None if it is to be computed alone.
    pub kind: Option<Kind>,
    pub rows: usize,
    pub bytes: usize,
    pub priority: Priority,
    pub since: Instant,
    pub deadline: Instant,
}

/// Outputs, and how they came about.
pub(super) type Computed = (Vec<(String, Tensor)>, Times);

impl Job {
    /// Refuses what the model cannot take, and what is too late already.
    pub(super) fn new(ask: Ask, metadata: &Metadata, timeout: Duration) -> Result<Self> {
        let since = Instant::now();
        metadata.check(&ask.inputs)?;
        let outputs = metadata.wanted(&ask.outputs)?;
        let latest = since + timeout;
        let deadline = ask.deadline.map_or(latest, |deadline| deadline.min(latest));
        if deadline <= since {
            return Err(too_late());
        }
        let (kind, rows) = match Kind::of(&ask.inputs, &outputs) {
            Some((kind, rows)) => (Some(kind), rows),
            None => (None, 1),
        };
        let bytes = ask.inputs.iter().map(|(_, tensor)| tensor.bytes()).sum();
        let Ask { inputs, priority, .. } = ask;
        Ok(Self { inputs, outputs, kind, rows, bytes, priority, since, deadline })
    }
}

/// A job that waits for an instance.
#[derive(Debug)]
pub(super) struct Entry {
    pub job: Job,
    /// How long computing it alone is going to take, as far as is known.
    pub cost: Duration,
    pub reply: oneshot::Sender<Result<Computed>>,
    pub ticket: Arc<Ticket>,
    /// The caller's span: what is done for it elsewhere is recorded under it.
    pub caller: Span,
    /// Lasts as long as the entry waits.
    pub waits: Option<Span>,
    /// Its share of the bytes that may wait in all queues.
    pub taken: Option<Taken>,
}

/// Connects whoever asked with the run that computes the answer, once there is one.
#[derive(Debug, Default)]
pub(super) struct Ticket(Mutex<Option<Arc<Run>>>);

impl Ticket {
    pub(super) fn ride(&self, run: &Arc<Run>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(run));
    }

    /// Whoever asked is gone.
    pub(super) fn leave(&self) {
        let run = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(run) = run {
            run.leave();
        }
    }
}

/// A run in progress. It is cancelled when all who wait for it are gone.
#[derive(Debug)]
pub(super) struct Run {
    wanted_by: AtomicUsize,
    pub(super) cancel: Cancel,
}

impl Run {
    pub(super) fn new(wanted_by: usize) -> Arc<Self> {
        Arc::new(Self { wanted_by: AtomicUsize::new(wanted_by), cancel: Cancel::new() })
    }

    fn leave(&self) {
        if self.wanted_by.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.cancel.cancel();
        }
    }
}

pub(super) fn too_late() -> Error {
    Error::new(&code::DEADLINE_EXCEEDED, "the deadline passed before the model answered")
}
