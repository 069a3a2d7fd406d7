//! Driving the core through a trace.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::measure::{Measure, Outcome};
use super::trace::{Trace, TraceJob};
use crate::decision::Decision;
use crate::event::Event;
use crate::model::{
    Amounts, Ask, Dimension, GPU_PARTS, GpuAsk, JobId, JobSpec, MAX_GPUS, Millis, NodeSpec,
    QueueId, QueueSpec, Quota, Spot, Topology, Width, ZoneSet,
};
use crate::order::{Head, Order};
use crate::scheduler::{Scheduler, Settings};

/// The cluster to pretend, and what stopping a job costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    pub nodes: u32,
    pub gpus_per_node: u8,
    /// How often the order may displace running jobs.
    pub round: Millis,
    /// Work lost each time a job is stopped.
    pub lost: Millis,
    /// Of a GPU for an hour.
    pub price: f64,
    /// Tenants share everything by what they have and have had, of which half is forgotten in this time;
    /// not at all if it is 0.
    pub half_life: Millis,
}

impl Default for Setup {
    fn default() -> Self {
        Self { nodes: 64, gpus_per_node: 8, round: 300_000, lost: 60_000, price: 2.0, half_life: 0 }
    }
}

/// A job of the trace on its way through.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    remaining: Millis,
    started: Option<Millis>,
    /// Which start a finish belongs to.
    starts: u32,
}

struct Run<'a> {
    setup: &'a Setup,
    trace: &'a Trace,
    scheduler: Scheduler,
    limits_known: bool,
    progress: Vec<Progress>,
    finishes: BinaryHeap<Reverse<(Millis, usize, u32)>>,
    measure: Measure,
}

/// Runs a trace under a policy. `progress` is told how many jobs of how many have finished.
pub fn run(
    trace: &Trace,
    setup: &Setup,
    order: Box<dyn Order>,
    progress: &mut dyn FnMut(usize, usize),
) -> Outcome {
    let name = order.name();
    let mut run = Run::new(trace, setup, order);
    let mut next_job = 0;
    let mut told = 0;
    loop {
        let arrival = trace.jobs.get(next_job).map(|job| job.submit);
        let finish = run.next_finish();
        let pass = run.scheduler.next_pass();
        // A pass alone brings nothing once nobody can come, go or be displaced any more.
        let Some(now) = [arrival, finish, pass].into_iter().flatten().min() else { break };
        if arrival.is_none() && finish.is_none() && run.scheduler.running() == 0 && run.idle(now) {
            break;
        }
        run.finish(now);
        while let Some(job) = trace.jobs.get(next_job).filter(|job| job.submit == now) {
            run.submit(next_job, job, now);
            next_job += 1;
        }
        run.decide(now);
        let done = run.measure.finished();
        if done >= told + 500 {
            told = done;
            progress(done, trace.jobs.len());
        }
    }
    progress(trace.jobs.len(), trace.jobs.len());
    run.measure.outcome(name, setup)
}

impl<'a> Run<'a> {
    fn new(trace: &'a Trace, setup: &'a Setup, order: Box<dyn Order>) -> Self {
        let Setup { round, half_life, .. } = *setup;
        let settings = Settings { round, half_life, ..Settings::default() };
        let limits_known = order.head() == Head::Reserves;
        let mut scheduler = Scheduler::new(settings, order);
        for id in 0..setup.nodes {
            let gpus = setup.gpus_per_node.min(MAX_GPUS);
            scheduler.apply(0, Event::NodeUp(NodeSpec { gpus, ..NodeSpec::plain(id) }));
        }
        let tenants = trace.tenants.len() as u32;
        // Nobody owns anything where all share: somebody who asks for nothing lends it to them.
        let quota = if half_life > 0 { Quota::nominal(Amounts::ZERO) } else { Quota::NONE };
        for tenant in 0..tenants {
            scheduler.apply(0, Event::QueueSet(QueueSpec::tenant(tenant, quota)));
        }
        if half_life > 0 {
            let gpus = u64::from(setup.nodes) * u64::from(setup.gpus_per_node.min(MAX_GPUS));
            let all = Amounts::UNLIMITED.with(Dimension::Gpu, gpus * GPU_PARTS);
            scheduler.apply(0, Event::QueueSet(QueueSpec::tenant(tenants, Quota::nominal(all))));
        }
        Self {
            setup,
            trace,
            scheduler,
            limits_known,
            progress: vec![Progress::default(); trace.jobs.len()],
            finishes: BinaryHeap::new(),
            measure: Measure::new(trace.jobs.len()),
        }
    }

    /// When the next job that still runs finishes.
    fn next_finish(&mut self) -> Option<Millis> {
        while let Some(&Reverse((at, index, start))) = self.finishes.peek() {
            let progress = &self.progress[index];
            if progress.started.is_some() && progress.starts == start {
                return Some(at);
            }
            self.finishes.pop();
        }
        None
    }

    /// Whether a pass decides nothing with nothing running: then nothing ever will.
    fn idle(&mut self, now: Millis) -> bool {
        self.decide(now);
        self.scheduler.running() == 0
    }

    fn finish(&mut self, now: Millis) {
        while self.next_finish() == Some(now) {
            let Some(Reverse((_, index, _))) = self.finishes.pop() else { break };
            self.progress[index].started = None;
            self.scheduler.apply(now, Event::Finished(JobId(index as u64)));
            self.measure.left(now, index, &self.trace.jobs[index]);
        }
    }

    fn submit(&mut self, index: usize, job: &TraceJob, now: Millis) {
        self.progress[index].remaining = job.duration.max(1);
        self.measure.came(now, index, job);
        let spec = spec(index, job, self.setup, self.limits_known);
        self.scheduler.apply(now, Event::Submitted(spec));
    }

    fn decide(&mut self, now: Millis) {
        // Those who are stopped leave at once, and may be the ones for whom there is room now. The
        // second pass of a moment is no round, so this ends.
        for _ in 0..3 {
            let decisions = self.scheduler.decide(now);
            let mut stopped = false;
            for decision in decisions {
                stopped |= self.carry_out(now, decision);
            }
            if !stopped {
                break;
            }
        }
    }

    /// Does what was decided. True if a job was stopped.
    fn carry_out(&mut self, now: Millis, decision: Decision) -> bool {
        let index = decision.job().0 as usize;
        let progress = &mut self.progress[index];
        match decision {
            Decision::Start { placement, .. } => {
                progress.started = Some(now);
                progress.starts += 1;
                self.finishes.push(Reverse((now + progress.remaining, index, progress.starts)));
                let gpus = placement.iter().map(|placed| placed.devices.count_ones()).sum();
                self.measure.started(now, index, gpus);
            }
            Decision::Stop { job, .. } => {
                let ran = now - progress.started.take().unwrap_or(now);
                progress.remaining = progress.remaining.saturating_sub(ran) + self.setup.lost;
                self.measure.stopped(now, index);
                self.scheduler.apply(now, Event::Stopped(job));
                return true;
            }
            Decision::Move { job, .. } => {
                let ran = now - progress.started.unwrap_or(now);
                progress.remaining = progress.remaining.saturating_sub(ran) + self.setup.lost;
                progress.started = Some(now);
                progress.starts += 1;
                self.finishes.push(Reverse((now + progress.remaining, index, progress.starts)));
                self.measure.moved();
                self.scheduler.apply(now, Event::Resized(job));
            }
            Decision::Refuse { .. } => self.measure.refused(now, index, &self.trace.jobs[index]),
            // No job of a trace is elastic.
            Decision::Resize { .. } => {}
        }
        false
    }
}

/// Up to a node's GPUs on one node, more as whole nodes.
fn spec(index: usize, job: &TraceJob, setup: &Setup, limits_known: bool) -> JobSpec {
    let each = u32::from(setup.gpus_per_node.min(MAX_GPUS)).max(1);
    let (nodes, gpus) =
        if job.gpus <= each { (1, job.gpus) } else { (job.gpus.div_ceil(each), each) };
    let (gpu, cpu) = if gpus == 0 { (GpuAsk::None, 1000) } else { (GpuAsk::Whole(gpus as u8), 0) };
    // Backfilling knows limits: the trace's, or the truth where it has none.
    let time_limit = job.time_limit.or(limits_known.then_some(job.duration.max(1)));
    JobSpec {
        id: JobId(index as u64),
        queue: QueueId(job.tenant),
        priority: job.priority,
        per_node: Ask { cpu, memory: 0, gpu, gpu_type: None },
        nodes: Width::exactly(nodes.min(u16::MAX.into()) as u16),
        zones: ZoneSet::ANY,
        spot: Spot::Never,
        topology: Topology::Anywhere,
        deadline: None,
        time_limit,
        minimum_run: 0,
        oracle: Some(job.duration.max(1)),
    }
}
