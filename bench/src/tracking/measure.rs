//! The measurements themselves, each on both servers.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::client::occurrences;
use super::peer::Peer;
use super::{Options, population};
use crate::commit::per_second;
use crate::lanes::drive;
use crate::report::{Goal, Report, median, p99};

const WARM_UP: Duration = Duration::from_secs(1);
pub(super) const BATCH: usize = 1000;
/// Enough for a 99th percentile; the slower server is given up on after a while.
const SEARCHES: usize = 200;
pub(super) const FOUND: usize = 100;
/// What a chart of the original's page asks for.
pub(super) const CHART: usize = 320;
const READS: usize = 3;
/// Both servers have this long to give memory back before what is resident is looked at.
const REST: Duration = Duration::from_secs(5);

/// Requests per second, and what each cost the server.
pub(super) struct Rate {
    pub(super) per_second: f64,
    pub(super) cpu_micros: f64,
}

pub(crate) async fn pair(
    report: &mut Report,
    options: &Options,
    engine: &str,
    falaj: &Peer,
    mlflow: Option<&Peer>,
) -> Result<()> {
    let name = |what: &str| format!("tracking, {engine}: {what}");

    let theirs = on(mlflow, async |peer| log_metric(peer, options).await).await?;
    let ours = log_metric(falaj, options).await?;
    note(report, &name("log-metric"), theirs.as_ref(), &ours, 1.0);
    if let Some(theirs) = theirs {
        let ratio = ours.per_second / theirs.per_second;
        report.goal(&name("log-metric / MLflow"), ratio, "×", Goal::AtLeast(100.0));
    }

    let theirs = on(mlflow, async |peer| log_batch(peer, options).await).await?;
    let ours = log_batch(falaj, options).await?;
    note(report, &name("metrics in batches"), theirs.as_ref(), &ours, points_of(BATCH));
    if let Some(theirs) = theirs {
        let ratio = ours.per_second / theirs.per_second;
        report.goal(&name("log-batch of 1,000 / MLflow"), ratio, "×", Goal::AtLeast(100.0));
    }

    let found = async |peer: &Peer| {
        let experiment = population::runs(peer, options.runs).await?;
        search(peer, options, &experiment, options.runs).await
    };
    let theirs = on(mlflow, &found).await?.map(|mut times| median(&mut times));
    let mut ours = found(falaj).await?;
    compare(report, &name("search"), theirs, median(&mut ours));
    report.goal(&name("search, p99"), p99(&mut ours) * 1e3, "ms", Goal::AtMost(50.0));

    let theirs = on(mlflow, async |peer| history(peer, options).await).await?;
    let ours = history(falaj, options).await?;
    for (at, (what, ours)) in ours.into_iter().enumerate() {
        compare(report, &name(what), theirs.as_ref().map(|theirs| theirs[at].1), ours);
    }

    // What an answer took is not what a server takes.
    tokio::time::sleep(REST).await;
    let ours = falaj.resident()?;
    report.note(&name("resident memory"), ours, "MB");
    if let Some(mlflow) = mlflow {
        let theirs = mlflow.resident()?;
        report.note(&name("resident memory, MLflow"), theirs, "MB");
        report.goal(&name("resident memory / MLflow"), ours / theirs, "×", Goal::AtMost(0.1));
    }
    Ok(())
}

/// What is measured on the original, if it is there.
async fn on<T>(
    peer: Option<&Peer>,
    measured: impl AsyncFnOnce(&Peer) -> Result<T>,
) -> Result<Option<T>> {
    match peer {
        Some(peer) => measured(peer).await.map(Some),
        None => Ok(None),
    }
}

/// Two times for the same, in seconds.
fn compare(report: &mut Report, what: &str, theirs: Option<f64>, ours: f64) {
    report.note(what, ours * 1e3, "ms");
    if let Some(theirs) = theirs {
        report.note(&format!("{what}, MLflow"), theirs * 1e3, "ms");
        report.goal(&format!("{what}: MLflow / ours"), theirs / ours, "×", Goal::AtLeast(20.0));
    }
}

fn note(report: &Report, what: &str, theirs: Option<&Rate>, ours: &Rate, each: f64) {
    for (whose, rate) in theirs.map(|rate| (", MLflow", rate)).into_iter().chain([("", ours)]) {
        report.note(&format!("{what}{whose}"), rate.per_second * each, "/s");
        report.note(&format!("{what}{whose}, server CPU a request"), rate.cpu_micros, "µs");
    }
}

#[allow(clippy::cast_precision_loss, reason = "a count of points is far below 2^52")]
fn points_of(count: usize) -> f64 {
    count as f64
}

/// Each connection logs into a run of its own, one point a request.
pub(super) async fn log_metric(peer: &Peer, options: &Options) -> Result<Rate> {
    rate(peer, options, "/api/2.0/mlflow/runs/log-metric", |run, number| {
        Ok(format!(
            r#"{{"run_id":"{run}","key":"loss","value":0.{number},"timestamp":{number},"step":{number}}}"#
        ))
    })
    .await
}

/// Ten metrics, a hundred steps of each.
pub(super) async fn log_batch(peer: &Peer, options: &Options) -> Result<Rate> {
    rate(peer, options, "/api/2.0/mlflow/runs/log-batch", |run, number| {
        let mut body = format!(r#"{{"run_id":"{run}","metrics":["#);
        for index in 0..BATCH {
            let (comma, key) = (if index == 0 { "" } else { "," }, index % 10);
            let step = number * 100 + index / 10;
            write!(
                body,
                r#"{comma}{{"key":"metric {key}","value":{step}.5,"timestamp":{step},"step":{step}}}"#
            )?;
        }
        body.push_str("]}");
        Ok(body)
    })
    .await
}

async fn rate(
    peer: &Peer,
    options: &Options,
    path: &str,
    body: impl Fn(&str, usize) -> Result<String> + Sync,
) -> Result<Rate> {
    let experiment = peer.new_experiment().await?;
    let mut lanes = Vec::new();
    for _ in 0..options.connections {
        lanes.push((peer.new_run(&experiment).await?, AtomicUsize::new(0)));
    }
    let send = |time: Duration| -> Result<usize> {
        let until = Instant::now() + time;
        let one = async |(run, sent): &(String, AtomicUsize)| -> Result<usize> {
            let mut connection = peer.connect().await?;
            let mut count = 0;
            while Instant::now() < until {
                let number = sent.fetch_add(1, Ordering::Relaxed);
                let sent = connection.post(path, &body(run, number)?).await.map(drop);
                match sent {
                    Ok(()) => count += 1,
                    // With its defaults it runs out of database connections now and then.
                    Err(_) if peer.original().is_some() => connection = peer.connect().await?,
                    Err(failed) => return Err(failed),
                }
            }
            Ok(count)
        };
        Ok(drive(|| lanes.iter().map(&one))?.into_iter().sum())
    };
    send(WARM_UP)?;
    let (before, began) = (peer.cpu_seconds()?, Instant::now());
    let count = send(options.time())?;
    let (used, took) = (peer.cpu_seconds()? - before, began.elapsed());
    let rate = per_second(count, took);
    Ok(Rate { per_second: rate, cpu_micros: used * 1e6 / (rate * took.as_secs_f64()) })
}

/// How long searches take among the runs of [`population::runs`].
pub(super) async fn search(
    peer: &Peer,
    options: &Options,
    experiment: &str,
    runs: usize,
) -> Result<Vec<f64>> {
    // More than half of all runs meet the first condition, a quarter the second.
    let filter = |least: usize| format!("metrics.acc > 0.{least:04} AND params.lr = '0.01'");
    let until = Instant::now() + options.time() * 3;
    searches(peer, experiment, filter, FOUND.min(runs / 16), until).await
}

/// How long searches take, one after the other; no two ask for the same. The first one, which loads
/// the columns, does not count.
pub(super) async fn searches(
    peer: &Peer,
    experiment: &str,
    filter: impl Fn(usize) -> String,
    at_least: usize,
    until: Instant,
) -> Result<Vec<f64>> {
    let mut connection = peer.connect().await?;
    let mut times = Vec::new();
    for number in 0..SEARCHES {
        let filter = filter(1000 + number * 17);
        let body = format!(
            r#"{{"experiment_ids":["{experiment}"],"filter":"{filter}","order_by":["metrics.loss DESC"],"max_results":{FOUND}}}"#
        );
        let began = Instant::now();
        let reply = connection.post("/api/2.0/mlflow/runs/search", &body).await?;
        let took = began.elapsed().as_secs_f64();
        let found = occurrences(reply, "artifact_uri")?;
        ensure!(found >= at_least, "{} found only {found} runs", peer.name);
        if number > 0 {
            times.push(took);
        }
        if Instant::now() > until && times.len() >= READS {
            break;
        }
    }
    Ok(times)
}

/// Reading every point, and a chart of them.
async fn history(peer: &Peer, options: &Options) -> Result<[(&'static str, f64); 2]> {
    let run = population::points(peer, options.points).await?;
    let all = format!("/api/2.0/mlflow/metrics/get-history?run_id={run}&metric_key=long");
    let whole = read(peer, &all, options.points..=options.points).await?;
    let sampled = chart(peer, &run, CHART.min(options.points)).await?;
    Ok([("history, every point", whole), ("history, a chart", sampled)])
}

/// Sampling the metric `long` of a run.
pub(super) async fn chart(peer: &Peer, run: &str, at_least: usize) -> Result<f64> {
    let path = format!(
        "/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval?run_ids={run}&metric_key=long&max_results={CHART}"
    );
    // The original adds the last point to its sample.
    read(peer, &path, at_least..=CHART + 1).await
}

async fn read(peer: &Peer, path: &str, wanted: std::ops::RangeInclusive<usize>) -> Result<f64> {
    let mut connection = peer.connect().await?;
    let mut times = Vec::new();
    for _ in 0..READS {
        let began = Instant::now();
        let reply = connection.get(path).await?;
        times.push(began.elapsed().as_secs_f64());
        let points = occurrences(reply, "timestamp")?;
        ensure!(wanted.contains(&points), "{}: {points} points from {path}", peer.name);
    }
    Ok(median(&mut times))
}
