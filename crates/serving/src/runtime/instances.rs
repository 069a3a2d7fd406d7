//! The sessions of one model, the requests that wait for them, and the threads that bring both
//! together.
//!
//! What must hold: a session is with one run at a time, and comes back after it or is replaced; a
//! request that joined is answered once, or is gone since whoever asked is; nothing waits while a
//! session is free and a batch is due.
//!
//! A thread is started when something has to wait and ends when nothing did for a while: models
//! that answer at once, or are not asked, have none.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use falaj_inference::Session;
use tokio::sync::watch;

use super::admit::{LEAST_WAIT, full};
use super::ask::Priority;
use super::batch::{Next, Turn, next};
use super::cost::{BRIEF, Costs, LIGHT, MEETING};
use super::job::{Entry, Job, too_late};
use super::key::ModelKey;
use super::line::Line;
use super::meter::Meter;
use super::repair::{Reload, repair};
use super::room::{Room, Taken};
use super::settings::{Batching, Settings};

/// How long a thread stays that has nothing to do.
const IDLE: Duration = Duration::from_secs(10);
/// How a model is run whose requests share nothing.
static ALONE: Batching = Batching { max_rows: 1, delay: Duration::ZERO, preferred: Vec::new() };

/// The sessions of one model and what waits for them.
#[derive(Debug)]
pub(super) struct Instances {
    key: ModelKey,
    state: Mutex<State>,
    wake: Condvar,
    count: usize,
    pub(super) settings: Settings,
    /// Whether requests may share a run; found out to be false if outputs are not by row.
    shared_runs: AtomicBool,
    pub(super) costs: Costs,
    pub(super) meter: Arc<Meter>,
    pub(super) queue_room: Arc<Room>,
    reload: Reload,
    /// What its memory is counted with, until the last session is gone.
    memory: Taken,
    /// Tells by its end that all of this is gone.
    alive: watch::Sender<()>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) line: Line,
    pub(super) free: Vec<Box<dyn Session>>,
    threads: usize,
    sleeping: usize,
    /// Those who joined and are about to come back and compute for all, so nobody need be woken.
    pub(super) coming: usize,
    pub(super) closed: bool,
}

/// Where a job is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Where it arrives, at once.
    Here,
    /// Where it arrives, with others that arrive there at the same time.
    InCompany,
    /// On a thread of the model.
    Elsewhere,
}

/// A session, and those who are computed on it together.
pub(super) type Departed = (Box<dyn Session>, Vec<(Turn, Entry)>);

impl State {
    /// Takes a batch out of the line. None if some of it are hopeless: then it is decided again.
    fn depart(&mut self, turns: Vec<Turn>) -> Option<Departed> {
        let (now, others) = (Instant::now(), self.line.len() > 1);
        let taken = turns.into_iter().filter_map(|turn| Some((turn, self.line.remove(turn)?)));
        let taken: Vec<_> = taken.collect();
        if taken.iter().any(|(_, entry)| entry.hopeless(now, others)) {
            for (turn, entry) in taken {
                if entry.hopeless(now, others) {
                    let _ = entry.reply.send(Err(too_late()));
                } else {
                    self.line.put_back(turn, entry);
                }
            }
            return None;
        }
        Some((self.free.pop()?, taken))
    }
}

/// What instances are made of.
pub(super) struct Parts {
    pub key: ModelKey,
    pub sessions: Vec<Box<dyn Session>>,
    pub settings: Settings,
    pub shared_runs: bool,
    pub costs: Costs,
    pub meter: Arc<Meter>,
    pub queue_room: Arc<Room>,
    pub reload: Reload,
    pub memory: Taken,
}

impl Instances {
    pub(super) fn new(parts: Parts) -> Arc<Self> {
        let Parts { key, sessions, settings, costs, meter, queue_room, reload, memory, .. } = parts;
        let count = sessions.len();
        let state = State { free: sessions, ..State::default() };
        Arc::new(Self {
            key,
            state: Mutex::new(state),
            wake: Condvar::new(),
            count,
            settings,
            shared_runs: AtomicBool::new(parts.shared_runs),
            costs,
            meter,
            queue_room,
            reload,
            memory,
            alive: watch::Sender::new(()),
        })
    }

    pub(super) fn key(&self) -> &ModelKey {
        &self.key
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn memory(&self) -> usize {
        self.memory.bytes()
    }

    /// Ends when all of this is gone: the sessions, and the memory they took.
    pub(super) fn gone(&self) -> watch::Receiver<()> {
        self.alive.subscribe()
    }

    /// A job that is light is computed where it arrives: alone, or, while others are under way and
    /// a row costs much less beside theirs, in their company. Not if the operator wants requests to
    /// wait for each other.
    pub(super) fn way(&self, job: &Job) -> Way {
        let waits = self.batching().is_some_and(|batching| !batching.delay.is_zero());
        match self.costs.expect(job.bytes) {
            Some(cost) if cost <= LIGHT && !waits => {
                let alone = self.meter.in_flight() <= 1;
                let gains = || self.saved_beside_others(job, cost) >= MEETING;
                if !alone && gains() { Way::InCompany } else { Way::Here }
            }
            _ => Way::Elsewhere,
        }
    }

    /// What a row of a job costs less in a full batch than in a run of its own.
    fn saved_beside_others(&self, job: &Job, cost: Duration) -> Duration {
        let (Some(batching), Some(_)) = (self.batching(), &job.kind) else { return Duration::ZERO };
        let share = |time: Duration, rows: usize| time / u32::try_from(rows).unwrap_or(u32::MAX);
        let full =
            self.costs.expect((job.bytes / job.rows.max(1)).saturating_mul(batching.max_rows));
        let beside = full.map_or(Duration::ZERO, |full| share(full, batching.max_rows));
        share(cost, job.rows.max(1)).saturating_sub(beside)
    }

    /// How requests are put together, if they may be.
    pub(super) fn batching(&self) -> Option<&Batching> {
        self.shared_runs.load(Ordering::Relaxed).then_some(&self.settings.batching)
    }

    /// Requests and bytes that wait.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let state = self.state();
        (state.line.len(), state.line.bytes())
    }

    /// Refuses whoever comes from now on; those who wait are still answered.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.wake.notify_all();
    }

    /// A session, if one is free and nobody waits for it.
    pub(super) fn take_at_once(&self) -> Option<Box<dyn Session>> {
        let mut state = self.state();
        if state.closed || !state.line.is_empty() { None } else { state.free.pop() }
    }

    /// One more session, made from one that nobody uses now.
    pub(super) fn another(&self) -> Option<Box<dyn Session>> {
        self.state().free.first()?.another().ok()
    }

    /// Whoever gives it back may be none of the model's threads and never look at the line again.
    pub(super) fn give_back(self: &Arc<Self>, session: Box<dyn Session>) {
        let mut state = self.state();
        state.free.push(session);
        let start = self.left_alone(&mut state);
        drop(state);
        if start {
            self.start();
        }
    }

    /// A session panicked: it is thrown away, and another loaded in its place.
    pub(super) fn lost(self: &Arc<Self>, session: Box<dyn Session>, told: &str) {
        // What panicked may panic again when it is taken down.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(session)));
        self.replace(told);
    }

    /// Loads a session in place of one that is gone.
    pub(super) fn replace(self: &Arc<Self>, told: &str) {
        self.meter.panicked();
        tracing::error!(model = %self.key, panic = told, "a model panicked; it is loaded again");
        repair(self, &self.reload);
    }

    /// No request shares a run from now on: outputs turned out not to have a row for each row.
    pub(super) fn never_together(&self) {
        if self.shared_runs.swap(false, Ordering::Relaxed) {
            tracing::warn!(model = %self.key, "outputs are not by row; requests share no run");
        }
    }

    /// Wakes a thread for what joined. True if one has to be started for it.
    pub(super) fn wake_or_start(&self, state: &mut State) -> bool {
        if state.sleeping > 0 {
            self.wake.notify_one();
            return false;
        }
        let start = state.threads < self.count;
        state.threads += usize::from(start);
        start
    }

    /// Wakes a thread if a session is free for somebody who waits. True if one has to be started
    /// for that. While none is free nobody need be woken: `give_back` sees to those who wait.
    pub(super) fn kept_waiting(&self, state: &mut State) -> bool {
        !state.line.is_empty() && !state.free.is_empty() && self.wake_or_start(state)
    }

    /// The same, unless somebody is about to come who sees to it. To be asked after all that makes a
    /// session free, puts somebody into the line, or makes those who come fewer.
    pub(super) fn left_alone(&self, state: &mut State) -> bool {
        state.coming == 0 && self.kept_waiting(state)
    }

    /// Takes a batch out of the line that is soon computed, if a session is free for it.
    pub(super) fn depart_briefly(&self, state: &mut State) -> Option<Departed> {
        if state.free.is_empty() {
            return None;
        }
        let Next::Run(turns) = self.decide(&state.line) else { return None };
        let bytes = turns.iter().filter_map(|turn| state.line.bytes_of(*turn)).sum();
        let brief = self.costs.expect(bytes).is_some_and(|cost| cost <= BRIEF);
        if brief { state.depart(turns) } else { None }
    }

    pub(super) fn start(self: &Arc<Self>) {
        let here = Arc::clone(self);
        // The system shows fifteen letters of it.
        let short: String = self.key.as_str().chars().filter(char::is_ascii_graphic).collect();
        let name = format!("infer-{}", short.get(..9).unwrap_or(&short));
        let thread = std::thread::Builder::new().name(name);
        if let Err(error) = thread.spawn(move || super::work::work(&here)) {
            tracing::error!(model = %self.key, %error, "no thread for a model");
            let mut state = self.state();
            state.threads -= 1;
            let stranded = if state.threads == 0 { Some(state.line.drain()) } else { None };
            drop(state);
            for entry in stranded.into_iter().flatten() {
                let _ = entry.reply.send(Err(full("the machine's limit of threads", LEAST_WAIT)));
            }
        }
    }

    /// What a thread does next: waits for a session and a batch that is due. None if it is to end.
    pub(super) fn next(self: &Arc<Self>) -> Option<Departed> {
        let mut state = self.state();
        let mut let_others_go = true;
        loop {
            let mut pause = None;
            if !state.free.is_empty() {
                match self.decide(&state.line) {
                    // Where processors are short, those who bring the next requests wait for one
                    // as well: let go first, they fill the batch. Where none is wanted by anybody
                    // this takes less than a microsecond.
                    Next::Run(turns) if let_others_go && self.has_room_beside(turns.len()) => {
                        let_others_go = false;
                        drop(state);
                        std::thread::yield_now();
                        state = self.state();
                        continue;
                    }
                    Next::Run(mut turns) => {
                        turns.truncate(self.share(turns.len(), state.free.len()));
                        let Some(departed) = state.depart(turns) else { continue };
                        let more = !state.line.is_empty() && !state.free.is_empty();
                        let start = more && self.wake_or_start(&mut state);
                        drop(state);
                        if start {
                            self.start();
                        }
                        return Some(departed);
                    }
                    Next::Wait(until) => {
                        pause = Some(until.saturating_duration_since(Instant::now()));
                    }
                    Next::Nothing => {}
                }
            }
            if state.closed && state.line.is_empty() {
                state.threads -= 1;
                return None;
            }
            state.sleeping += 1;
            let slept = self.wake.wait_timeout(state, pause.unwrap_or(IDLE));
            let (woken, slept) = slept.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.sleeping -= 1;
            if slept.timed_out() && pause.is_none() && state.line.is_empty() {
                state.threads -= 1;
                return None;
            }
        }
    }

    /// How many of so many requests one session takes while others are free: they are done sooner
    /// side by side. Who wants batches of a size, or waits for them, gets them whole.
    fn share(&self, requests: usize, free: usize) -> usize {
        let any = |batching: &Batching| batching.preferred.is_empty() && batching.delay.is_zero();
        let divides = self.batching().is_some_and(any);
        if divides { requests.div_ceil(free.max(1)) } else { requests }
    }

    /// Whether more could be computed beside so many requests.
    fn has_room_beside(&self, requests: usize) -> bool {
        self.batching().is_some_and(|batching| requests < batching.max_rows)
    }

    fn decide(&self, line: &Line) -> Next {
        let batching = self.batching().unwrap_or(&ALONE);
        let sum = line.ahead(Priority::Low);
        let lasts =
            |rows: usize| self.costs.expect(sum.bytes / sum.rows.max(1) * rows).unwrap_or_default();
        next(line.waiting(), Instant::now(), batching, lasts)
    }

    /// Those whose run together failed wait again, each for a run of its own.
    pub(super) fn again_alone(self: &Arc<Self>, entries: Vec<(Turn, Entry)>) {
        let mut state = self.state();
        for (turn, mut entry) in entries {
            // Nobody waits for it any more.
            if !entry.reply.is_closed() {
                entry.job.kind = None;
                state.line.put_back(turn, entry);
            }
        }
        // Their own session may not come back: another that is free must not be left idle.
        let start = self.left_alone(&mut state);
        drop(state);
        if start {
            self.start();
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
