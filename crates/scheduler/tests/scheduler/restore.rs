//! Beginning anew with jobs that were there before, and starts that came to nothing.

use falaj_scheduler::order::by_name;
use falaj_scheduler::{
    Decision, Event, JobId, JobSpec, NodeId, NodeSpec, Placed, QueueSpec, Quota, Restored,
    RunningAt, Scheduler, Settings,
};

const HOUR: u64 = 3_600_000;

fn scheduler(nodes: u32) -> Scheduler {
    let mut scheduler = Scheduler::new(Settings::default(), by_name("fifo").unwrap());
    scheduler.apply(0, Event::QueueSet(QueueSpec::tenant(1, Quota::NONE)));
    for id in 0..nodes {
        scheduler.apply(0, Event::NodeUp(NodeSpec::plain(id)));
    }
    scheduler
}

fn restored(spec: JobSpec, at: Option<(u32, u16)>) -> Event {
    let running = at.map(|(node, devices)| RunningAt {
        placement: vec![Placed { node: NodeId(node), devices, slice: 0 }],
        since: HOUR,
        saved: HOUR,
    });
    Event::Restored(Box::new(Restored { spec, submitted: HOUR / 2, ran: 0, running }))
}

fn started(decisions: &[Decision]) -> Vec<(u64, Vec<Placed>)> {
    let start = |decision: &Decision| match decision {
        Decision::Start { job, placement, .. } => Some((job.0, placement.clone())),
        _ => None,
    };
    decisions.iter().filter_map(start).collect()
}

#[test]
fn what_ran_holds_its_devices_and_is_not_started_again() {
    let mut scheduler = scheduler(1);
    scheduler.apply(2 * HOUR, restored(JobSpec::plain(1, 1, 4), Some((0, 0b1111_0000))));
    scheduler.apply(2 * HOUR, restored(JobSpec::plain(2, 1, 4), None));
    scheduler.apply(2 * HOUR, restored(JobSpec::plain(3, 1, 4), None));
    let started = started(&scheduler.decide(2 * HOUR));
    assert_eq!(started.len(), 1, "{started:?}");
    assert_eq!((started[0].0, started[0].1[0].devices), (2, 0b1111));
    assert_eq!(scheduler.running(), 2);
    scheduler.apply(3 * HOUR, Event::Finished(JobId(1)));
    assert_eq!(self::started(&scheduler.decide(3 * HOUR))[0].0, 3);
}

#[test]
fn what_ran_where_there_is_no_room_any_more_waits_once_it_has_left() {
    let mut scheduler = scheduler(1);
    scheduler.apply(2 * HOUR, restored(JobSpec::plain(1, 1, 8), Some((0, 0xff))));
    scheduler.apply(2 * HOUR, restored(JobSpec::plain(2, 1, 8), Some((0, 0xff))));
    scheduler.apply(2 * HOUR, restored(JobSpec::plain(3, 1, 8), Some((7, 0xff))));
    assert_eq!((scheduler.running(), scheduler.not_running()), (1, 2));
    scheduler.apply(3 * HOUR, Event::Finished(JobId(1)));
    assert!(started(&scheduler.decide(3 * HOUR)).is_empty(), "both have not left yet");
    scheduler.apply(3 * HOUR, Event::Stopped(JobId(2)));
    assert_eq!(started(&scheduler.decide(3 * HOUR))[0].0, 2);
    scheduler.apply(4 * HOUR, Event::Finished(JobId(2)));
    scheduler.apply(4 * HOUR, Event::Stopped(JobId(3)));
    assert_eq!(started(&scheduler.decide(4 * HOUR))[0].0, 3);
}

#[test]
fn a_start_that_came_to_nothing_waits_again_or_goes_first() {
    for (first, expected) in [(false, 2), (true, 1)] {
        let mut scheduler = scheduler(1);
        scheduler.apply(1, Event::Submitted(JobSpec::plain(1, 1, 8)));
        assert_eq!(started(&scheduler.decide(1))[0].0, 1);
        scheduler.apply(2, Event::Submitted(JobSpec { priority: 1, ..JobSpec::plain(2, 1, 8) }));
        scheduler.apply(3, Event::Again { job: JobId(1), first });
        assert_eq!(started(&scheduler.decide(3))[0].0, expected, "first: {first}");
        scheduler.apply(4, Event::Finished(JobId(expected)));
        assert_eq!(started(&scheduler.decide(4))[0].0, 3 - expected);
    }
}

#[test]
fn a_deadline_that_passed_while_nobody_looked_forgets_nobody() {
    let mut scheduler = scheduler(1);
    let late = JobSpec { deadline: Some(HOUR), ..JobSpec::plain(1, 1, 1) };
    scheduler.apply(2 * HOUR, restored(late, None));
    assert_eq!(started(&scheduler.decide(2 * HOUR))[0].0, 1);
}

#[test]
fn checking_takes_nothing_in() {
    let mut scheduler = scheduler(1);
    assert!(scheduler.check(&JobSpec::plain(1, 1, 8)).is_ok());
    assert!(scheduler.check(&JobSpec::plain(1, 1, 9)).is_err());
    assert!(!scheduler.knows(JobId(1)) && scheduler.decide(1).is_empty());
}

#[test]
fn what_runs_and_would_not_be_taken_in_any_more_keeps_its_nodes_until_it_has_left() {
    let mut scheduler = scheduler(1);
    // Twelve GPUs: more than any node has by now.
    let large = JobSpec::plain(1, 1, 12);
    assert!(scheduler.check_restored(&large).is_err());
    scheduler.apply(2 * HOUR, restored(large.clone(), Some((0, 0xff))));
    scheduler.apply(2 * HOUR, restored(JobSpec::plain(2, 1, 8), None));
    let decided = scheduler.decide(2 * HOUR);
    assert!(!decided.iter().any(|it| matches!(it, Decision::Refuse { .. })), "{decided:?}");
    let waits_for = |decision: &Decision| match decision {
        Decision::Start { job, after, .. } => Some((job.0, after.clone())),
        _ => None,
    };
    let starts: Vec<_> = decided.iter().filter_map(waits_for).collect();
    assert!(
        starts.iter().all(|(job, after)| *job == 2 && after.contains(&JobId(1))),
        "nobody is on its node before it has left: {starts:?}"
    );
    assert!(scheduler.knows(JobId(1)));
    // One that waits is refused as it always was.
    scheduler.apply(3 * HOUR, Event::Cancelled(JobId(1)));
    scheduler.apply(3 * HOUR, restored(large, None));
    let decided = scheduler.decide(3 * HOUR);
    assert!(decided.iter().any(|it| matches!(it, Decision::Refuse { .. })), "{decided:?}");
}
