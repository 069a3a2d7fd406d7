//! The state machine: events change what is known, a pass decides.
//!
//! Capacity and quota change hands at the moment of a decision. What must happen in between on the
//! machines is told with it: a start lists who has to leave its nodes first.

mod consolidate;
mod elastic;
mod events;
mod feasible;
mod job;
mod lifecycle;
mod pass;
mod preempt;
mod replan;
mod reserve;
mod restore;
mod submit;
mod timers;

use std::collections::{BTreeMap, BTreeSet, HashMap};

pub(crate) use job::{Job, State};
pub(crate) use reserve::Reservation;
use timers::Timers;

use crate::cluster::{Cluster, Filter};
use crate::decision::{Decision, Placed};
use crate::model::{Amounts, GpuType, JobId, Millis};
use crate::order::{Order, Standing};
use crate::quota::QuotaTree;
use crate::usage::HalfLife;
use crate::waiting::{Verdict, Waiting};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How often running jobs may be displaced by the policy's order.
    pub round: Millis,
    /// How long a job stays where it is before it may be moved for a larger one.
    pub move_after: Millis,
    /// How long an elastic job keeps its width before it grows.
    pub elastic_pause: Millis,
    /// How long it takes until half of what a queue has used is forgotten, where queues that borrow
    /// are compared; never compared so if it is 0.
    pub half_life: Millis,
    /// How much earlier than needed a job with a deadline turns away from spot.
    pub spot_margin: Millis,
    /// The most jobs that a pass looks at one by one because they outrank the order.
    pub first_per_pass: usize,
    /// How many running jobs a pass looks at, over and over, for some to stop or move. The last
    /// search may go beyond.
    pub looks_per_pass: usize,
    /// The most running jobs that one search looks at.
    pub victims_per_search: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            round: 300_000,
            move_after: 2 * 3_600_000,
            elastic_pause: 60_000,
            half_life: 0,
            spot_margin: 600_000,
            first_per_pass: 64,
            looks_per_pass: 40_000,
            victims_per_search: 8192,
        }
    }
}

#[derive(Debug)]
pub struct Scheduler {
    pub(crate) settings: Settings,
    pub(crate) order: Box<dyn Order>,
    pub(crate) cluster: Cluster,
    pub(crate) quota: QuotaTree,
    pub(crate) jobs: Vec<Option<Job>>,
    free: Vec<u32>,
    pub(crate) ids: HashMap<JobId, u32>,
    pub(crate) waiting: Waiting,
    /// Before all classes, the longest waiting first.
    pub(crate) first: BTreeSet<(Millis, u64, u32)>,
    pub(crate) first_verdict: Verdict,
    pub(crate) running: Vec<u32>,
    /// How many run with each priority.
    priorities: BTreeMap<i16, u32>,
    /// Running with more nodes than they need, or fewer than they want.
    elastic: BTreeSet<u32>,
    pub(crate) reservation: Option<Reservation>,
    timers: Timers,
    pub(crate) now: Millis,
    next_round: Millis,
    /// Whether this pass is a round.
    in_round: bool,
    /// When the last pass was.
    pub(crate) passed: Millis,
    sequence: u64,
    generation: u32,
    /// GPUs asked for by everybody present.
    demand: f64,
    /// GPUs that became free per second, of late.
    pub(crate) releases: Releases,
    quota_cut: bool,
    feasible: feasible::Feasible,
    out: Vec<Decision>,
    /// Running jobs as they are looked through for one to displace; made once in a pass.
    victims: Option<preempt::Victims>,
    /// Running jobs looked at in this pass.
    looks: usize,
    tally: preempt::Tally,
}

/// How fast capacity becomes free: an average over the last hour or so.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Releases {
    per_second: f64,
    since: Millis,
    gathered: f64,
}

impl Releases {
    const WINDOW: Millis = 600_000;

    fn add(&mut self, now: Millis, gpus: f64) {
        self.gathered += gpus;
        let span = now.saturating_sub(self.since);
        if span >= Self::WINDOW {
            let rate = self.gathered / (span as f64 / 1000.0);
            let first = self.per_second == 0.0;
            self.per_second = if first { rate } else { 0.7 * self.per_second + 0.3 * rate };
            (self.since, self.gathered) = (now, 0.0);
        }
    }

    /// GPUs per second, if that is known yet.
    pub(crate) fn rate(&self, now: Millis) -> Option<f64> {
        let span = now.saturating_sub(self.since) as f64 / 1000.0;
        let rate = if self.per_second > 0.0 { self.per_second } else { self.gathered / span };
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }
}

impl Scheduler {
    #[must_use]
    pub fn new(settings: Settings, order: Box<dyn Order>) -> Self {
        Self {
            settings,
            order,
            cluster: Cluster::default(),
            quota: QuotaTree::fading(HalfLife::of(settings.half_life)),
            jobs: Vec::new(),
            free: Vec::new(),
            ids: HashMap::new(),
            waiting: Waiting::default(),
            first: BTreeSet::new(),
            first_verdict: Verdict::Unseen,
            running: Vec::new(),
            priorities: BTreeMap::new(),
            elastic: BTreeSet::new(),
            reservation: None,
            timers: Timers::default(),
            now: 0,
            next_round: 0,
            in_round: false,
            passed: 0,
            sequence: 0,
            generation: 0,
            demand: 0.0,
            releases: Releases::default(),
            quota_cut: false,
            feasible: feasible::Feasible::default(),
            out: Vec::new(),
            victims: None,
            looks: 0,
            tally: preempt::Tally::default(),
        }
    }

    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.order.name()
    }

    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Jobs that wait, or have been told to stop and will wait.
    #[must_use]
    pub fn not_running(&self) -> usize {
        self.ids.len() - self.running.len()
    }

    /// Where a job runs; nothing if it does not.
    #[must_use]
    pub fn placement(&self, id: JobId) -> Option<&[Placed]> {
        let job = self.job_of(id)?;
        job.is_running().then_some(&job.placement[..])
    }

    /// Whether the job is known and has not ended.
    #[must_use]
    pub fn knows(&self, id: JobId) -> bool {
        self.ids.contains_key(&id)
    }

    /// What a queue and everything below it holds.
    #[must_use]
    pub fn held(&self, queue: crate::model::QueueId) -> Option<Amounts> {
        Some(*self.quota.held(self.quota.place(queue)?))
    }

    /// What a queue and everything below it holds of the cluster, and has used of it of late: the
    /// largest share of any resource.
    #[must_use]
    pub fn shares(&self, queue: crate::model::QueueId) -> Option<(f64, f64)> {
        let place = self.quota.place(queue)?;
        let capacity = self.cluster.capacity();
        let weight = f64::from(self.quota.weight(place));
        Some((self.quota.share(place, capacity) * weight, self.quota.used(place, capacity)))
    }

    pub(crate) fn let_pass(&mut self, at: Millis) {
        self.now = self.now.max(at);
        self.quota.pass_time(self.now);
    }

    /// When the next pass should be, if no event comes before: at the next round while anybody
    /// waits, or when a job's patience or deadline says so.
    #[must_use]
    pub fn next_pass(&self) -> Option<Millis> {
        let anybody = self.waiting.len() + self.first.len() > 0;
        let round = (anybody && self.order.preempts()).then_some(self.next_round);
        let growth =
            (!self.elastic.is_empty()).then_some(self.passed + self.settings.elastic_pause);
        [round, growth, self.timers.next()].into_iter().flatten().min()
    }

    pub(crate) fn job(&self, slot: u32) -> Option<&Job> {
        self.jobs.get(slot as usize)?.as_ref()
    }

    pub(crate) fn job_mut(&mut self, slot: u32) -> Option<&mut Job> {
        self.jobs.get_mut(slot as usize)?.as_mut()
    }

    pub(crate) fn job_of(&self, id: JobId) -> Option<&Job> {
        self.job(*self.ids.get(&id)?)
    }

    pub(crate) fn standing(&self, job: &Job) -> Standing {
        let running = job.is_running();
        let width = if running { job.placement.len() } else { job.spec.nodes.min.into() };
        let share = if self.order.compares_shares() {
            self.quota.share(job.tenant, self.cluster.capacity())
        } else {
            0.0
        };
        Standing {
            now: self.now,
            submitted: job.submitted,
            sequence: job.sequence,
            first_start: job.first_start,
            ran: job.ran_by(self.now),
            service: job.service_by(self.now),
            gpus: job.gpus(width),
            tenant: job.tenant,
            tag: job.tag,
            share,
            running,
            preemptions: job.preemptions,
            contention: self.contention(),
            oracle: job.spec.oracle,
        }
    }

    pub(crate) fn score(&self, job: &Job) -> f64 {
        self.order.score(&self.standing(job))
    }

    /// What everybody asks for over what there is; at least 1.
    fn contention(&self) -> f64 {
        let parts = self.cluster.capacity().get(crate::model::Dimension::Gpu);
        let gpus = parts as f64 / crate::model::GPU_PARTS as f64;
        if gpus > 0.0 { (self.demand / gpus).max(1.0) } else { 1.0 }
    }

    /// What `nodes` shares of a job count against quotas.
    pub(crate) fn amounts(job: &Job, nodes: u64, kind: GpuType) -> Amounts {
        job.spec.per_node.amounts(kind).times(nodes)
    }

    /// Which nodes a job may use, types of GPUs limited to those that quotas leave room for.
    pub(crate) fn filter(&self, slot: u32, job: &Job) -> Filter {
        let nodes = job.spec.nodes.min.into();
        let mut types = 0;
        for kind in self.types_for(job) {
            if self.quota.fits(job.queue, &Self::amounts(job, nodes, kind)) {
                types |= 1 << kind.0;
            }
        }
        Filter { zones: job.spec.zones, spot: job.spot, types, slot }
    }

    /// The types of GPUs that a job could get; one stands for none where it wants no GPU.
    pub(crate) fn types_for(&self, job: &Job) -> impl Iterator<Item = GpuType> + use<> {
        let ask = &job.spec.per_node;
        let types = match ask.gpu_type {
            Some(kind) => 1 << kind.0,
            None if ask.gpu == crate::model::GpuAsk::None => 1,
            None => self.cluster.gpu_types(),
        };
        (0..8).filter(move |bit| types >> bit & 1 == 1).map(GpuType)
    }
}
