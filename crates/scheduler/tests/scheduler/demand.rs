//! What whoever brings nodes is told.

use falaj_scheduler::cluster::Status;
use falaj_scheduler::model::{Dimension, GPU_PARTS};
use falaj_scheduler::order::by_name;
use falaj_scheduler::{Amounts, Event, JobId, JobSpec, NodeId, NodeSpec, QueueSpec, Quota, Width};

use crate::world::World;

fn world(quota: Quota) -> World {
    let mut world = World::new(by_name("fifo-backfill").unwrap());
    world.tell(Event::QueueSet(QueueSpec::tenant(1, quota)));
    world.tell(Event::NodeUp(NodeSpec::plain(0)));
    world
}

#[test]
fn only_what_nodes_would_help_is_asked_for() {
    let twelve = Quota::nominal(Amounts::UNLIMITED.with(Dimension::Gpu, 12 * GPU_PARTS));
    let mut world = world(Quota { borrowing: Amounts::ZERO, ..twelve });
    for id in 1..=5 {
        world.tell(Event::Submitted(JobSpec::plain(id, 1, 8)));
    }
    world.now += 1000;
    world.pass();
    // Eight of twelve are in use, so none of the others fits its quota.
    assert_eq!(world.scheduler.demand(10), []);
    world.tell(Event::QuotaChanged(falaj_scheduler::QueueId(1), Quota::NONE));
    world.pass();
    let demand = world.scheduler.demand(10);
    assert_eq!(demand.len(), 1);
    assert_eq!((demand[0].jobs, demand[0].nodes, demand[0].since), (4, Width::exactly(1), 0));
    let stands = world.scheduler.stands(NodeId(0)).unwrap();
    assert_eq!((stands.status, stands.jobs, stands.gpus), (Status::Up, 1, 0));
}

#[test]
fn a_job_that_waits_for_nodes_that_are_down_is_asked_for_whole() {
    let mut world = world(Quota::NONE);
    for id in 1..4 {
        world.tell(Event::NodeUp(NodeSpec::plain(id)));
        world.tell(Event::NodeDown(NodeId(id)));
    }
    let gang = JobSpec { nodes: Width::exactly(4), ..JobSpec::plain(1, 1, 8) };
    world.tell(Event::Submitted(gang));
    world.pass();
    assert_eq!(world.refused, 0, "nodes that are down may come");
    assert_eq!(world.scheduler.demand(10)[0].nodes.min, 4);
    for id in 1..4 {
        world.tell(Event::NodeUp(NodeSpec::plain(id)));
    }
    world.pass();
    assert!(world.running.contains_key(&JobId(1)));
    assert_eq!(world.scheduler.demand(10), []);
    // One that is drained is left alone, and one that is drained and empty has nobody.
    world.tell(Event::NodeDrained(NodeId(2)));
    assert_eq!(world.scheduler.stands(NodeId(2)).unwrap().jobs, 1);
    world.tell(Event::Finished(JobId(1)));
    let stands = world.scheduler.stands(NodeId(2)).unwrap();
    assert_eq!((stands.status, stands.jobs), (Status::Drained, 0));
    world.tell(Event::Submitted(JobSpec { nodes: Width::exactly(4), ..JobSpec::plain(2, 1, 8) }));
    world.pass();
    assert!(!world.running.contains_key(&JobId(2)), "a drained node takes nothing new");
    assert_eq!(world.scheduler.stands(NodeId(9)), None);
}
