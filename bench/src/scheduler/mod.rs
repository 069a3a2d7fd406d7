//! The scheduler's core in memory: placing, passing over a full cluster, a million waiting, reasons.
//! Quotas, gangs and reasons are on everywhere.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "numbers of jobs and nodes are small"
)]

use std::time::Instant;

use anyhow::{Result, ensure};
use falaj_scheduler::model::{Dimension, GPU_PARTS};
use falaj_scheduler::order::by_name;
use falaj_scheduler::{
    Amounts, Decision, Event, GpuAsk, JobId, JobSpec, NodeSpec, QueueSpec, Quota, Scheduler,
    Settings, Width,
};

use crate::decision::thread_micros;
use crate::report::{Goal, Report, median, p99};

const TENANTS: u32 = 20;
const TEAMS: u32 = 3;
const MB: f64 = 1e6;

pub(crate) fn measure(report: &mut Report) -> Result<()> {
    println!("scheduler");
    for (nodes, goal) in [(1_000, 100_000.0), (10_000, 30_000.0)] {
        let rate = placing(nodes)?;
        let what = format!("jobs placed per second, {nodes} nodes");
        report.goal(&what, rate, "1/s", Goal::AtLeast(goal));
    }
    full_pass(report)?;
    million(report)
}

/// A tree of tenants and teams that owns the cluster and lends everything.
fn cluster(nodes: u32) -> Result<Scheduler> {
    let order = by_name("falaj").ok_or_else(|| anyhow::anyhow!("no such policy"))?;
    let mut scheduler = Scheduler::new(Settings::default(), order);
    let share = u64::from(nodes) * 8 * GPU_PARTS / u64::from(TENANTS * TEAMS);
    for tenant in 0..TENANTS {
        let none = Quota::nominal(Amounts::UNLIMITED.with(Dimension::Gpu, 0));
        scheduler.apply(0, Event::QueueSet(QueueSpec::tenant(tenant, none)));
        for team in 0..TEAMS {
            let own = Quota::nominal(Amounts::UNLIMITED.with(Dimension::Gpu, share));
            let id = TENANTS + tenant * TEAMS + team;
            scheduler.apply(0, Event::QueueSet(QueueSpec::under(tenant, id, own)));
        }
    }
    for id in 0..nodes {
        scheduler.apply(0, Event::NodeUp(NodeSpec::plain(id)));
    }
    Ok(scheduler)
}

/// Mostly single GPUs, some larger, one in fifty a gang of two to four nodes.
fn job(id: u64) -> JobSpec {
    let mix = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let queue = TENANTS + (mix % u64::from(TENANTS * TEAMS)) as u32;
    let gpus = [1, 1, 1, 1, 1, 1, 2, 2, 4, 8][(mix / 64 % 10) as usize];
    let mut spec = JobSpec::plain(id, queue, gpus);
    spec.per_node.cpu = 1000 * u32::from(gpus);
    spec.per_node.memory = 8192 * u32::from(gpus);
    if (mix / 1024).is_multiple_of(50) {
        spec.nodes = Width::exactly(2 + (mix % 3) as u16);
    }
    spec
}

/// Jobs come until the cluster is nearly full, are placed in one pass, and end; over and over. The
/// time is that of all three.
fn placing(nodes: u32) -> Result<f64> {
    let mut scheduler = cluster(nodes)?;
    let (mut next, mut now, mut placed) = (0, 0, 0_u64);
    let begun = Instant::now();
    while begun.elapsed().as_secs_f64() < 3.0 {
        now += 1_000_000;
        let mut gpus = 0;
        while gpus < nodes * 7 {
            let spec = job(next);
            let width = u32::from(spec.nodes.min);
            gpus += width * (spec.per_node.gpu.parts() / GPU_PARTS) as u32;
            scheduler.apply(now, Event::Submitted(spec));
            next += 1;
        }
        let starts: Vec<JobId> = scheduler
            .decide(now)
            .iter()
            .filter_map(|decision| match decision {
                Decision::Start { job, .. } => Some(*job),
                _ => None,
            })
            .collect();
        placed += starts.len() as u64;
        for job in starts {
            scheduler.apply(now, Event::Finished(job));
        }
    }
    ensure!(next - placed < 2 * u64::from(nodes), "{} jobs were not placed", next - placed);
    Ok(placed as f64 / begun.elapsed().as_secs_f64())
}

/// 140,000 jobs on 4,000 nodes, more waiting, and a round in which everybody may be displaced.
fn full_pass(report: &mut Report) -> Result<()> {
    let mut scheduler = cluster(4_000)?;
    let mut now = 0;
    for id in 0..153_000 {
        // 35 to a node: fractions and jobs without a GPU.
        let mut spec = JobSpec::plain(id, TENANTS + (id % 60) as u32, 1);
        spec.per_node.gpu = if id % 12 == 0 { GpuAsk::None } else { GpuAsk::Fraction(160) };
        spec.per_node.cpu = 100;
        scheduler.apply(now, Event::Submitted(spec));
    }
    scheduler.decide(now);
    ensure!(scheduler.running() >= 140_000, "only {} run", scheduler.running());
    for id in 1_000_000..1_020_000 {
        scheduler.apply(now, Event::Submitted(job(id)));
    }
    let (mut passes, mut walls, mut decided) = (Vec::new(), Vec::new(), 0);
    for round in 0..60_u64 {
        now += 300_000;
        for id in 0..50 {
            scheduler.apply(now, Event::Finished(JobId(round * 50 + id)));
        }
        let (begun, cpu) = (Instant::now(), thread_micros());
        let decisions = scheduler.decide(now);
        passes.push((thread_micros() - cpu) / 1e3);
        walls.push(begun.elapsed().as_secs_f64() * 1e3);
        decided += decisions.len();
        for decision in decisions {
            match decision {
                Decision::Stop { job, .. } => scheduler.apply(now, Event::Stopped(job)),
                Decision::Move { job, .. } => scheduler.apply(now, Event::Resized(job)),
                _ => {}
            }
        }
    }
    report.note("jobs running on 4,000 nodes", scheduler.running() as f64, "");
    report.note("decisions of 60 full passes", decided as f64, "");
    report.note("a full pass by the wall clock, median", median(&mut walls), "ms");
    report.note("a full pass by the wall clock, p99", p99(&mut walls), "ms");
    report.note("a full pass, CPU, median", median(&mut passes), "ms");
    report.goal("a full pass, CPU, p99", p99(&mut passes), "ms", Goal::AtMost(50.0));
    Ok(())
}

/// A million jobs wait for a small cluster.
fn million(report: &mut Report) -> Result<()> {
    let mut scheduler = cluster(100)?;
    let before = resident()?;
    let begun = Instant::now();
    for id in 0..1_000_000 {
        scheduler.apply(0, Event::Submitted(job(id)));
    }
    let rate = 1e6 / begun.elapsed().as_secs_f64();
    scheduler.decide(0);
    report.note("jobs submitted per second", rate, "1/s");
    let memory = (resident()? - before) / MB;
    report.goal("memory of a million waiting jobs", memory, "MB", Goal::AtMost(1000.0));
    let mut times = Vec::new();
    for sample in 0..2_000_u64 {
        let id = JobId(sample.wrapping_mul(7919) % 1_000_000);
        let begun = Instant::now();
        let why = scheduler.why(id);
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        ensure!(why.is_some(), "{id:?} is not known");
    }
    report.goal(
        "why a job waits, a million waiting, p99",
        p99(&mut times),
        "ms",
        Goal::AtMost(5.0),
    );
    let mut passes = Vec::new();
    for second in 1..=50 {
        let begun = Instant::now();
        scheduler.decide(second * 300_000);
        passes.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    report.note("a pass over a million waiting jobs, p99", p99(&mut passes), "ms");
    Ok(())
}

/// Resident memory of this process, in bytes.
fn resident() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: f64 = text.split(' ').nth(1).unwrap_or("0").parse()?;
    Ok(pages * 4096.0)
}
