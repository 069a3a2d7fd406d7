//! Short jobs from their submission to their end, on this machine.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Options;
use super::site::Site;
use crate::commit::per_second;
use crate::lanes::drive;
use crate::report::{Goal, Report, median, p99};
use crate::wire::Wire;

/// Cores of the pool, and those of each job: so many run at once.
const CORES: usize = 16;
const EACH: f64 = 0.25;
/// Jobs that are run one after the other.
const SINGLE: usize = 40;
const OVER_WITHIN: Duration = Duration::from_mins(5);

pub(super) async fn measure(
    report: &mut Report,
    options: &Options,
    engine: &str,
    database: Option<String>,
) -> Result<()> {
    let site = Site::open(CORES, database).await?;
    let mut wire = site.connect().await?;
    let one = site.submission(&["true"], EACH, 1);
    // The first one finds everything cold.
    let first = site.submit(&mut wire, &one).await?;
    over(&site, &mut wire, &first).await?;
    let mut took = Vec::with_capacity(SINGLE);
    for _ in 0..SINGLE {
        let began = Instant::now();
        let id = site.submit(&mut wire, &one).await?;
        over(&site, &mut wire, &id).await?;
        took.push(began.elapsed().as_secs_f64() * 1e3);
    }
    report.note(&format!("training, {engine}: one short job, end to end"), median(&mut took), "ms");
    report.note("  p99", p99(&mut took), "ms");

    let (before, began) = (site.cpu_seconds()?, Instant::now());
    let clients = options.submitters.clamp(1, options.short_jobs);
    let each = options.short_jobs / clients;
    let lanes = || (0..clients).map(|_| lane(&site, &one, each));
    let ids: Vec<String> = drive(lanes)?.into_iter().flatten().collect();
    for id in &ids {
        over(&site, &mut wire, id).await?;
    }
    let (took, used) = (began.elapsed(), site.cpu_seconds()? - before);
    let rate = per_second(ids.len(), took);
    let what = format!("training, {engine}: short jobs, end to end");
    report.goal(&what, rate, "/s", Goal::AtLeast(300.0));
    report.note("  server CPU for each", used * 1e6 / (rate * took.as_secs_f64()), "µs");

    let array = site.submission(&["true"], EACH, options.short_jobs);
    let began = Instant::now();
    let id = site.submit(&mut wire, &array).await?;
    over(&site, &mut wire, &id).await?;
    let rate = per_second(options.short_jobs, began.elapsed());
    report.note(&format!("training, {engine}: tasks of an array, end to end"), rate, "/s");
    Ok(())
}

/// Submits jobs one after the other.
async fn lane(site: &Site, submission: &str, count: usize) -> Result<Vec<String>> {
    let mut wire = site.connect().await?;
    let mut ids = Vec::with_capacity(count);
    for _ in 0..count {
        ids.push(site.submit(&mut wire, submission).await?);
    }
    Ok(ids)
}

/// Waits until a job has succeeded, all its tasks.
async fn over(site: &Site, wire: &mut Wire, id: &str) -> Result<()> {
    let until = Instant::now() + OVER_WITHIN;
    loop {
        let job = site.job(wire, id).await?;
        match job["state"].as_str().context("a job without a state")? {
            "SUCCEEDED" => return Ok(()),
            "FAILED" | "CANCELLED" | "LOST" => anyhow::bail!("it should have succeeded: {job}"),
            _ => ensure!(Instant::now() < until, "it is not over: {job}"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
