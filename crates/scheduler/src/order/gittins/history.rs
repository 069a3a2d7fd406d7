//! What is known about how long jobs run.
//!
//! Run times fall into stretches, each a quarter longer than the one before. The chance to end in a
//! stretch, having reached it, is estimated as in survival analysis: of those who reached it, how
//! many ended there. Jobs still alive count as having reached what they have reached, so a young
//! history full of short jobs does not make all jobs look short.
//!
//! This is done for each size of job, leaning on what is usual while little is known; for each tenant
//! and size, leaning on that; and for each batch, leaning on that again. A batch is what a tenant
//! submits of one size without a longer pause: mostly the same program with other parameters, so that
//! the first to finish tells much about the rest.

use std::collections::BTreeMap;

use crate::model::Millis;
use crate::order::Standing;

const STRETCHES: usize = 52;
const FIRST_EDGE: f64 = 60.0;
const GROWTH: f64 = 1.25;
/// What is usual: so many of the small ones, mostly tries, end in each stretch,
const SMALL_HAZARD: f64 = 0.15;
/// so many of larger ones, which somebody means to keep,
const LARGE_HAZARD: f64 = 0.03;
/// and nobody runs much longer than some days: mean seconds until what has run for long ends.
const LIFE: f64 = 60.0 * 3600.0;
/// Chances never become none: something else may always happen.
const LEAST_HAZARD: f64 = 1e-4;
/// Nor certain.
const MOST_HAZARD: f64 = 0.999;

type Curve = [f64; STRETCHES];

/// 1, 2, 3-4, 5-8, … GPUs.
type Size = u8;
/// A tenant and a size.
type GroupId = (u32, Size);
/// A tenant and GPUs, in thousandths.
type LineId = (u32, u32);

/// How strongly the parts of the history lean on each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaning {
    /// What is usual is worth to a size, in jobs of its own.
    pub(super) usual: f64,
    /// What all of a size are worth to a group.
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

    /// One of which nothing is known but that it is like another.
    fn like(other: &Self) -> Self {
        let zero = [0.0; STRETCHES];
        Self { ended: zero, alive: zero, ..other.clone() }
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
    sizes: BTreeMap<Size, Group>,
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
        Self {
            sizes: BTreeMap::new(),
            groups: BTreeMap::new(),
            batches: BTreeMap::new(),
            lines: BTreeMap::new(),
            last_batch: 0,
            stale: true,
            edges,
        }
    }
}

fn size(gpus: f64) -> Size {
    gpus.max(1.0).log2().ceil() as Size
}

/// The chances to end of jobs of a size, as far as they are alike everywhere.
fn usual(size: Size, edges: &[f64; STRETCHES + 1]) -> Curve {
    let each = if size == 0 { SMALL_HAZARD } else { LARGE_HAZARD };
    std::array::from_fn(|at| {
        let width = edges[at + 1] - edges[at];
        1.0 - (1.0 - each) * (-width / LIFE).exp()
    })
}

/// What is known of a size, made if nothing is.
fn size_in<'a>(
    sizes: &'a mut BTreeMap<Size, Group>,
    id: Size,
    edges: &[f64; STRETCHES + 1],
) -> &'a mut Group {
    sizes.entry(id).or_insert_with(|| Group::new(&Curves::of(&usual(id, edges), edges)))
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
        let what = Group::like(self.group(group));
        self.batches.insert(batch, Batch { group, line, what });
        self.stale = true;
        batch
    }

    fn size(&mut self, id: Size) -> &mut Group {
        size_in(&mut self.sizes, id, &self.edges)
    }

    fn group(&mut self, id: GroupId) -> &mut Group {
        let Self { sizes, groups, edges, .. } = self;
        groups.entry(id).or_insert_with(|| Group::like(size_in(sizes, id.1, edges)))
    }

    pub(super) fn finished(&mut self, job: &Standing, memory: f64) {
        let (at, group) = (self.stretch(job), group_of(job));
        self.size(group.1).end(at, memory);
        self.group(group).end(at, memory);
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
        self.sizes.values_mut().for_each(|size| size.alive = [0.0; STRETCHES]);
        self.groups.values_mut().for_each(|group| group.alive = [0.0; STRETCHES]);
        self.batches.values_mut().for_each(|batch| batch.what.alive = [0.0; STRETCHES]);
        for job in live {
            let (at, group) = (self.stretch(&job), group_of(&job));
            self.size(group.1).alive[at] += weight;
            self.group(group).alive[at] += weight;
            if let Some(batch) = self.batches.get_mut(&job.tag) {
                batch.what.alive[at] += weight;
            }
        }
        for (id, size) in &mut self.sizes {
            size.estimate(&usual(*id, &self.edges), leaning.usual, &self.edges);
        }
        for (id, group) in &mut self.groups {
            if let Some(size) = self.sizes.get(&id.1) {
                group.estimate(&size.hazard, leaning.prior, &self.edges);
            }
        }
        // A batch with nobody left is only remembered while it may still grow.
        let lines = &self.lines;
        self.batches.retain(|tag, batch| {
            batch.what.alive.iter().any(|alive| *alive > 0.0)
                || lines.get(&batch.line).is_some_and(|line| line.batch == *tag)
        });
        for batch in self.batches.values_mut() {
            if let Some(group) = self.groups.get(&batch.group) {
                batch.what.estimate(&group.hazard, leaning.batch_prior, &self.edges);
            }
        }
        true
    }

    /// The stretch in which a job is.
    fn stretch(&self, job: &Standing) -> usize {
        let seconds = job.ran as f64 / 1000.0;
        self.edges[1..STRETCHES].partition_point(|edge| *edge <= seconds)
    }

    /// The most that is known about a job; nothing if none of its size ever came.
    fn about(&self, job: &Standing) -> Option<&Group> {
        let group = group_of(job);
        let batch = self.batches.get(&job.tag).map(|batch| &batch.what);
        batch.or_else(|| self.groups.get(&group)).or_else(|| self.sizes.get(&group.1))
    }

    /// Seconds of running per completion, at the best moment to stop.
    pub(super) fn cost(&self, job: &Standing) -> f64 {
        self.about(job).map_or(LIFE, |group| group.cost[self.stretch(job)])
    }

    /// Expected seconds left.
    pub(super) fn rest(&self, job: &Standing) -> f64 {
        self.about(job).map_or(LIFE, |group| group.rest[self.stretch(job)])
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
    ///
    /// Over the share that has ended (to the right) and the time spent (upwards), each edge is a point, and
    /// seconds per completion until an edge are the slope of the line to its point. The best moment to
    /// stop is where such a line touches the lower hull of all points to come, which is kept while going
    /// through the stretches from the last.
    fn of(hazard: &Curve, edges: &[f64; STRETCHES + 1]) -> Self {
        let mut hull = [(0.0, 0.0); STRETCHES];
        let mut points = 0;
        let (mut cost, mut rest) = ([0.0; STRETCHES], [0.0; STRETCHES]);
        let mut left = 0.0;
        for from in (0..STRETCHES).rev() {
            let ends = hazard[from].clamp(LEAST_HAZARD, MOST_HAZARD);
            let spent = (edges[from + 1] - edges[from]) * (1.0 - ends / 2.0);
            // The edge ahead is a point as well; then all are seen from here.
            hull[points] = (0.0, 0.0);
            points += 1;
            for point in &mut hull[..points] {
                *point = (ends + (1.0 - ends) * point.0, spent + (1.0 - ends) * point.1);
            }
            let slope = |at: usize| hull[at].1 / hull[at].0;
            while points > 1 && slope(points - 2) <= slope(points - 1) {
                points -= 1;
            }
            cost[from] = slope(points - 1);
            left = spent + (1.0 - ends) * left;
            rest[from] = left;
        }
        Self { hazard: *hazard, cost, rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every moment to stop, one after the other.
    fn slowly(hazard: &Curve, edges: &[f64; STRETCHES + 1], from: usize) -> (f64, f64) {
        let (mut alive, mut spent, mut best) = (1.0, 0.0, f64::MAX);
        for at in from..STRETCHES {
            let ends = alive * hazard[at].clamp(LEAST_HAZARD, MOST_HAZARD);
            spent += (edges[at + 1] - edges[at]) * (alive - ends / 2.0);
            alive -= ends;
            best = f64::min(best, spent / (1.0 - alive));
        }
        (best, spent)
    }

    #[test]
    fn the_hull_finds_the_best_moment_to_stop() {
        let edges = History::default().edges;
        let mut state = 7_u64;
        for round in 0..200 {
            let hazard: Curve = std::array::from_fn(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let chance = (state >> 40) as f64 / (1_u64 << 24) as f64;
                // Among others, some where nearly nobody and some where nearly everybody ends.
                if round % 2 == 0 { chance.powi(6) } else { chance }
            });
            let curves = Curves::of(&hazard, &edges);
            for from in 0..STRETCHES {
                let (cost, rest) = slowly(&hazard, &edges, from);
                let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b;
                assert!(near(curves.cost[from], cost), "{} {cost}", curves.cost[from]);
                assert!(near(curves.rest[from], rest), "{} {rest}", curves.rest[from]);
            }
        }
    }

    #[test]
    fn what_a_size_did_is_expected_of_new_tenants() {
        let mut history = History::default();
        let leaning = Leaning { usual: 20.0, prior: 20.0, batch_prior: 4.0 };
        let job = |tenant: u32, gpus: f64, ran: Millis| Standing {
            ran,
            gpus,
            tenant,
            ..Standing::default()
        };
        let (small, large) = (job(1, 1.0, 0), job(1, 8.0, 0));
        for it in [&small, &large] {
            history.batch(it, 1, 1);
        }
        // Nothing is known: the large one is expected to run longer.
        assert!(history.cost(&small) < history.cost(&large));
        let before = history.cost(&job(2, 8.0, 0));
        for _ in 0..200 {
            history.finished(&job(1, 8.0, 120_000), 1000.0);
        }
        assert!(history.learn(&mut std::iter::empty(), 1.0, &leaning));
        assert!(!history.learn(&mut std::iter::empty(), 1.0, &leaning), "nothing happened since");
        let after = history.cost(&job(2, 8.0, 0));
        assert!(after < before / 5.0, "{before} {after}");
        // Of another size nothing was learnt.
        assert!(history.cost(&job(2, 1.0, 0)) >= history.cost(&small) / 2.0);
    }
}
