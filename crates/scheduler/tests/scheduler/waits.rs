//! Why a job waits.

use falaj_scheduler::model::{Dimension, GPU_PARTS};
use falaj_scheduler::order::by_name;
use falaj_scheduler::why::{Change, Rule, Waits, Why};
use falaj_scheduler::{
    Amounts, Event, JobId, JobSpec, NodeId, NodeSpec, QueueId, QueueSpec, Quota, Width, Zone,
    ZoneSet,
};

use crate::world::World;

const HOUR: u64 = 3_600_000;

fn world(policy: &str, nodes: u32, quota: Quota) -> World {
    let mut world = World::new(by_name(policy).unwrap());
    world.tell(Event::QueueSet(QueueSpec::tenant(1, quota)));
    for id in 0..nodes {
        world.tell(Event::NodeUp(NodeSpec::plain(id)));
    }
    world
}

fn submit(world: &mut World, spec: JobSpec) {
    world.tell(Event::Submitted(spec));
    world.settle();
}

fn waits(world: &World, id: u64) -> Waits {
    match world.scheduler.why(JobId(id)) {
        Some(Why::Waiting(waits)) => waits,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_node_is_named_with_who_is_there_and_until_when() {
    let mut world = world("fifo-backfill", 1, Quota::NONE);
    submit(&mut world, JobSpec { time_limit: Some(2 * HOUR), ..JobSpec::plain(1, 1, 5) });
    submit(&mut world, JobSpec::plain(2, 1, 6));
    let waits = waits(&world, 2);
    assert_eq!(waits.rule, Rule::NoRoom { nodes: 0, needs: 1, holders: vec![JobId(1)] });
    assert!(waits.changes.contains(&Change::FewerGpus { per_node: 3 }));
    let end = Change::JobsEnd { jobs: vec![JobId(1)], node: NodeId(0), by: 2 * HOUR, known: true };
    assert!(waits.changes.contains(&end), "{:?}", waits.changes);
    assert_eq!(waits.start.unwrap().likely, 2 * HOUR);
    assert_eq!((waits.ahead, waits.considered), (0, 0));
    // It is true: with what it names it starts.
    world.now = HOUR;
    world.tell(Event::Finished(JobId(1)));
    world.settle();
    assert!(matches!(world.scheduler.why(JobId(2)), Some(Why::Running { since: HOUR, nodes: 1 })));
}

#[test]
fn a_quota_is_named_with_who_holds_it() {
    let four = Amounts::UNLIMITED.with(Dimension::Gpu, 4 * GPU_PARTS);
    let quota = Quota { borrowing: Amounts::ZERO, ..Quota::nominal(four) };
    let mut world = world("falaj", 1, quota);
    submit(&mut world, JobSpec::plain(1, 1, 3));
    submit(&mut world, JobSpec::plain(2, 1, 2));
    let waits = waits(&world, 2);
    let Rule::Quota { queue, dimension, needs, room, holders } = &waits.rule else {
        panic!("{waits:?}")
    };
    assert_eq!((*queue, *dimension), (Some(QueueId(1)), Dimension::Gpu));
    assert_eq!((*needs, *room), (2 * GPU_PARTS, GPU_PARTS));
    assert_eq!((holders[0].queue, holders[0].holds), (QueueId(1), 3 * GPU_PARTS));
    let more = Change::MoreQuota { queue: QueueId(1), dimension: Dimension::Gpu, by: GPU_PARTS };
    assert!(waits.changes.contains(&more));
    assert!(waits.changes.contains(&Change::FewerGpus { per_node: 1 }));
}

#[test]
fn other_zones_and_fewer_nodes_are_offered_where_they_would_help() {
    let mut world = world("falaj", 3, Quota::NONE);
    world.tell(Event::NodeUp(NodeSpec { zone: Zone(1), ..NodeSpec::plain(3) }));
    let here = ZoneSet::of(&[Zone(0)]);
    submit(&mut world, JobSpec { zones: here, ..JobSpec::plain(1, 1, 8) });
    let gang = JobSpec { zones: here, nodes: Width::exactly(3), ..JobSpec::plain(2, 1, 8) };
    submit(&mut world, gang);
    let waits = waits(&world, 2);
    assert_eq!(waits.rule, Rule::NoRoom { nodes: 2, needs: 3, holders: vec![JobId(1)] });
    assert!(waits.changes.contains(&Change::FewerNodes { nodes: 2 }));
    assert!(waits.changes.contains(&Change::MoreZones));
}

#[test]
fn the_place_in_line_is_counted() {
    let mut world = world("fifo", 1, Quota::NONE);
    for id in 1..=40 {
        // Several classes, one line.
        submit(&mut world, JobSpec::plain(id, 1, [8, 4, 2][id as usize % 3]));
    }
    let running = world.running.len() as u64;
    for (place, id) in (running + 1..=40).enumerate() {
        assert_eq!(waits(&world, id).ahead, place, "job {id}");
    }
    assert!(matches!(waits(&world, 40).rule, Rule::Behind { job } if job.0 == running + 1));
    world.tell(Event::Submitted(JobSpec { priority: 1, ..JobSpec::plain(99, 1, 8) }));
    assert_eq!(waits(&world, 99).ahead, 0);
}

#[test]
fn no_node_at_all_is_told() {
    let mut world = world("falaj", 1, Quota::NONE);
    world.tell(Event::NodeDrained(NodeId(0)));
    submit(&mut world, JobSpec::plain(1, 1, 1));
    assert_eq!(waits(&world, 1).rule, Rule::NoNode);
}
