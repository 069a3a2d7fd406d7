//! Jobs that wait: how fast they are taken in, and how fast one learns why.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::Options;
use super::site::{Site, ask};
use crate::commit::per_second;
use crate::report::{Goal, Report, median, p99};
use crate::wire::{Wire, load};

/// Cores of the pool, which one job has.
const CORES: usize = 4;
const WARM_UP: Duration = Duration::from_secs(1);
/// Arrays that are submitted one after the other.
const ARRAYS: usize = 5;
/// Questions for a reason.
const QUESTIONS: usize = 2000;
/// How long the scheduler may take to look at what was submitted.
const LOOKED_AT_WITHIN: Duration = Duration::from_mins(2);

pub(super) async fn measure(
    report: &mut Report,
    options: &Options,
    engine: &str,
    database: Option<String>,
) -> Result<()> {
    let site = Site::open(CORES, database).await?;
    let mut wire = site.connect().await?;
    site.occupy(&mut wire, CORES).await?;
    submissions(report, options, engine, &site, &mut wire).await?;
    arrays(report, options, engine, &site, &mut wire).await?;
    reasons(report, engine, &site, &mut wire).await
}

/// Single jobs, each an answer of its own.
async fn submissions(
    report: &mut Report,
    options: &Options,
    engine: &str,
    site: &Site,
    wire: &mut Wire,
) -> Result<()> {
    let one = site.submission(&["true"], 1.0, 1);
    load(site.address(), &one, 200, options.submitters, WARM_UP)?;
    let (before, began) = (site.cpu_seconds()?, Instant::now());
    let count = load(site.address(), &one, 200, options.submitters, options.time())?;
    let (took, used) = (began.elapsed(), site.cpu_seconds()? - before);
    let rate = per_second(count, took);
    let what = format!("training, {engine}: durable submissions");
    report.goal(&what, rate, "/s", Goal::AtLeast(5000.0));
    let cost = used * 1e6 / (rate * took.as_secs_f64());
    report.note("  server CPU for each", cost, "µs");
    let began = Instant::now();
    let last = site.submit(wire, &one).await?;
    considered(site, wire, &last).await?;
    report.note("  until the scheduler has looked at the last", millis(began), "ms");
    Ok(())
}

/// Many tasks in one submission.
async fn arrays(
    report: &mut Report,
    options: &Options,
    engine: &str,
    site: &Site,
    wire: &mut Wire,
) -> Result<()> {
    let array = site.submission(&["true"], 1.0, options.array_tasks);
    let (mut taken, mut seen) = (Vec::new(), Vec::new());
    for _ in 0..ARRAYS {
        let began = Instant::now();
        let id = site.submit(wire, &array).await?;
        taken.push(millis(began));
        considered(site, wire, &id).await?;
        seen.push(millis(began));
    }
    #[allow(clippy::cast_precision_loss, reason = "a count")]
    let tasks = options.array_tasks as f64;
    let what = format!("training, {engine}: tasks of arrays, durable");
    report.goal(&what, tasks * 1e3 / median(&mut taken), "/s", Goal::AtLeast(50_000.0));
    report.note("  until the scheduler has looked at them", tasks * 1e3 / median(&mut seen), "/s");
    report.note("  memory of the server with all of them", site.resident_megabytes()?, "MB");
    Ok(())
}

/// Why a job waits, among all that were submitted so far.
async fn reasons(report: &mut Report, engine: &str, site: &Site, wire: &mut Wire) -> Result<()> {
    let one = site.submission(&["true"], 1.0, 1);
    let mut jobs = Vec::new();
    for _ in 0..20 {
        jobs.push(site.submit(wire, &one).await?);
    }
    if let Some(last) = jobs.last() {
        considered(site, wire, last).await?;
    }
    let mut took = Vec::with_capacity(QUESTIONS);
    for number in 0..QUESTIONS {
        let question = site.request("GET", &format!("/{}/why", jobs[number % jobs.len()]), "");
        let began = Instant::now();
        let why = ask(wire, &question).await?;
        took.push(millis(began));
        ensure!(why["rule"].is_string(), "no rule in {why}");
    }
    let what = format!("training, {engine}: why a job waits, p99");
    report.goal(&what, p99(&mut took), "ms", Goal::AtMost(5.0));
    report.note("  median", median(&mut took), "ms");
    Ok(())
}

/// Waits until the scheduler has looked at a job.
async fn considered(site: &Site, wire: &mut Wire, id: &str) -> Result<()> {
    let question = site.request("GET", &format!("/{id}/why"), "");
    let until = Instant::now() + LOOKED_AT_WITHIN;
    loop {
        let why = ask(wire, &question).await?;
        if why["rule"].is_string() {
            ensure!(why["state"] == "PENDING", "it should wait: {why}");
            return Ok(());
        }
        ensure!(Instant::now() < until, "nobody looked at {id}: {why}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn millis(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}
