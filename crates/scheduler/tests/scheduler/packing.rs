//! Where jobs are put: best fit, slices, fractions, topology, zones.

use falaj_scheduler::model::{GPU_PARTS, Level};
use falaj_scheduler::order::by_name;
use falaj_scheduler::{
    Ask, Decision, Event, GpuAsk, GpuType, JobId, JobSpec, MigProfile, NodeId, NodeSpec, QueueSpec,
    Quota, Refusal, Topology, Width, Zone, ZoneSet,
};

use crate::world::World;

fn world(nodes: impl IntoIterator<Item = NodeSpec>) -> World {
    let mut world = World::new(by_name("fifo-backfill").unwrap());
    world.tell(Event::QueueSet(QueueSpec::tenant(1, Quota::NONE)));
    for node in nodes {
        world.tell(Event::NodeUp(node));
    }
    world
}

fn put(world: &mut World, spec: JobSpec) -> Vec<NodeId> {
    let id = spec.id;
    world.tell(Event::Submitted(spec));
    world.settle();
    let placement = world.scheduler.placement(id).unwrap_or_default();
    placement.iter().map(|placed| placed.node).collect()
}

fn asking(id: u64, gpu: GpuAsk) -> JobSpec {
    let plain = JobSpec::plain(id, 1, 1);
    JobSpec { per_node: Ask { gpu, ..plain.per_node }, ..plain }
}

#[test]
fn small_jobs_fill_nodes_that_are_used_already() {
    let mut world = world((0..3).map(NodeSpec::plain));
    let first = put(&mut world, JobSpec::plain(1, 1, 4));
    assert_eq!(put(&mut world, JobSpec::plain(2, 1, 2)), first);
    assert_eq!(put(&mut world, JobSpec::plain(3, 1, 2)), first);
    // Two nodes are still whole.
    let gang = JobSpec { nodes: Width::exactly(2), ..JobSpec::plain(4, 1, 8) };
    assert_eq!(put(&mut world, gang).len(), 2);
}

#[test]
fn slices_are_cut_where_the_hardware_allows() {
    let mut world = world([NodeSpec { gpus: 1, mig: true, ..NodeSpec::plain(0) }]);
    let slice = |id, profile| asking(id, GpuAsk::Mig(profile));
    assert_eq!(put(&mut world, slice(1, MigProfile::G3)).len(), 1);
    assert_eq!(put(&mut world, slice(2, MigProfile::G3)).len(), 1);
    assert!(put(&mut world, slice(3, MigProfile::G1)).is_empty(), "3 + 3 take all the memory");
    world.tell(Event::Finished(JobId(1)));
    // Where the 3 was: 2 and 2 fit, or 4, or four 1s.
    world.settle();
    assert!(world.running.contains_key(&JobId(3)));
    assert_eq!(put(&mut world, slice(4, MigProfile::G2)).len(), 1);
    assert!(put(&mut world, slice(5, MigProfile::G4)).is_empty());
}

#[test]
fn fractions_share_a_device_and_leave_others_whole() {
    let mut world = world([NodeSpec { gpus: 2, ..NodeSpec::plain(0) }]);
    let part = |id, percent: u64| asking(id, GpuAsk::Fraction((GPU_PARTS * percent / 100) as u16));
    for (id, percent) in [(1, 50), (2, 30), (3, 20)] {
        assert_eq!(put(&mut world, part(id, percent)).len(), 1, "{percent} %");
    }
    assert_eq!(put(&mut world, JobSpec::plain(4, 1, 1)).len(), 1, "one is still whole");
    assert!(put(&mut world, part(5, 10)).is_empty());
}

#[test]
fn gangs_stay_in_a_rack_if_they_must() {
    let node = |id: u32, rack| NodeSpec { rack, ..NodeSpec::plain(id) };
    let mut world = world([node(0, 0), node(1, 1), node(2, 1), node(3, 2), node(4, 2), node(5, 2)]);
    let gang = |id, nodes, topology| JobSpec {
        nodes: Width::exactly(nodes),
        topology,
        ..JobSpec::plain(id, 1, 8)
    };
    let must = Topology::Require(Level::Rack);
    assert_eq!(put(&mut world, gang(1, 2, must)), [NodeId(1), NodeId(2)], "the rack of two");
    assert_eq!(put(&mut world, gang(2, 2, must)).len(), 2);
    assert!(put(&mut world, gang(3, 2, must)).is_empty(), "one left in each of two racks");
    assert_eq!(put(&mut world, gang(4, 2, Topology::Prefer(Level::Rack))).len(), 2);
}

#[test]
fn what_can_never_run_is_refused_with_the_reason() {
    let far = NodeSpec { zone: Zone(7), gpu_type: GpuType(1), ..NodeSpec::plain(3) };
    let mut world = world((0..3).map(NodeSpec::plain).chain([far]));
    let refusals = [
        (JobSpec::plain(1, 1, 9), Refusal::NoNodeLargeEnough),
        (
            JobSpec { nodes: Width::exactly(9), ..JobSpec::plain(2, 1, 8) },
            Refusal::TooFewNodes { needs: 9, there_are: 3 },
        ),
        (
            JobSpec { zones: ZoneSet::of(&[Zone(9)]), ..JobSpec::plain(3, 1, 1) },
            Refusal::NoNodeInZones,
        ),
        (JobSpec::plain(4, 77, 1), Refusal::UnknownQueue(falaj_scheduler::QueueId(77))),
        (
            JobSpec { nodes: Width { min: 2, max: 1 }, ..JobSpec::plain(5, 1, 1) },
            Refusal::Invalid("nodes: 1 ≤ min ≤ max"),
        ),
    ];
    for (spec, expected) in refusals {
        world.tell(Event::Submitted(spec));
        let decisions = world.pass();
        let [Decision::Refuse { why, .. }] = &decisions[..] else { panic!("{decisions:?}") };
        assert_eq!(*why, expected);
    }
}

#[test]
fn zones_are_never_left() {
    let mut world = world([
        NodeSpec { zone: Zone(1), ..NodeSpec::plain(0) },
        NodeSpec { zone: Zone(2), ..NodeSpec::plain(1) },
    ]);
    let here = |id| JobSpec { zones: ZoneSet::of(&[Zone(1)]), ..JobSpec::plain(id, 1, 8) };
    assert_eq!(put(&mut world, here(1)), [NodeId(0)]);
    assert!(put(&mut world, here(2)).is_empty(), "the other zone is idle, and stays so");
}
