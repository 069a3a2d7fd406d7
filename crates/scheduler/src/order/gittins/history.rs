//! What is known about how long jobs run.
//!
//! Run times fall into stretches, each a quarter longer than the one before. The chance to end in a
//! stretch, having reached it, is estimated as in survival analysis: of those who reached it, how
//! many ended there. Jobs still alive count as having reached what they have reached, so a young
//! history full of short jobs does not make all jobs look short.
//!
//! This is done for everybody; for each tenant and size of job, leaning on everybody while little is
//! known; and for each batch, leaning on that. A batch is what a tenant submits of one size without a
//! longer pause: mostly the same program with other parameters, so that the first to finish tells
//! much about the rest.

use std::collections::BTreeMap;

use crate::model::Millis;
use crate::order::Standing;

const STRETCHES: usize = 52;
const FIRST_EDGE: f64 = 60.0;
const GROWTH: f64 = 1.25;
/// Where nothing is known at all, one in so many ends in each stretch.
const UNKNOWN_HAZARD: f64 = 0.1;
/// What that is worth against the history of everybody, in jobs.
const UNKNOWN_WEIGHT: f64 = 2.0;
/// Chances never become none: something else may always happen.
const LEAST_HAZARD: f64 = 1e-4;

type Curve = [f64; STRETCHES];

/// A tenant and a size.
type GroupId = (u32, u8);
/// A tenant and GPUs, in thousandths.
type LineId = (u32, u32);

/// How strongly the parts of the history lean on each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaning {
    /// What everybody is worth to a group, in jobs of its own.
    pub(super) prior: f64,
    /// What a group is worth to a batch.
    pub(super) batch_prior: f64,
}

#[derive(Clone, Debug, PartialEq)]
struct Group {
    ended: Curve,
    alive: Curve,
    hazard: Curve,
    /// Seconds of running per completion, from the beginning of each stretch on.
    cost: Curve,
    /// Expected seconds left.
    rest: Curve,
}

impl Group {
    fn new(like: &Curves) -> Self {
        let zero = [0.0; STRETCHES];
        Self { ended: zero, alive: zero, hazard: like.hazard, cost: like.cost, rest: like.rest }
    }

    fn end(&mut self, at: usize, memory: f64) {
        let fade = 1.0 - 1.0 / memory;
        for count in &mut self.ended {
            *count *= fade;
        }
        self.ended[at] += 1.0;
    }

    fn estimate(&mut self, prior: &Curve, weight: f64, edges: &[f64; STRETCHES + 1]) {
        let hazard = hazard(&self.ended, &self.alive, prior, weight);
        // Computed alike from the same counts, so the same to the last bit if nothing changed.
        if hazard.map(f64::to_bits) != self.hazard.map(f64::to_bits) {
            let curves = Curves::of(&hazard, edges);
            (self.hazard, self.cost, self.rest) = (curves.hazard, curves.cost, curves.rest);
        }
    }
}

#[derive(Clone, Debug)]
struct Curves {
    hazard: Curve,
    cost: Curve,
    rest: Curve,
}

#[derive(Clone, Debug)]
struct Batch {
    group: GroupId,
    line: LineId,
    what: Group,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    batch: u32,
    first: Millis,
    last: Millis,
}

#[derive(Clone, Debug)]
pub(super) struct History {
    everybody: Group,
    groups: BTreeMap<GroupId, Group>,
    batches: BTreeMap<u32, Batch>,
    /// The newest batch of each line.
    lines: BTreeMap<LineId, Line>,
    last_batch: u32,
    /// Whether anything finished or came since curves were computed.
    stale: bool,
    edges: [f64; STRETCHES + 1],
}

impl Default for History {
    fn default() -> Self {
        let mut edges = [0.0; STRETCHES + 1];
        for (index, edge) in edges.iter_mut().enumerate().skip(1) {
            *edge = FIRST_EDGE * GROWTH.powi(index as i32 - 1);
        }
        let unknown = Curves::of(&[UNKNOWN_HAZARD; STRETCHES], &edges);
        Self {
            everybody: Group::new(&unknown),
            groups: BTreeMap::new(),
            batches: BTreeMap::new(),
            lines: BTreeMap::new(),
            last_batch: 0,
            stale: true,
            edges,
        }
    }
}

/// 1, 2, 3-4, 5-8, … GPUs.
fn size(gpus: f64) -> u8 {
    gpus.max(1.0).log2().ceil() as u8
}

fn group_of(job: &Standing) -> GroupId {
    (job.tenant, size(job.gpus))
}

impl History {
    /// The batch that a new job belongs to.
    pub(super) fn batch(&mut self, job: &Standing, pause: Millis, span: Millis) -> u32 {
        let line = (job.tenant, (job.gpus * 1000.0) as u32);
        if let Some(known) = self.lines.get_mut(&line)
            && job.now <= known.last + pause
            && job.now <= known.first + span
        {
            known.last = job.now;
            return known.batch;
        }
        self.last_batch = self.last_batch.wrapping_add(1);
        let batch = self.last_batch;
        self.lines.insert(line, Line { batch, first: job.now, last: job.now });
        let group = group_of(job);
        let like = self.groups.get(&group).unwrap_or(&self.everybody);
        let mut what = like.clone();
        (what.ended, what.alive) = ([0.0; STRETCHES], [0.0; STRETCHES]);
        self.batches.insert(batch, Batch { group, line, what });
        self.stale = true;
        batch
    }

    fn group(&mut self, id: GroupId) -> &mut Group {
        self.groups.entry(id).or_insert_with(|| {
            let mut new = self.everybody.clone();
            (new.ended, new.alive) = ([0.0; STRETCHES], [0.0; STRETCHES]);
            new
        })
    }

    pub(super) fn finished(&mut self, job: &Standing, memory: f64) {
        let at = self.stretch(job);
        self.everybody.end(at, memory);
        self.group(group_of(job)).end(at, memory);
        if let Some(batch) = self.batches.get_mut(&job.tag) {
            batch.what.end(at, memory);
        }
        self.stale = true;
    }

    /// Takes in who is alive, and computes the curves anew. False if nothing came or finished.
    pub(super) fn learn(
        &mut self,
        live: &mut dyn Iterator<Item = Standing>,
        weight: f64,
        leaning: &Leaning,
    ) -> bool {
        if !std::mem::take(&mut self.stale) {
            return false;
        }
        self.everybody.alive = [0.0; STRETCHES];
        self.groups.values_mut().for_each(|group| group.alive = [0.0; STRETCHES]);
        self.batches.values_mut().for_each(|batch| batch.what.alive = [0.0; STRETCHES]);
        for job in live {
            let at = self.stretch(&job);
            self.everybody.alive[at] += weight;
            self.group(group_of(&job)).alive[at] += weight;
            if let Some(batch) = self.batches.get_mut(&job.tag) {
                batch.what.alive[at] += weight;
            }
        }
        self.everybody.estimate(&[UNKNOWN_HAZARD; STRETCHES], UNKNOWN_WEIGHT, &self.edges);
        for group in self.groups.values_mut() {
            group.estimate(&self.everybody.hazard, leaning.prior, &self.edges);
        }
        // A batch with nobody left is only remembered while it may still grow.
        let lines = &self.lines;
        self.batches.retain(|tag, batch| {
            batch.what.alive.iter().any(|alive| *alive > 0.0)
                || lines.get(&batch.line).is_some_and(|line| line.batch == *tag)
        });
        for batch in self.batches.values_mut() {
            let prior = self.groups.get(&batch.group).unwrap_or(&self.everybody).hazard;
            batch.what.estimate(&prior, leaning.batch_prior, &self.edges);
        }
        true
    }

    /// The stretch in which a job is.
    fn stretch(&self, job: &Standing) -> usize {
        let seconds = job.ran as f64 / 1000.0;
        self.edges[1..STRETCHES].partition_point(|edge| *edge <= seconds)
    }

    /// The most that is known about a job.
    fn about(&self, job: &Standing) -> &Group {
        if let Some(batch) = self.batches.get(&job.tag) {
            return &batch.what;
        }
        self.groups.get(&group_of(job)).unwrap_or(&self.everybody)
    }

    /// Seconds of running per completion, at the best moment to stop.
    pub(super) fn cost(&self, job: &Standing) -> f64 {
        self.about(job).cost[self.stretch(job)]
    }

    /// Expected seconds left.
    pub(super) fn rest(&self, job: &Standing) -> f64 {
        self.about(job).rest[self.stretch(job)]
    }
}

/// The chance to end in each stretch of those who reach it, with `weight` jobs of a prior.
fn hazard(ended: &Curve, alive: &Curve, prior: &Curve, weight: f64) -> Curve {
    let mut hazard = *prior;
    let mut reached = 0.0;
    for at in (0..STRETCHES).rev() {
        // Who is alive in a stretch has not survived it yet: half of them count.
        let exposed = reached + ended[at] + 0.5 * alive[at];
        hazard[at] = (ended[at] + weight * prior[at]) / (exposed + weight);
        reached += ended[at] + alive[at];
    }
    hazard
}

impl Curves {
    /// From each stretch on: the least seconds per completion over all moments to stop, and the
    /// expected seconds until the end.
    fn of(hazard: &Curve, edges: &[f64; STRETCHES + 1]) -> Self {
        let mut cost = [0.0; STRETCHES];
        let mut rest = [0.0; STRETCHES];
        for from in 0..STRETCHES {
            let mut alive = 1.0;
            let mut spent = 0.0;
            let mut best = f64::MAX;
            for at in from..STRETCHES {
                let ends = alive * hazard[at].clamp(LEAST_HAZARD, 1.0);
                let width = edges[at + 1] - edges[at];
                spent += width * (alive - ends / 2.0);
                alive -= ends;
                best = best.min(spent / (1.0 - alive));
            }
            cost[from] = best;
            rest[from] = spent;
        }
        Self { hazard: *hazard, cost, rest }
    }
}
