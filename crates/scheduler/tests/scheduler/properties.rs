//! Random workloads under every policy. The world checks each decision and what must hold after each
//! pass; here: the same again gives the same, passes come to rest, and everybody gets to run.

use falaj_scheduler::model::{Dimension, GPU_PARTS, Level};
use falaj_scheduler::order::{NAMES, by_name};
use falaj_scheduler::{
    Amounts, Ask, Event, GpuAsk, GpuType, JobId, JobSpec, MigProfile, NodeId, NodeSpec, QueueSpec,
    Quota, Scheduler, Settings, Spot, Topology, Width, Zone, ZoneSet,
};

use crate::world::{Dice, World};

const HOUR: u64 = 3_600_000;

fn nodes(dice: &mut Dice) -> Vec<NodeSpec> {
    let count = 2 + dice.below(8) as u32;
    (0..count)
        .map(|id| NodeSpec {
            gpus: [0, 2, 4, 8][dice.below(4) as usize],
            gpu_type: GpuType(dice.below(2) as u8),
            mig: dice.one_in(2),
            zone: Zone(dice.below(3) as u8),
            spot: dice.one_in(4),
            rack: id / 2,
            block: id / 2,
            cpu: 16_000,
            memory: 64_000,
            price: 1 + dice.below(3),
            ..NodeSpec::plain(id)
        })
        .collect()
}

fn gpus(count: u64) -> Amounts {
    Amounts::UNLIMITED.with(Dimension::Gpu, count * GPU_PARTS)
}

fn quota(dice: &mut Dice) -> Quota {
    let mut quota = Quota::nominal(gpus(dice.below(9)));
    if dice.one_in(3) {
        quota.borrowing = gpus(dice.below(6));
    }
    if dice.one_in(3) {
        quota.lending = gpus(dice.below(6));
    }
    quota
}

/// Two tenants, the first with two teams, one of which has two queues. Jobs go to 3, 4, 5 and 1.
fn queues(dice: &mut Dice) -> Vec<QueueSpec> {
    let all = Quota::nominal(Amounts::UNLIMITED.with(Dimension::Gpu, 0));
    if dice.one_in(4) {
        return [1, 3, 4, 5].map(|id| QueueSpec::tenant(id, Quota::NONE)).to_vec();
    }
    vec![
        QueueSpec::tenant(0, if dice.one_in(2) { all } else { quota(dice) }),
        QueueSpec::tenant(1, quota(dice)),
        QueueSpec::under(0, 2, all),
        QueueSpec::under(0, 3, quota(dice)),
        QueueSpec::under(2, 4, quota(dice)),
        QueueSpec::under(2, 5, quota(dice)),
    ]
}

fn job(dice: &mut Dice, id: u64, now: u64) -> JobSpec {
    let gpu = match dice.below(10) {
        0 => GpuAsk::None,
        1 => GpuAsk::Fraction(100 + dice.below(500) as u16),
        2 => GpuAsk::Mig(MigProfile::ALL[dice.below(5) as usize]),
        _ => GpuAsk::Whole([1, 1, 1, 2, 4, 8][dice.below(6) as usize]),
    };
    let min = if dice.one_in(4) { 1 + dice.below(3) as u16 } else { 1 };
    let max = if dice.one_in(4) { min + dice.below(3) as u16 } else { min };
    let level = if dice.one_in(2) { Level::Rack } else { Level::Block };
    let limit = dice.one_in(3).then(|| HOUR * (1 + dice.below(6)));
    let waits_for_spot = limit.is_some() && dice.one_in(4);
    JobSpec {
        priority: [0, 0, 0, 5][dice.below(4) as usize],
        per_node: Ask {
            cpu: 500 * dice.below(8) as u32 + 100,
            memory: 1000 * dice.below(8) as u32,
            gpu,
            gpu_type: dice.one_in(4).then(|| GpuType(dice.below(2) as u8)),
        },
        nodes: Width { min, max },
        zones: if dice.one_in(3) { ZoneSet(dice.below(7) + 1) } else { ZoneSet::ANY },
        spot: match (waits_for_spot, dice.one_in(3)) {
            (true, _) => Spot::UntilDeadlineNears,
            (_, true) => Spot::Allowed,
            _ => Spot::Never,
        },
        topology: match dice.below(6) {
            0 => Topology::Prefer(level),
            1 => Topology::Require(level),
            _ => Topology::Anywhere,
        },
        deadline: waits_for_spot.then(|| now + HOUR * (2 + dice.below(20))),
        time_limit: limit,
        minimum_run: if dice.one_in(3) { 60_000 * dice.below(40) } else { 0 },
        oracle: Some(60_000 * (1 + dice.below(300))),
        ..JobSpec::plain(id, [1, 3, 4, 5][dice.below(4) as usize], 1)
    }
}

/// Lives through a random stretch of time.
fn live(policy: &str, seed: u64) -> World {
    let mut dice = Dice(seed);
    let mut world = World::new(by_name(policy).unwrap());
    for spec in queues(&mut dice) {
        world.tell(Event::QueueSet(spec));
    }
    let nodes = nodes(&mut dice);
    for node in &nodes {
        world.tell(Event::NodeUp(node.clone()));
    }
    let mut next = 0;
    for _ in 0..150 {
        world.now += dice.below(20) * 60_000;
        for _ in 0..=dice.below(3) {
            something(&mut dice, &mut world, &nodes, &mut next);
        }
        world.pass();
        if dice.one_in(2) {
            world.acknowledge();
        }
        if dice.one_in(5) {
            world.settle();
        }
    }
    // From here on nothing new: everything that was accepted must get to run.
    for node in &nodes {
        world.tell(Event::NodeUp(node.clone()));
    }
    world
}

fn something(dice: &mut Dice, world: &mut World, nodes: &[NodeSpec], next: &mut u64) {
    let any_running = |dice: &mut Dice, world: &World| {
        let count = world.running.len() as u64;
        let pick = if count > 0 { dice.below(count) as usize } else { 0 };
        world.running.keys().nth(pick).copied()
    };
    let node = NodeId(dice.below(nodes.len() as u64) as u32);
    match dice.below(40) {
        0 => world.tell(Event::NodeDown(node)),
        1 => world.tell(Event::NodeDrained(node)),
        2..=4 => world.tell(Event::NodeUp(nodes[node.0 as usize].clone())),
        5 => {
            let ids: Vec<_> = world.queues.keys().copied().collect();
            let id = ids[dice.below(ids.len() as u64) as usize];
            // Only leaves: they are all that jobs are charged to in the first place.
            if [1, 3, 4, 5].contains(&id.0) {
                let quota = quota(dice);
                world.tell(Event::QuotaChanged(id, quota));
            }
        }
        6..=15 => {
            if let Some(job) = any_running(dice, world) {
                world.tell(Event::Finished(job));
            }
        }
        16..=18 => {
            if let Some(job) = any_running(dice, world) {
                let of = world.now;
                world.tell(Event::Checkpointed { job, of });
            }
        }
        19 => {
            let known: Vec<JobId> = world.jobs.keys().copied().collect();
            if !known.is_empty() {
                let id = known[dice.below(known.len() as u64) as usize];
                world.tell(Event::Cancelled(id));
            }
        }
        _ => {
            *next += 1;
            let spec = job(dice, *next, world.now);
            world.tell(Event::Submitted(spec));
        }
    }
}

/// Finishes what runs, a job at a time, until nobody is left.
fn drain(world: &mut World, policy: &str, seed: u64) {
    let mut idle = 0;
    for step in 0.. {
        world.now += HOUR;
        world.settle();
        // A quota cut to less than a job needs can keep it waiting for ever, and rightly so.
        let stuck: Vec<JobId> = world.jobs.keys().copied().collect();
        let Some((&oldest, _)) = world.running.iter().min_by_key(|(_, run)| run.since) else {
            // Somebody may be waiting for spot, or for its patience to end.
            idle += 1;
            if idle < 24 * 9 && !stuck.is_empty() {
                continue;
            }
            for id in stuck {
                let spec = &world.jobs[&id];
                assert!(
                    could_not_run_alone(world, spec),
                    "{policy} {seed}: {id:?} never runs: {spec:?} {:?}",
                    world.scheduler.why(id)
                );
            }
            return;
        };
        idle = 0;
        world.tell(Event::Finished(oldest));
        assert!(step < 5000, "{policy} {seed}: never done");
    }
}

/// Whether a job is refused by an empty scheduler with the same nodes and queues, or does not start
/// there.
fn could_not_run_alone(world: &World, spec: &JobSpec) -> bool {
    let mut alone = Scheduler::new(Settings::default(), by_name("fifo").unwrap());
    for queue in world.queues.values() {
        alone.apply(0, Event::QueueSet(*queue));
    }
    for node in world.nodes.values() {
        alone.apply(0, Event::NodeUp(node.clone()));
    }
    let spec = JobSpec { deadline: None, spot: Spot::Allowed, ..spec.clone() };
    alone.apply(0, Event::Submitted(spec));
    alone.decide(0);
    alone.running() == 0
}

#[test]
fn nothing_breaks_and_everybody_runs() {
    for policy in NAMES {
        for seed in 0..60 {
            let mut world = live(policy, seed);
            drain(&mut world, policy, seed);
        }
    }
}

#[test]
fn the_same_events_give_the_same_decisions() {
    for policy in NAMES {
        for seed in 100..110 {
            let world = live(policy, seed);
            let mut again = Scheduler::new(Settings::default(), by_name(policy).unwrap());
            let mut decisions = Vec::new();
            for (at, event) in world.events {
                match event {
                    Some(event) => again.apply(at, event),
                    None => decisions.extend(again.decide(at)),
                }
            }
            assert_eq!(decisions, world.decisions, "{policy} {seed}");
        }
    }
}
