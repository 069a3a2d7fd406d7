//! The simulator, on a small trace made here.

use std::fmt::Write as _;

use falaj_scheduler::order::{NAMES, by_name};
use falaj_scheduler::simulate::{Setup, Trace, run, svg};

use crate::world::Dice;

/// Two weeks of three tenants: one with many short jobs, one with batches of alike jobs, one with
/// few long and wide ones.
fn trace() -> Trace {
    seeded(7)
}

fn seeded(seed: u64) -> Trace {
    let mut dice = Dice(seed);
    let mut text = "submit_s,duration_s,gpus,vc\n".to_owned();
    for day in 0..14 {
        for _ in 0..60 {
            let at = day * 86_400 + dice.below(86_400);
            let duration = 60 + dice.below(3600);
            let _ = writeln!(text, "{at},{duration},1,short");
        }
        for _ in 0..2 {
            let at = day * 86_400 + dice.below(80_000);
            let (duration, gpus) = (1800 + dice.below(40_000), [1, 2, 4][dice.below(3) as usize]);
            for _ in 0..10 {
                let near = duration + dice.below(600);
                let _ = writeln!(text, "{},{near},{gpus},batches", at + dice.below(1800));
            }
        }
        for _ in 0..2 {
            let at = day * 86_400 + dice.below(86_400);
            let duration = 20_000 + dice.below(200_000);
            let _ = writeln!(text, "{at},{duration},{},long", [8, 16][dice.below(2) as usize]);
        }
    }
    Trace::parse(&text).unwrap()
}

#[test]
fn every_job_ends_under_every_policy() {
    let trace = trace();
    let setup = Setup { nodes: 5, ..Setup::default() };
    for name in NAMES {
        let mut told = 0;
        let outcome = run(&trace, &setup, by_name(name).unwrap(), &mut |done, _| told = done);
        assert_eq!(outcome.jobs, trace.jobs.len(), "{name}");
        assert_eq!(told, trace.jobs.len());
        assert!(outcome.average_jct >= outcome.average_queueing && outcome.average_queueing >= 0.0);
        assert!(outcome.median_jct <= outcome.p99_jct);
        assert!(outcome.utilisation <= 100.0);
        // What was done is what was asked for, and what was lost by stopping.
        let asked: f64 =
            trace.jobs.iter().map(|job| job.duration as f64 * f64::from(job.gpus)).sum();
        assert!(outcome.gpu_hours >= asked / 3_600_000.0 - 1e-6, "{name}");
        if name.starts_with("fifo") {
            assert_eq!(outcome.preemptions, 0);
        }
    }
}

#[test]
fn the_default_beats_what_it_should() {
    let setup = Setup { nodes: 5, ..Setup::default() };
    let traces: Vec<Trace> = (1..=10).map(seeded).collect();
    // One trace decides little: its p99 is a handful of jobs.
    let mean = |name: &str| {
        let mut sums = [0.0; 4];
        for trace in &traces {
            let it = run(trace, &setup, by_name(name).unwrap(), &mut |_, _| {});
            let of = [it.average_jct, it.p99_jct, it.preemptions as f64, it.unfair];
            sums.iter_mut().zip(of).for_each(|(sum, value)| *sum += value / traces.len() as f64);
        }
        sums
    };
    let [fifo, ..] = mean("fifo");
    let [backfill, ..] = mean("fifo-backfill");
    let [las, ..] = mean("las");
    let [_, p99, preemptions, _] = mean("tiresias");
    let ours = mean("falaj");
    assert!(ours[0] < backfill && backfill < fifo && ours[0] < las, "{ours:?} {backfill} {las}");
    assert!(ours[1] < p99 && 5.0 * ours[2] < preemptions && ours[3] <= 2.0, "{ours:?} {p99}");
}

#[test]
fn a_job_alone_takes_its_time() {
    let trace = Trace::parse("vc,gpus,submit_s,duration_s\na,1,10,3600\n").unwrap();
    let outcome = run(&trace, &Setup::default(), by_name("falaj").unwrap(), &mut |_, _| {});
    assert!((outcome.average_jct - 1.0).abs() < 1e-9);
    assert!(outcome.unfair == 0.0 && outcome.preemptions == 0 && outcome.refused == 0);
    assert!((outcome.cost - 2.0).abs() < 1e-9);
    let large = Trace::parse("submit_s,duration_s,gpus,vc\n0,5,4096,a\n").unwrap();
    let outcome = run(&large, &Setup::default(), by_name("falaj").unwrap(), &mut |_, _| {});
    assert_eq!((outcome.jobs, outcome.refused), (0, 1));
}

#[test]
fn a_wrong_trace_is_told_where() {
    let header = "submit_s,duration_s,gpus,vc\n";
    for (text, line, says) in [
        (String::new(), 1, "no column `submit_s`"),
        ("submit_s,duration_s,vc\n".to_owned(), 1, "no column `gpus`"),
        (format!("{header}1,2,3\n"), 2, "3 fields where the header has 4"),
        (format!("{header}1,2,1,a\n\n1,x,1,a\n"), 4, "duration_s: `x`"),
        (format!("{header}-1,2,1,a\n"), 2, "submit_s: `-1`"),
        (format!("{header}1,2,1.5,a\n"), 2, "gpus: `1.5`"),
        (format!("{header}1,NaN,1,a\n"), 2, "duration_s: `NaN`"),
    ] {
        let error = Trace::parse(&text).unwrap_err();
        assert_eq!(error.line, line, "{error}");
        assert!(error.what.contains(says), "{error}");
    }
}

#[test]
fn a_picture_has_a_curve_for_each() {
    let trace = trace();
    let setup = Setup { nodes: 5, ..Setup::default() };
    let outcomes =
        ["fifo", "falaj"].map(|n| run(&trace, &setup, by_name(n).unwrap(), &mut |_, _| {}));
    let picture = svg(&outcomes);
    assert_eq!(picture.matches("<polyline").count(), 2);
    assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
}

#[test]
fn tenants_that_have_had_less_go_first_where_all_share() {
    // One has had everything for a day, and has a hundred long jobs in line; then another comes.
    let mut text = "submit_s,duration_s,gpus,vc\n".to_owned();
    for _ in 0..100 {
        text.push_str("0,86400,8,much\n");
    }
    for _ in 0..20 {
        text.push_str("90000,600,8,little\n");
    }
    let trace = Trace::parse(&text).unwrap();
    let of = |half_life| {
        let setup = Setup { nodes: 5, half_life, ..Setup::default() };
        run(&trace, &setup, by_name("fifo-backfill").unwrap(), &mut |_, _| {})
    };
    let (first_come, shared) = (of(0), of(7 * 86_400_000));
    assert_eq!((first_come.jobs, shared.jobs), (120, 120));
    assert!(
        shared.median_jct < first_come.median_jct
            && shared.average_jct < first_come.average_jct - 10.0,
        "{} {}",
        shared.average_jct,
        first_come.average_jct
    );
}

#[test]
fn on_a_small_cluster_everybody_runs_and_nothing_stays_idle() {
    // A job that needs everything, and is displaced once; then two that need a half each, for long.
    for (nodes, gpus) in [(1, 2), (1, 8), (2, 8)] {
        let (all, half) = (nodes * gpus, nodes * gpus / 2);
        let text = format!(
            "submit_s,duration_s,gpus,vc\n0,7200,{all},a\n10,60,1,b\n900000,900000,{half},c\n\
             900000,900000,{half},d\n"
        );
        let trace = Trace::parse(&text).unwrap();
        let setup = Setup { nodes, gpus_per_node: gpus as u8, ..Setup::default() };
        for name in NAMES {
            let outcome = run(&trace, &setup, by_name(name).unwrap(), &mut |_, _| {});
            assert_eq!(outcome.jobs, 4, "{name} on {nodes} x {gpus}");
            // Both at the same time: they end when each would alone.
            let hours = (900_000.0 + 900_000.0 + 3600.0) / 3600.0;
            assert!(outcome.makespan < hours, "{name} on {nodes} x {gpus}: {}", outcome.makespan);
        }
    }
}
