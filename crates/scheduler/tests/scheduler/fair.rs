//! Whose turn it is among queues that live on what others own.

use std::collections::BTreeMap;

use falaj_scheduler::model::{Dimension, GPU_PARTS};
use falaj_scheduler::order::by_name;
use falaj_scheduler::why::Why;
use falaj_scheduler::{
    Amounts, Decision, Event, HalfLife, JobId, JobSpec, Millis, NodeSpec, QueueId, QueueSpec,
    Quota, Restored, RunningAt, Scheduler, Settings,
};

use crate::world::{Dice, World};

const HOUR: Millis = 3_600_000;
const DAY: Millis = 24 * HOUR;
const WEEK: Millis = 7 * DAY;
/// Owns everything and uses nothing.
const OWNER: u32 = 1;

fn gpus(count: u64) -> Amounts {
    Amounts::UNLIMITED.with(Dimension::Gpu, count * GPU_PARTS)
}

fn settings(half_life: Millis) -> Settings {
    Settings { half_life, ..Settings::default() }
}

fn queues(weights: &[u32]) -> Vec<Event> {
    let nothing = Quota::nominal(Amounts::ZERO);
    let mut events = vec![Event::QueueSet(QueueSpec::tenant(OWNER, Quota::nominal(gpus(8))))];
    events.extend(weights.iter().zip(2..).map(|(&weight, id)| {
        Event::QueueSet(QueueSpec { weight, ..QueueSpec::tenant(id, nothing) })
    }));
    events.push(Event::NodeUp(NodeSpec::plain(0)));
    events
}

/// One node of 8 GPUs that queues with these weights borrow, from 2 on.
fn borrowers(half_life: Millis, weights: &[u32]) -> World {
    let mut world = World::with(settings(half_life), by_name("fifo-backfill").unwrap());
    for event in queues(weights) {
        world.tell(event);
    }
    world
}

fn started(decisions: &[Decision]) -> Vec<u64> {
    let start = |decision: &Decision| match decision {
        Decision::Start { job, .. } => Some(job.0),
        _ => None,
    };
    decisions.iter().filter_map(start).collect()
}

#[test]
fn whoever_has_had_less_goes_first_and_knows_why_it_does_not() {
    for (half_life, first) in [(WEEK, 20), (0, 10)] {
        let mut world = borrowers(half_life, &[1, 1]);
        world.tell(Event::Submitted(JobSpec::plain(1, 2, 8)));
        assert_eq!(started(&world.settle()), [1]);
        world.now += DAY;
        world.tell(Event::Submitted(JobSpec::plain(10, 2, 8)));
        world.tell(Event::Submitted(JobSpec::plain(20, 3, 8)));
        assert!(started(&world.settle()).is_empty());
        let Some(Why::Waiting(waits)) = world.scheduler.why(JobId(10)) else { panic!("it waits") };
        match waits.fair {
            Some(fair) => {
                let expected = 1.0 - 0.5_f64.powf(1.0 / 7.0);
                assert!((fair.used - expected).abs() < 1e-9, "{fair:?} {expected}");
                assert_eq!((fair.ahead, waits.ahead), (1, 1));
            }
            None => assert_eq!((half_life, waits.ahead), (0, 0)),
        }
        world.tell(Event::Finished(JobId(1)));
        assert_eq!(started(&world.settle()), [first]);
    }
}

#[test]
fn who_is_within_its_own_goes_before_all_who_borrow() {
    let mut world = borrowers(WEEK, &[1, 1]);
    world.tell(Event::Submitted(JobSpec::plain(1, OWNER, 8)));
    world.settle();
    world.now += 30 * DAY;
    world.tell(Event::Submitted(JobSpec::plain(2, 2, 8)));
    world.tell(Event::Submitted(JobSpec::plain(3, OWNER, 8)));
    world.settle();
    world.tell(Event::Finished(JobId(1)));
    assert_eq!(started(&world.settle()), [3], "it has had everything, and it is its own");
}

#[test]
fn over_time_everybody_has_what_its_weight_says() {
    for (weights, expected) in [([1, 1, 1], [1.0, 1.0, 1.0]), ([1, 2, 5], [0.375, 0.75, 1.875])] {
        let mut world = borrowers(2 * DAY, &weights);
        let mut dice = Dice(7);
        let mut ends: BTreeMap<JobId, Millis> = BTreeMap::new();
        let mut used = [0u64; 3];
        let mut next = 0;
        let mut waiting = [0usize; 3];
        while world.now < 40 * DAY {
            for (queue, waits) in waiting.iter_mut().enumerate() {
                for _ in *waits..4 {
                    next += 1;
                    world.tell(Event::Submitted(JobSpec::plain(next, queue as u32 + 2, 1)));
                    *waits += 1;
                }
            }
            for id in started(&world.settle()) {
                let queue = world.jobs[&JobId(id)].queue.0 as usize - 2;
                let length = HOUR * (1 + dice.below(12));
                waiting[queue] -= 1;
                // What comes before everybody has settled is not counted.
                if world.now > 10 * DAY {
                    used[queue] += length;
                }
                ends.insert(JobId(id), world.now + length);
            }
            world.now += HOUR;
            let over: Vec<JobId> =
                ends.iter().filter(|(_, at)| **at <= world.now).map(|(id, _)| *id).collect();
            for id in over {
                ends.remove(&id);
                world.tell(Event::Finished(id));
            }
        }
        let all: u64 = used.iter().sum();
        for (used, expected) in used.iter().zip(expected) {
            let share = *used as f64 / all as f64 * 3.0;
            assert!((share - expected).abs() < 0.15, "{weights:?}: {share} of {expected}");
        }
    }
}

/// What a queue had when, in plain books.
struct Run {
    job: JobId,
    queue: u32,
    gpus: u64,
    from: Millis,
    to: Option<Millis>,
}

#[derive(Default)]
struct Books(Vec<Run>);

impl Books {
    fn follow(&mut self, world: &World, decisions: &[Decision]) {
        for decision in decisions {
            match decision {
                Decision::Start { job, .. } => {
                    let spec = &world.jobs[job];
                    let (queue, gpus) = (spec.queue.0, spec.per_node.gpu.parts());
                    self.0.push(Run { job: *job, queue, gpus, from: world.now, to: None });
                }
                Decision::Stop { job, .. } => self.end(*job, world.now),
                _ => {}
            }
        }
    }

    fn end(&mut self, job: JobId, now: Millis) {
        let open = self.0.iter_mut().find(|run| run.job == job && run.to.is_none());
        open.unwrap().to = Some(now);
    }

    /// What is left of a queue's usage, of cores, memory and GPUs.
    fn seconds(&self, now: Millis, queue: u32, half_life: HalfLife) -> [u64; 3] {
        let one = JobSpec::plain(0, queue, 1).per_node.amounts(falaj_scheduler::GpuType(0));
        let mut sums = [0.0; 3];
        for run in self.0.iter().filter(|run| run.queue == queue) {
            let of_one = [one.get(Dimension::Cpu), one.get(Dimension::Memory), GPU_PARTS];
            for (sum, amount) in sums.iter_mut().zip(of_one) {
                let held = (amount * run.gpus / GPU_PARTS) as f64;
                *sum += half_life.left_of(held, (run.from, run.to.unwrap_or(now)), now);
            }
        }
        sums.map(|sum: f64| sum.round() as u64)
    }
}

#[test]
fn whoever_begins_anew_counts_and_decides_the_same() {
    for seed in 0..20 {
        let half_life = DAY;
        let mut world = borrowers(half_life, &[1, 2, 1]);
        let mut books = Books::default();
        let mut dice = Dice(seed);
        let mut next = 0;
        for _ in 0..60 {
            for _ in 0..dice.below(3) {
                next += 1;
                let queue = 2 + dice.below(3) as u32;
                let gpus = 1 + dice.below(4) as u8;
                let mut spec = JobSpec::plain(next, queue, gpus);
                let one = JobSpec::plain(0, queue, 1).per_node;
                spec.per_node.cpu = one.cpu * u32::from(gpus);
                spec.per_node.memory = one.memory * u32::from(gpus);
                world.tell(Event::Submitted(spec));
            }
            let decisions = world.settle();
            books.follow(&world, &decisions);
            world.now += HOUR / 2 * (1 + dice.below(5));
            let running: Vec<JobId> = world.running.keys().copied().collect();
            for id in running {
                if dice.one_in(3) {
                    books.end(id, world.now);
                    world.tell(Event::Finished(id));
                }
            }
        }
        world.tell(Event::Tick);
        let mut anew = Scheduler::new(settings(half_life), by_name("fifo-backfill").unwrap());
        for event in queues(&[1, 2, 1]) {
            anew.apply(0, event);
        }
        for queue in 2..5 {
            let seconds = books.seconds(world.now, queue, HalfLife::of(half_life));
            anew.apply(world.now, Event::Used { queue: QueueId(queue), seconds });
        }
        for (id, spec) in &world.jobs {
            let running = world.running.get(id).map(|run| RunningAt {
                placement: run.placement.clone(),
                since: run.since,
                saved: run.since,
            });
            let restored = Restored { spec: spec.clone(), submitted: 0, ran: 0, running };
            anew.apply(world.now, Event::Restored(Box::new(restored)));
        }
        for queue in 2..5 {
            let (a, b) = (world.scheduler.shares(QueueId(queue)), anew.shares(QueueId(queue)));
            let (a, b) = (a.unwrap(), b.unwrap());
            assert!((a.0 - b.0).abs() < 1e-12, "{seed} {queue}: {a:?} {b:?}");
            assert!((a.1 - b.1).abs() < 1e-4, "{seed} {queue}: {a:?} {b:?}");
        }
        // What ends now lets the same ones start, in the same order.
        for id in world.running.keys().copied().collect::<Vec<_>>() {
            anew.apply(world.now, Event::Finished(id));
            world.tell(Event::Finished(id));
        }
        assert_eq!(started(&anew.decide(world.now)), started(&world.pass()), "{seed}");
        let events = world.events.clone();
        let mut again = Scheduler::new(settings(half_life), by_name("fifo-backfill").unwrap());
        let mut decisions = Vec::new();
        for (at, event) in events {
            match event {
                Some(event) => again.apply(at, event),
                None => decisions.extend(again.decide(at)),
            }
        }
        assert_eq!(decisions, world.decisions, "{seed}: a replay decides the same");
    }
}
