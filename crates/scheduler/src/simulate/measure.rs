//! What came of a simulated run.

use super::run::Setup;
use super::trace::TraceJob;
use crate::model::Millis;

const HOUR: f64 = 3_600_000.0;

/// A line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub policy: &'static str,
    pub jobs: usize,
    /// Larger than the cluster.
    pub refused: usize,
    /// Hours from submission to completion.
    pub average_jct: f64,
    pub median_jct: f64,
    pub p99_jct: f64,
    /// Hours not running.
    pub average_queueing: f64,
    /// Of all GPUs, while jobs kept coming, in per cent.
    pub utilisation: f64,
    pub preemptions: u64,
    /// Jobs that took longer than on an equal share of the cluster, in per cent.
    pub unfair: f64,
    pub gpu_hours: f64,
    pub cost: f64,
    /// Hours until the last job ended.
    pub makespan: f64,
    /// Of every job, sorted.
    pub jct_hours: Vec<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Life {
    /// GPU-milliseconds that all present asked for, up to its submission.
    demand_before: f64,
    started: Option<Millis>,
    gpus: u32,
    ran: Millis,
}

#[derive(Debug)]
pub(super) struct Measure {
    lives: Vec<Life>,
    jct: Vec<f64>,
    queueing: f64,
    preemptions: u64,
    refused: usize,
    /// GPUs asked for by all present, and that over time.
    asked: f64,
    demand: f64,
    busy: f64,
    busy_time: f64,
    busy_when_last_came: f64,
    last_came: Millis,
    first_came: Option<Millis>,
    now: Millis,
    /// (JCT, duration, mean demand in GPUs) of every job, judged when the capacity is known.
    judged: Vec<(f64, f64, f64)>,
}

impl Measure {
    pub(super) fn new(jobs: usize) -> Self {
        Self {
            lives: vec![Life::default(); jobs],
            jct: Vec::with_capacity(jobs),
            queueing: 0.0,
            preemptions: 0,
            refused: 0,
            asked: 0.0,
            demand: 0.0,
            busy: 0.0,
            busy_time: 0.0,
            busy_when_last_came: 0.0,
            last_came: 0,
            first_came: None,
            now: 0,
            judged: Vec::with_capacity(jobs),
        }
    }

    pub(super) fn finished(&self) -> usize {
        self.jct.len()
    }

    fn advance(&mut self, now: Millis) {
        let span = (now - self.now) as f64;
        self.demand += span * self.asked;
        self.busy_time += span * self.busy;
        self.now = now;
    }

    pub(super) fn came(&mut self, now: Millis, index: usize, job: &TraceJob) {
        self.advance(now);
        self.first_came.get_or_insert(now);
        (self.last_came, self.busy_when_last_came) = (now, self.busy_time);
        self.lives[index].demand_before = self.demand;
        self.asked += f64::from(job.gpus);
    }

    pub(super) fn started(&mut self, now: Millis, index: usize, gpus: u32) {
        self.advance(now);
        self.busy += f64::from(gpus);
        self.lives[index].started = Some(now);
        self.lives[index].gpus = gpus;
    }

    fn run_ended(&mut self, now: Millis, index: usize) {
        let life = &mut self.lives[index];
        if let Some(started) = life.started.take() {
            life.ran += now - started;
            self.busy -= f64::from(life.gpus);
        }
    }

    pub(super) fn stopped(&mut self, now: Millis, index: usize) {
        self.advance(now);
        self.run_ended(now, index);
        self.preemptions += 1;
    }

    /// A move is a stop and a start at once; it costs as much as a preemption and counts as one.
    pub(super) fn moved(&mut self) {
        self.preemptions += 1;
    }

    pub(super) fn refused(&mut self, now: Millis, _index: usize, job: &TraceJob) {
        self.advance(now);
        self.asked -= f64::from(job.gpus);
        self.refused += 1;
    }

    pub(super) fn left(&mut self, now: Millis, index: usize, job: &TraceJob) {
        self.advance(now);
        self.run_ended(now, index);
        self.asked -= f64::from(job.gpus);
        let life = &self.lives[index];
        let jct = (now - job.submit) as f64;
        self.jct.push(jct / HOUR);
        self.queueing += (jct - life.ran as f64) / HOUR;
        let mean_demand = (self.demand - life.demand_before) / jct.max(1.0);
        self.judged.push((jct, job.duration as f64, mean_demand));
    }

    pub(super) fn outcome(mut self, policy: &'static str, setup: &Setup) -> Outcome {
        let capacity = f64::from(setup.nodes) * f64::from(setup.gpus_per_node);
        let count = self.jct.len().max(1) as f64;
        let unfair = self.judged.iter().filter(|(jct, duration, demand)| {
            // An equal share of a cluster that is not full is all that one asks for.
            *jct > duration * (demand / capacity).max(1.0) + 1.0
        });
        let unfair = 100.0 * unfair.count() as f64 / count;
        self.jct.sort_by(f64::total_cmp);
        let at = |q: f64| {
            let index = (q * self.jct.len() as f64).ceil() as usize;
            self.jct.get(index.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        let coming = (self.last_came - self.first_came.unwrap_or(0)) as f64;
        let gpu_hours = self.busy_time / HOUR;
        Outcome {
            policy,
            jobs: self.jct.len(),
            refused: self.refused,
            average_jct: self.jct.iter().sum::<f64>() / count,
            median_jct: at(0.5),
            p99_jct: at(0.99),
            average_queueing: self.queueing / count,
            utilisation: 100.0 * self.busy_when_last_came / (coming * capacity).max(1.0),
            preemptions: self.preemptions,
            unfair,
            gpu_hours,
            cost: gpu_hours * setup.price,
            makespan: self.now as f64 / HOUR,
            jct_hours: std::mem::take(&mut self.jct),
        }
    }
}
