//! Gangs, backfilling, elasticity, spot, lost nodes, starvation, consolidation.

use falaj_scheduler::order::by_name;
use falaj_scheduler::{
    Decision, Event, JobId, JobSpec, NodeId, NodeSpec, QueueSpec, Quota, Spot, StopReason, Width,
};

use crate::world::World;

const HOUR: u64 = 3_600_000;

fn world(policy: &str, nodes: u32) -> World {
    let mut world = World::new(by_name(policy).unwrap());
    world.tell(Event::QueueSet(QueueSpec::tenant(1, Quota::NONE)));
    for id in 0..nodes {
        world.tell(Event::NodeUp(NodeSpec::plain(id)));
    }
    world
}

fn runs(world: &World, id: u64) -> bool {
    world.running.contains_key(&JobId(id))
}

fn limited(id: u64, gpus: u8, hours: u64) -> JobSpec {
    JobSpec { time_limit: Some(hours * HOUR), ..JobSpec::plain(id, 1, gpus) }
}

#[test]
fn backfilling_never_delays_the_first() {
    let mut world = world("fifo-backfill", 1);
    for spec in [limited(1, 6, 4), limited(2, 8, 1), limited(3, 2, 5), limited(4, 2, 4)] {
        world.tell(Event::Submitted(spec));
    }
    world.settle();
    assert!(runs(&world, 1) && !runs(&world, 2));
    assert!(!runs(&world, 3), "would still run when the first could start");
    assert!(runs(&world, 4), "is gone by then");
    world.now = 4 * HOUR;
    world.tell(Event::Finished(JobId(1)));
    world.tell(Event::Finished(JobId(4)));
    world.settle();
    assert!(runs(&world, 2));
}

#[test]
fn strict_order_lets_nobody_pass() {
    let mut world = world("fifo", 1);
    for (id, gpus) in [(1, 6), (2, 8), (3, 1)] {
        world.tell(Event::Submitted(JobSpec::plain(id, 1, gpus)));
    }
    world.settle();
    assert!(runs(&world, 1) && !runs(&world, 2) && !runs(&world, 3));
}

#[test]
fn elastic_jobs_grow_into_what_is_free_and_shrink_first() {
    let mut world = world("falaj", 4);
    let elastic = JobSpec { nodes: Width { min: 1, max: 4 }, ..JobSpec::plain(1, 1, 8) };
    world.tell(Event::Submitted(elastic));
    world.settle();
    world.now += HOUR;
    world.settle();
    assert_eq!(world.running[&JobId(1)].placement.len(), 4);
    world.tell(Event::Submitted(JobSpec::plain(2, 1, 8)));
    let decisions = world.settle();
    assert!(runs(&world, 2));
    assert_eq!(world.running[&JobId(1)].placement.len(), 3);
    assert!(!decisions.iter().any(|d| matches!(d, Decision::Stop { .. })));
    // A lost node is lost to it alone.
    let node = world.running[&JobId(1)].placement[0].node;
    world.tell(Event::NodeDown(node));
    world.settle();
    assert_eq!(world.running[&JobId(1)].placement.len(), 2);
}

#[test]
fn a_gang_that_lost_a_node_outranks_the_others() {
    let mut world = world("falaj", 2);
    world.tell(Event::Submitted(JobSpec { nodes: Width::exactly(2), ..JobSpec::plain(1, 1, 8) }));
    world.settle();
    world.tell(Event::Submitted(JobSpec::plain(2, 1, 8)));
    world.tell(Event::NodeDown(NodeId(0)));
    let decisions = world.pass();
    assert!(
        decisions.iter().any(|d| {
            matches!(d, Decision::Stop { why: StopReason::NodeLost, job: JobId(1), .. })
        })
    );
    world.settle();
    world.now += 1000;
    world.tell(Event::NodeUp(NodeSpec::plain(0)));
    world.settle();
    world.tell(Event::Finished(JobId(2)));
    world.tell(Event::Submitted(JobSpec::plain(3, 1, 8)));
    world.settle();
    assert!(runs(&world, 1) && !runs(&world, 3), "{:?}", world.decisions);
}

#[test]
fn spot_is_waited_for_only_as_long_as_the_deadline_allows() {
    let mut world = world("falaj", 1);
    let spec =
        JobSpec { spot: Spot::UntilDeadlineNears, deadline: Some(10 * HOUR), ..limited(1, 8, 4) };
    world.tell(Event::Submitted(spec));
    world.settle();
    assert!(!runs(&world, 1), "on demand is free, but it can still wait for spot");
    let wake = world.scheduler.next_pass().unwrap();
    assert!(wake <= 6 * HOUR);
    world.now = 6 * HOUR;
    world.settle();
    assert!(runs(&world, 1));
}

#[test]
fn a_job_leaves_spot_when_its_deadline_nears() {
    let mut world = world("falaj", 1);
    world.tell(Event::NodeUp(NodeSpec { spot: true, ..NodeSpec::plain(1) }));
    let spec =
        JobSpec { spot: Spot::UntilDeadlineNears, deadline: Some(10 * HOUR), ..limited(1, 8, 4) };
    world.tell(Event::Submitted(spec));
    world.settle();
    assert_eq!(world.running[&JobId(1)].placement[0].node, NodeId(1));
    // No checkpoint by the time it would have to start again from nothing.
    world.now = 6 * HOUR;
    let decisions = world.settle();
    assert!(
        decisions
            .iter()
            .any(|d| { matches!(d, Decision::Stop { why: StopReason::LeavesSpot, .. }) })
    );
    assert_eq!(world.running[&JobId(1)].placement[0].node, NodeId(0));
}

#[test]
fn large_jobs_do_not_starve_behind_small_ones() {
    let mut world = world("falaj", 2);
    let large = JobSpec { nodes: Width::exactly(2), ..JobSpec::plain(0, 1, 8) };
    for id in 1..=16 {
        world.tell(Event::Submitted(JobSpec::plain(id, 1, 1)));
    }
    world.settle();
    world.tell(Event::Submitted(large));
    // Small jobs come as others finish, for ever; the large one gets its turn all the same.
    for next in 17..17 + 24 * 20 {
        world.now += HOUR;
        let ended = *world.running.iter().min_by_key(|(_, run)| run.since).unwrap().0;
        world.tell(Event::Finished(ended));
        world.tell(Event::Submitted(JobSpec::plain(next, 1, 1)));
        world.settle();
        if runs(&world, 0) {
            return;
        }
    }
    panic!("never started: {:?}", world.scheduler.why(JobId(0)));
}

#[test]
fn small_jobs_move_together_for_a_large_one() {
    let mut world = world("falaj", 8);
    for id in 1..=8 {
        world.tell(Event::Submitted(JobSpec::plain(id, 1, 7)));
        world.settle();
    }
    for id in 11..=18 {
        world.tell(Event::Submitted(JobSpec::plain(id, 1, 1)));
        world.settle();
    }
    // One small job is left on each of eight nodes.
    for id in 1..=8 {
        world.tell(Event::Finished(JobId(id)));
    }
    world.settle();
    world.now += 24 * HOUR;
    world.tell(Event::Submitted(JobSpec { nodes: Width::exactly(6), ..JobSpec::plain(99, 1, 8) }));
    let decisions = world.settle();
    assert!(runs(&world, 99), "{:?}", world.scheduler.why(JobId(99)));
    let moves = decisions.iter().filter(|d| matches!(d, Decision::Move { .. })).count();
    assert_eq!(moves, 6);
    assert!(!decisions.iter().any(|d| matches!(d, Decision::Stop { .. })));
}
