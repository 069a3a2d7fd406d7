//! What Falaj costs as it grows, beside what it cost when it held a tenth of the runs and a
//! hundredth of the points. No other server is needed: this one is compared with itself.

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::Result;
use futures::future::try_join_all;

use super::client::text_field;
use super::measure::{self, BATCH, CHART, FOUND, Rate};
use super::peer::Peer;
use super::{Options, population};
use crate::commit::per_second;
use crate::report::{Goal, Report, median, p99};

/// The clients that send the points.
const CLIENTS: usize = 64;
/// The points of each run.
const POINTS_OF_A_RUN: usize = 1000;
/// What may grow with the number of clients and searched runs, but not with what is stored.
const MEMORY: f64 = 600.0;
const SAME: Goal = Goal::AtMost(1.5);

/// What is measured twice.
struct Figures {
    log_metric: Rate,
    log_batch: Rate,
    search: f64,
    chart: f64,
}

pub(super) async fn measure(
    report: &mut Report,
    options: &Options,
    engine: &str,
    peer: &Peer,
) -> Result<()> {
    let name = |what: &str| format!("scale, {engine}: {what}");
    let run = population::points(peer, options.points / 10).await?;

    let few = population::runs(peer, options.runs / 10).await?;
    ingest(peer, options.stored_points / 100).await?;
    let before = figures(peer, options, &few, &run).await?;

    let many = population::runs(peer, options.runs).await?;
    let began = Instant::now();
    let experiment = ingest(peer, options.stored_points).await?;
    let rate = per_second(options.stored_points, began.elapsed());
    report.note(&name("points taken in, 64 clients"), rate, "/s");
    report.goal(&name("peak resident memory"), peer.peak_resident()?, "MB", Goal::AtMost(MEMORY));
    let filter = |least: usize| format!("metrics.acc > 0.{least:04}");
    let until = Instant::now() + options.time() * 3;
    let mut searches = measure::searches(peer, &experiment, filter, FOUND, until).await?;
    report.note(&name("search among their runs, median"), median(&mut searches) * 1e3, "ms");
    report.goal(
        &name("search among their runs, p99"),
        p99(&mut searches) * 1e3,
        "ms",
        Goal::AtMost(50.0),
    );

    let after = figures(peer, options, &many, &run).await?;
    let grown = |what: &str, ratio: f64| (name(what), ratio);
    let ratios = [
        grown("log-metric, few / many", before.log_metric.per_second / after.log_metric.per_second),
        grown("log-batch, few / many", before.log_batch.per_second / after.log_batch.per_second),
        grown("search, 10 × the runs", after.search / before.search),
        grown("a chart, 100 × the points stored", after.chart / before.chart),
    ];
    for (what, ratio) in ratios {
        report.goal(&what, ratio, "×", SAME);
    }
    report.note(&name("search, a tenth of the runs"), before.search * 1e3, "ms");
    report.note(&name("search"), after.search * 1e3, "ms");
    for (what, before, after) in [
        ("log-metric", before.log_metric.cpu_micros, after.log_metric.cpu_micros),
        ("log-batch", before.log_batch.cpu_micros, after.log_batch.cpu_micros),
    ] {
        report.note(&name(&format!("{what}, server CPU, few")), before, "µs");
        report.note(&name(&format!("{what}, server CPU, many")), after, "µs");
    }
    report.note(&name("resident memory"), peer.resident()?, "MB");
    Ok(())
}

async fn figures(peer: &Peer, options: &Options, experiment: &str, run: &str) -> Result<Figures> {
    let log_metric = measure::log_metric(peer, options).await?;
    let log_batch = measure::log_batch(peer, options).await?;
    let mut searches = measure::search(peer, options, experiment, FOUND).await?;
    let chart = measure::chart(peer, run, CHART).await?;
    Ok(Figures { log_metric, log_batch, search: median(&mut searches), chart })
}

/// Points over many runs, from many clients at once; returns the experiment of the runs.
async fn ingest(peer: &Peer, points: usize) -> Result<String> {
    let experiment = peer.new_experiment().await?;
    let runs = points / POINTS_OF_A_RUN;
    let each = (0..CLIENTS).map(async |first| -> Result<()> {
        let mut connection = peer.connect().await?;
        for index in (first..runs).step_by(CLIENTS) {
            let body = format!(
                r#"{{"experiment_id":"{experiment}","start_time":{index},"run_name":"r"}}"#
            );
            let reply = connection.post("/api/2.0/mlflow/runs/create", &body).await?;
            let run = text_field(reply, "run_id")?;
            for part in 0..POINTS_OF_A_RUN / BATCH {
                let batch = batch(&run, index, part * BATCH)?;
                connection.post("/api/2.0/mlflow/runs/log-batch", &batch).await?;
            }
        }
        Ok(())
    });
    try_join_all(each).await?;
    Ok(experiment)
}

/// Steps of two metrics; how they end depends on the run.
fn batch(run: &str, index: usize, first: usize) -> Result<String> {
    let mut batch = format!(r#"{{"run_id":"{run}","metrics":["#);
    for point in first..first + BATCH {
        let (comma, key) = (if point == first { "" } else { "," }, ["loss", "acc"][point % 2]);
        let (step, value) = (point / 2, (index * 7919 + point) % 10_000);
        write!(
            batch,
            r#"{comma}{{"key":"{key}","value":0.{value:04},"timestamp":{point},"step":{step}}}"#
        )?;
    }
    batch.push_str("]}");
    Ok(batch)
}
