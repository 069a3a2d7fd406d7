//! Borrowing, lending, reclaiming, and quotas that change.

use falaj_scheduler::model::{Dimension, GPU_PARTS};
use falaj_scheduler::order::by_name;
use falaj_scheduler::{
    Amounts, Decision, Event, JobId, JobSpec, NodeSpec, QueueId, QueueSpec, Quota, StopReason,
};

use crate::world::World;

const HOUR: u64 = 3_600_000;

fn gpus(count: u64) -> Amounts {
    Amounts::UNLIMITED.with(Dimension::Gpu, count * GPU_PARTS)
}

fn nominal(count: u64) -> Quota {
    Quota::nominal(gpus(count))
}

/// One node of 8 GPUs, shared by queue 1 and queue 2.
fn shared(one: Quota, two: Quota) -> World {
    let mut world = World::new(by_name("falaj").unwrap());
    world.tell(Event::QueueSet(QueueSpec::tenant(1, one)));
    world.tell(Event::QueueSet(QueueSpec::tenant(2, two)));
    world.tell(Event::NodeUp(NodeSpec::plain(0)));
    world
}

fn submit(world: &mut World, from: u64, count: u64, queue: u32) {
    for id in from..from + count {
        world.tell(Event::Submitted(JobSpec::plain(id, queue, 1)));
    }
}

#[test]
fn what_others_leave_is_borrowed_up_to_the_limits() {
    for (borrowing, lending, expected) in
        [(8, 8, 8), (2, 8, 6), (8, 3, 7), (0, 8, 4), (8, 0, 4), (2, 1, 5)]
    {
        let one = Quota { borrowing: gpus(borrowing), ..nominal(4) };
        let two = Quota { lending: gpus(lending), ..nominal(4) };
        let mut world = shared(one, two);
        submit(&mut world, 0, 8, 1);
        world.settle();
        assert_eq!(world.gpus(1), expected, "borrowing {borrowing}, lending {lending}");
    }
}

#[test]
fn owners_take_back_what_was_borrowed_at_once() {
    let mut world = shared(nominal(4), nominal(4));
    submit(&mut world, 0, 8, 1);
    world.settle();
    assert_eq!(world.gpus(1), 8);
    world.now += HOUR;
    // The job with the freshest checkpoint loses least.
    world.tell(Event::Checkpointed { job: JobId(5), of: HOUR });
    submit(&mut world, 100, 1, 2);
    let decisions = world.pass();
    let [Decision::Stop { job, why, for_job, lost_gpu_ms }, Decision::Start { after, .. }] =
        &decisions[..]
    else {
        panic!("{decisions:?}")
    };
    assert_eq!((*job, *why, *lost_gpu_ms), (JobId(5), StopReason::Reclaimed, 0));
    assert_eq!(*for_job, Some(JobId(100)));
    assert_eq!(after, &[JobId(5)]);
    submit(&mut world, 101, 7, 2);
    world.settle();
    assert_eq!((world.gpus(1), world.gpus(2)), (4, 4), "no more than its own");
    // And it stays so: the borrowers do not take it back.
    world.now += HOUR;
    assert!(world.settle().iter().all(|d| !matches!(d, Decision::Stop { .. })));
}

#[test]
fn a_minimum_run_is_respected_by_owners_too() {
    let mut world = shared(nominal(4), nominal(4));
    for id in 0..8 {
        let spec = JobSpec { minimum_run: HOUR, ..JobSpec::plain(id, 1, 1) };
        world.tell(Event::Submitted(spec));
    }
    world.settle();
    world.now += HOUR / 2;
    submit(&mut world, 100, 1, 2);
    assert!(world.settle().is_empty());
    world.now += HOUR / 2;
    assert!(!world.settle().is_empty());
    assert_eq!(world.gpus(2), 1);
}

#[test]
fn a_cut_quota_is_mended() {
    let mut world = shared(nominal(8), nominal(0));
    submit(&mut world, 0, 8, 1);
    world.settle();
    world.tell(Event::QuotaChanged(QueueId(1), nominal(3)));
    let decisions = world.settle();
    assert_eq!(world.gpus(1), 3);
    let cut = |d: &&Decision| matches!(d, Decision::Stop { why: StopReason::QuotaCut, .. });
    assert_eq!(decisions.iter().filter(cut).count(), 5);
}

#[test]
fn teams_share_inside_their_tenant_first() {
    let mut world = World::new(by_name("falaj").unwrap());
    let nothing = Quota { borrowing: gpus(0), ..nominal(0) };
    for spec in [
        QueueSpec::tenant(1, nothing),
        QueueSpec::under(1, 11, nominal(2)),
        QueueSpec::under(1, 12, nominal(2)),
        QueueSpec::tenant(2, nominal(4)),
    ] {
        world.tell(Event::QueueSet(spec));
    }
    world.tell(Event::NodeUp(NodeSpec::plain(0)));
    submit(&mut world, 0, 8, 11);
    world.settle();
    // The tenant may borrow nothing, so its four are all there is, whichever team uses them.
    assert_eq!(world.gpus(11), 4);
    world.now += HOUR;
    submit(&mut world, 100, 8, 12);
    world.settle();
    assert_eq!((world.gpus(11), world.gpus(12)), (2, 2));
}

#[test]
fn within_a_queue_the_urgent_come_first() {
    let mut world = shared(nominal(8), nominal(0));
    submit(&mut world, 0, 8, 1);
    world.settle();
    world.now += 1000;
    world.tell(Event::Submitted(JobSpec { priority: 9, ..JobSpec::plain(50, 1, 2) }));
    let decisions = world.settle();
    let stops = decisions
        .iter()
        .filter(|d| matches!(d, Decision::Stop { why: StopReason::Priority, .. }))
        .count();
    assert_eq!(stops, 2);
    assert!(world.running.contains_key(&JobId(50)));
}
