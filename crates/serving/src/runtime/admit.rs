//! Who may wait for a model: there is room, and there is use in it.
//!
//! What must hold: whoever is refused is refused at once and told when to come again; whoever is
//! let in and goes away leaves nothing behind.

use std::sync::Arc;
use std::time::{Duration, Instant};

use falaj_base::{Error, Result, code};
use tokio::sync::oneshot;

use super::SPANS;
use super::ask::Priority;
use super::batch::Turn;
use super::instances::{Instances, State};
use super::job::{Computed, Entry, Job, Ticket, too_late};
use super::line::expected_wait;
use super::room::Taken;

/// The least that a refused caller is told to wait.
pub(super) const LEAST_WAIT: Duration = Duration::from_millis(100);

impl Instances {
    /// Joins the line, or is refused at once. A thread is woken for it.
    pub(super) fn join(self: &Arc<Self>, job: Job) -> Result<Place> {
        self.join_and(job, |state| self.wake_or_start(state))
    }

    /// The same for one who comes back at once and computes for all who are there by then.
    pub(super) fn join_company(self: &Arc<Self>, job: Job) -> Result<(Place, Coming)> {
        let place = self.join_and(job, |state| {
            state.coming += 1;
            false
        })?;
        Ok((place, Coming { instances: Arc::clone(self), came: false }))
    }

    /// `then` says whether a thread has to be started.
    fn join_and(
        self: &Arc<Self>,
        job: Job,
        then: impl FnOnce(&mut State) -> bool,
    ) -> Result<Place> {
        let cost = self.costs.expect(job.bytes);
        let mut displaced = Vec::new();
        let mut state = self.state();
        let taken = self.admit(&mut state, &job, cost, &mut displaced);
        let joined = taken.map(|taken| {
            let (reply, answer) = oneshot::channel();
            let (ticket, caller) = (Arc::<Ticket>::default(), tracing::Span::current());
            let waits = Some(tracing::debug_span!(target: SPANS, parent: &caller, "queue"));
            let (held, deadline) = (Arc::clone(&ticket), job.deadline);
            let cost = cost.unwrap_or_default();
            let turn =
                state.line.join(Entry { job, cost, reply, ticket: held, caller, waits, taken });
            Place { instances: Arc::clone(self), turn, deadline, ticket, answer, over: false }
        });
        let start = joined.is_ok() && then(&mut state);
        drop(state);
        for entry in displaced {
            let _ = entry.reply.send(Err(full("requests of higher priority", LEAST_WAIT)));
        }
        if start {
            self.start();
        }
        joined
    }

    /// Whether there is room for one more, and use in waiting. Those of lower priority make room.
    fn admit(
        &self,
        state: &mut State,
        job: &Job,
        cost: Option<Duration>,
        displaced: &mut Vec<Entry>,
    ) -> Result<Option<Taken>> {
        if state.closed {
            let text = "the model is being unloaded; asking again loads it";
            return Err(Error::new(&code::UNAVAILABLE, text).retry_after(LEAST_WAIT));
        }
        let ahead = state.line.ahead(job.priority);
        let wait = expected_wait(ahead, &self.costs, self.batching(), self.count());
        let wait = wait.unwrap_or_default() + self.half_a_run(state, cost);
        let answered = Instant::now() + wait + cost.unwrap_or_default();
        if ahead.requests > 0 && answered > job.deadline {
            return Err(full("requests that take longer than its deadline allows", wait));
        }
        while state.line.len() >= self.settings.max_queue {
            match state.line.pop_lower(job.priority) {
                Some(entry) => displaced.push(entry),
                None => return Err(full(&format!("{} requests", state.line.len()), wait)),
            }
        }
        loop {
            let bytes = state.line.bytes().saturating_add(job.bytes);
            let fits = bytes <= self.settings.max_queue_bytes;
            let taken = if fits { self.queue_room.take(job.bytes) } else { None };
            // One alone is let in however large it is, or it never would be.
            if taken.is_some() || state.line.is_empty() {
                return Ok(taken);
            }
            match state.line.pop_lower(job.priority) {
                Some(entry) => displaced.push(entry),
                None => return Err(full(&format!("{} bytes", state.line.bytes()), wait)),
            }
        }
    }

    /// The refusal of a request of this priority that has not been read yet, if it would find the
    /// line full of others that it cannot displace.
    pub(super) fn refusal(&self, priority: Priority) -> Option<Error> {
        let state = self.state();
        let full_up = state.line.len() >= self.settings.max_queue;
        if state.closed || !full_up || state.line.has_lower(priority) {
            return None;
        }
        let ahead = state.line.ahead(priority);
        let cost = self.costs.expect(ahead.bytes / ahead.requests.max(1));
        let wait = expected_wait(ahead, &self.costs, self.batching(), self.count());
        let wait = wait.unwrap_or_default() + self.half_a_run(&state, cost);
        let waiting = state.line.len();
        drop(state);
        Some(full(&format!("{waiting} requests"), wait))
    }

    /// What is left of the runs in progress, if all sessions are busy: half of one, on average.
    fn half_a_run(&self, state: &State, cost: Option<Duration>) -> Duration {
        let busy = state.free.is_empty();
        let instances = u32::try_from(self.count().max(1)).unwrap_or(u32::MAX);
        cost.filter(|_| busy).unwrap_or_default() / 2 / instances
    }
}

pub(super) fn full(by: &str, wait: Duration) -> Error {
    Error::new(&code::OVERLOADED, format!("the queue of the model is taken by {by}"))
        .retry_after(wait.max(LEAST_WAIT))
}

/// Somebody who joined the line and is about to compute for all in it.
#[derive(Debug)]
pub(super) struct Coming {
    instances: Arc<Instances>,
    came: bool,
}

impl Coming {
    /// Computes those who wait, here, if a session is free and it is soon done. Sees to it that
    /// somebody computes the others.
    pub(super) fn compute(mut self) {
        self.came = true;
        let instances = &self.instances;
        let mut state = instances.state();
        state.coming -= 1;
        let departed = instances.depart_briefly(&mut state);
        let start = match departed {
            Some(_) => instances.left_alone(&mut state),
            // What is not soon done is for a thread, however many are still to come.
            None => instances.kept_waiting(&mut state),
        };
        drop(state);
        if start {
            instances.start();
        }
        if let Some(departed) = departed {
            super::work::compute(instances, departed);
        }
    }
}

impl Drop for Coming {
    /// Whoever counted on one who does not come is seen to.
    fn drop(&mut self) {
        if self.came {
            return;
        }
        let mut state = self.instances.state();
        state.coming -= 1;
        let start = self.instances.left_alone(&mut state);
        drop(state);
        if start {
            self.instances.start();
        }
    }
}

/// A place in the line. Dropping it before the answer gives it up, and the run too if nobody else
/// waits for that.
#[derive(Debug)]
pub(super) struct Place {
    instances: Arc<Instances>,
    turn: Turn,
    deadline: Instant,
    ticket: Arc<Ticket>,
    answer: oneshot::Receiver<Result<Computed>>,
    over: bool,
}

impl Place {
    /// Waits for the answer, until the deadline.
    pub(super) async fn answer(mut self) -> Result<Computed> {
        match tokio::time::timeout_at(self.deadline.into(), &mut self.answer).await {
            Ok(answer) => {
                self.over = true;
                answer.unwrap_or_else(|_| Err(Error::internal("a request was lost")))
            }
            Err(_) => Err(too_late()),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        // First, so that nobody puts it back into the line afterwards.
        self.answer.close();
        // Bound to a name: what it holds is freed after the lock is.
        let waiting = self.instances.state().line.remove(self.turn);
        if waiting.is_none() {
            self.ticket.leave();
        }
    }
}
