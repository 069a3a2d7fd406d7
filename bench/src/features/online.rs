//! The latest values over HTTP in Feast's words, beside `feast serve` on Redis.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Jumps;
use super::falaj::Falaj;
use super::pace::paced;
use super::python::{Environments, Peer};
use crate::lanes::drive;
use crate::process;
use crate::report::{Goal, Report, median, p99};
use crate::wire::{self, Wire};

/// Entities behind the routes, features of each, and entities in one request.
const ENTITIES: usize = 10_000;
const FIELDS: usize = 50;
const ASKED: usize = 100;
const CONNECTIONS: usize = 16;

fn names() -> Vec<String> {
    (0..FIELDS).map(|field| format!("f{field}")).collect()
}

/// What `bench/features/feast_online.py` has as well.
pub(super) async fn filled() -> Result<Falaj> {
    let falaj = Falaj::start(None, "").await?;
    let names = names();
    let fields: Vec<_> =
        names.iter().map(|name| json!({ "name": name, "type": "float64" })).collect();
    let definitions = json!({
        "entities": [{ "name": "driver",
            "join_keys": [{ "name": "driver_id", "type": "int64" }] }],
        "sources": [{ "name": "live", "kind": "push" }],
        "views": [{ "name": "stats", "entities": ["driver"], "source": "live", "schema": fields }],
    });
    falaj.post("/api/features/apply", definitions).await?;
    for first in (0..ENTITIES).step_by(1000) {
        let ids: Vec<_> = (first..first + 1000).collect();
        let mut columns = json!({ "driver_id": ids,
            "event_timestamp": vec!["2026-01-01T00:00:00Z"; 1000] });
        for name in &names {
            #[allow(clippy::cast_precision_loss, reason = "any number will do")]
            let values: Vec<_> = ids.iter().map(|id| *id as f64 / 7.0).collect();
            columns[name] = json!(values);
        }
        falaj.post("/api/features/push", json!({ "view": "stats", "columns": columns })).await?;
    }
    Ok(falaj)
}

/// What is asked over each connection.
fn questions() -> Vec<Value> {
    let mut jumps = Jumps(3);
    let features: Vec<_> = names().iter().map(|name| format!("stats:{name}")).collect();
    let question = |_| {
        let limit = i64::try_from(ENTITIES).unwrap_or(i64::MAX);
        let ids: Vec<_> = (0..ASKED).map(|_| jumps.below(limit)).collect();
        json!({ "features": features, "entities": { "driver_id": ids } })
    };
    (0..CONNECTIONS).map(question).collect()
}

/// A rate, what a request took of the server's processes, and of the time.
struct Load {
    rate: f64,
    cpu: f64,
    took: Vec<f64>,
}

fn load(
    address: SocketAddr,
    root: u32,
    requests: &[String],
    connections: usize,
    run: Duration,
) -> Result<Load> {
    wire::load(address, &requests[0], 200, connections, run / 5)?;
    let pids = process::tree(root)?;
    let (before, began) = (process::cpu_seconds(&pids)?, Instant::now());
    let lanes = || {
        let requests = requests.iter().take(connections);
        requests.map(|request| wire::timed(address, request, 200, run))
    };
    let took: Vec<f64> = drive(lanes)?.into_iter().flatten().collect();
    let elapsed = began.elapsed().as_secs_f64();
    // Workers that were replaced meanwhile took their count with them.
    let cpu = process::cpu_seconds(&pids).map_or(f64::NAN, |after| after - before);
    #[allow(clippy::cast_precision_loss, reason = "a count of requests")]
    let count = took.len() as f64;
    Ok(Load { rate: count / elapsed, cpu: cpu * 1e3 / count, took })
}

pub(super) async fn online(
    report: &mut Report,
    environments: &Environments,
    run: Duration,
    peers: bool,
) -> Result<()> {
    let falaj = filled().await?;
    let questions = questions();
    let ask = |question| falaj.request("/get-online-features", question);
    let requests = questions.iter().map(ask).collect::<Result<Vec<_>>>()?;
    let (address, pid) = (falaj.address()?, falaj.pid()?);
    let mut alone = load(address, pid, &requests, 1, run)?;
    let what = "100 × 50 in Feast's JSON, one connection";
    report.row(what, &[(alone.rate, "requests/s"), (alone.cpu, "ms of CPU")]);
    let times = (median(&mut alone.took) * 1e3, p99(&mut alone.took) * 1e3);
    report.row("the same, median and p99", &[(times.0, "ms"), (times.1, "ms")]);
    let mut ours = load(address, pid, &requests, CONNECTIONS, run)?;
    report.note("100 × 50 in Feast's JSON, 16 connections", ours.rate, "requests/s");
    report.goal("the same, server's CPU a request", ours.cpu, "ms", Goal::AtMost(1.0));
    let times = (median(&mut ours.took) * 1e3, p99(&mut ours.took) * 1e3);
    report.row("the same without a pause, median and p99", &[(times.0, "ms"), (times.1, "ms")]);
    for share in [0.25, 0.5] {
        let (rate, requests) = (ours.rate * share, requests.clone());
        let pace = move || paced(address, &requests, rate, run);
        let mut took = tokio::task::spawn_blocking(pace).await??;
        let (half, late) = (median(&mut took) * 1e3, p99(&mut took) * 1e3);
        let what = format!("the same at {:.0} % of that rate, 16 connections", share * 100.0);
        report.row(&format!("{what}: median"), &[(half, "ms"), (rate, "requests/s")]);
        report.goal(&format!("{what}: p99"), late, "ms", Goal::AtMost(3.0));
    }
    let python = if peers { environments.python("feast") } else { None };
    if let Some(python) = python {
        let redis = Peer::redis()?;
        let feast = Peer::feast(&python, &redis)?;
        same(&falaj, &feast, &questions[0]).await?;
        let ask = |question: &Value| plain(feast.address, question);
        let requests: Vec<_> = questions.iter().map(ask).collect();
        let theirs = load(feast.address, feast.pid(), &requests, CONNECTIONS, 2 * run)?;
        let what = "the same: feast serve on Redis, without Redis itself";
        report.row(what, &[(theirs.rate, "requests/s"), (theirs.cpu, "ms of CPU")]);
        let ratio = ours.rate / theirs.rate;
        report.goal("requests/s, Falaj / feast serve", ratio, "×", Goal::AtLeast(50.0));
        report.note("CPU of a request, feast serve / Falaj", theirs.cpu / ours.cpu, "×");
    }
    Ok(())
}

fn plain(address: SocketAddr, question: &Value) -> String {
    let body = question.to_string();
    format!(
        "POST /get-online-features HTTP/1.1\r\nhost: {address}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Both must answer the same before either is measured.
async fn same(falaj: &Falaj, feast: &Peer, question: &Value) -> Result<()> {
    let ours = falaj.post("/get-online-features", question.clone()).await?;
    let mut wire = Wire::connect(feast.address).await?;
    let (status, body) = wire.ask(&plain(feast.address, question)).await?;
    ensure!(status == 200, "feast serve: {status} {}", String::from_utf8_lossy(body));
    let theirs: Value = serde_json::from_slice(body)?;
    for name in names() {
        let of = |answer: &Value| -> Result<Value> {
            let names = answer["metadata"]["feature_names"].as_array().context("no names")?;
            let place = names.iter().position(|known| known == name.as_str());
            Ok(answer["results"][place.context("no such feature")?]["values"].clone())
        };
        ensure!(of(&ours)? == of(&theirs)?, "{name}: {} and {}", of(&ours)?, of(&theirs)?);
    }
    Ok(())
}
