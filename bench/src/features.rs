//! The latest values of features: found in process, and asked for over HTTP in Feast's words.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use falaj_base::ByteSize;
use falaj_online::store::{Embedded, EmbeddedConfig};
use falaj_online::{Batch, Key, Kind, Layout, Scalar, Stamp, Value};
use falaj_testkit::Setup;
use futures::future::try_join_all;
use serde_json::json;

use crate::process;
use crate::report::{Goal, Report, median, p99};
use crate::wire;

/// Rows in the embedded store: of 50 floats each, some 400 bytes with their stamp.
const ROWS: i64 = 1_000_000;
const FIELDS: usize = 50;
/// Entities behind the HTTP routes, and in one request.
const ENTITIES: usize = 10_000;
const ASKED: usize = 100;
const CONNECTIONS: usize = 16;

pub(crate) async fn measure(report: &mut Report, seconds: u64) -> Result<()> {
    println!("features");
    tokio::task::block_in_place(|| in_process(report))?;
    over_http(report, Duration::from_secs(seconds)).await
}

/// Numbers that jump about, the same in every run.
struct Jumps(u64);

impl Jumps {
    fn below(&mut self, limit: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        i64::try_from(self.0 >> 33).unwrap_or(0) % limit
    }
}

fn key(entity: i64) -> Result<Key> {
    Ok(Key::new(1, [("id", &Value::Int64(entity))])?)
}

fn in_process(report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("online.redb");
    let config = |rows| EmbeddedConfig { pages: ByteSize::gib(1), rows };
    let store = Embedded::open(&path, &config(ByteSize::gib(1)))?;
    let layout = Layout::new(&[Kind::One(Scalar::Float64); FIELDS]);
    let began = Instant::now();
    for first in (0..ROWS).step_by(20_000) {
        let mut batch = Batch::new();
        for entity in first..first + 20_000 {
            #[allow(clippy::cast_precision_loss, reason = "any number will do")]
            let values = vec![Value::Float64(entity as f64); FIELDS];
            batch.put(key(entity)?, layout.pack(Stamp { event: 1, ..Stamp::default() }, &values)?);
        }
        store.apply(batch)?;
    }
    store.settle(falaj_online::Position { tx: 1, seq: 1 })?;
    #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = ROWS as f64 / began.elapsed().as_secs_f64() / 1e3;
    report.note("bringing a million rows into the embedded store", rate, "thousand/s");
    // Each for the first time: not among the rows in memory, then put there.
    let (one, many) = (reads(&store, 1, 200_000)?, reads(&store, 100, 4000)?);
    report.row("one row and 100, p99", &[(one.1, "µs"), (many.1, "µs")]);
    report.goal("one row, median", one.0, "µs", Goal::AtMost(3.0));
    report.goal("100 rows, median", many.0, "µs", Goal::AtMost(300.0));
    let (one, many) = (reads(&store, 1, 200_000)?, reads(&store, 100, 4000)?);
    report.row("the same once more, from memory", &[(one.0, "µs"), (many.0, "µs")]);
    drop(store);
    let store = Embedded::open(&path, &config(ByteSize::from_bytes(0)))?;
    reads(&store, 100, 4000)?;
    let (one, many) = (reads(&store, 1, 100_000)?, reads(&store, 100, 2000)?);
    report.row("the same without rows in memory", &[(one.0, "µs"), (many.0, "µs")]);
    Ok(())
}

/// The median and the 99th of 100 of so many reads, in microseconds.
fn reads(store: &Embedded, keys: usize, count: usize) -> Result<(f64, f64)> {
    let mut jumps = Jumps(7);
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let asked = (0..keys).map(|_| key(jumps.below(ROWS))).collect::<Result<Vec<_>>>()?;
        let began = Instant::now();
        let rows = store.read(&asked, usize::MAX)?;
        took.push(began.elapsed().as_secs_f64() * 1e6);
        ensure!(rows.iter().all(Option::is_some), "a row is missing");
    }
    Ok((median(&mut took), p99(&mut took)))
}

async fn over_http(report: &mut Report, run: Duration) -> Result<()> {
    let server = Setup::default()
        .env("FALAJ_LIMITS_REQUESTS_PER_SECOND", "10000000")
        .env("FALAJ_LIMITS_REQUEST_BURST", "10000000")
        .start()
        .await?;
    let (client, token) = (server.admin()?, server.admin_token()?);
    let names: Vec<String> = (0..FIELDS).map(|field| format!("f{field}")).collect();
    let fields: Vec<_> =
        names.iter().map(|name| json!({ "name": name, "type": "float64" })).collect();
    let definitions = json!({
        "entities": [{ "name": "driver",
            "join_keys": [{ "name": "driver_id", "type": "int64" }] }],
        "sources": [{ "name": "live", "kind": "push" }],
        "views": [{ "name": "stats", "entities": ["driver"], "source": "live", "schema": fields }],
    });
    let answer = client.post("/api/features/apply", &definitions).await?;
    ensure!(answer.status.is_success(), "{}", answer.text());
    for first in (0..ENTITIES).step_by(1000) {
        let ids: Vec<_> = (first..first + 1000).collect();
        let mut columns = json!({ "driver_id": ids,
            "event_timestamp": vec!["2026-01-01T00:00:00Z"; 1000] });
        for name in &names {
            #[allow(clippy::cast_precision_loss, reason = "any number will do")]
            let values: Vec<_> = ids.iter().map(|id| *id as f64 / 7.0).collect();
            columns[name] = json!(values);
        }
        let push = json!({ "view": "stats", "columns": columns });
        let answer = client.post("/api/features/push", &push).await?;
        ensure!(answer.status.is_success(), "{}", answer.text());
    }
    let address: SocketAddr = server.url().trim_start_matches("http://").parse()?;
    let mut jumps = Jumps(3);
    let features: Vec<_> = names.iter().map(|name| format!("stats:{name}")).collect();
    let requests: Vec<String> = (0..CONNECTIONS)
        .map(|_| {
            let limit = i64::try_from(ENTITIES).unwrap_or(i64::MAX);
            let ids: Vec<_> = (0..ASKED).map(|_| jumps.below(limit)).collect();
            let body =
                json!({ "features": features, "entities": { "driver_id": ids } }).to_string();
            format!(
                "POST /get-online-features HTTP/1.1\r\nhost: {address}\r\n\
                 authorization: Bearer {token}\r\ncontent-type: application/json\r\n\
                 content-length: {}\r\n\r\n{body}",
                body.len()
            )
        })
        .collect();
    let pid = server.pid().context("the server is not running")?;
    wire::load(address, &requests[0], 200, CONNECTIONS, Duration::from_secs(1)).await?;
    let before = process::cpu_seconds(&[pid])?;
    let began = Instant::now();
    let lanes = requests.iter().map(|request| wire::timed(address, request, 200, run));
    let mut took: Vec<f64> = try_join_all(lanes).await?.into_iter().flatten().collect();
    let elapsed = began.elapsed().as_secs_f64();
    let cpu = process::cpu_seconds(&[pid])? - before;
    #[allow(clippy::cast_precision_loss, reason = "a count of requests")]
    let count = took.len() as f64;
    report.note("100 × 50 in Feast's JSON, 16 connections", count / elapsed, "requests/s");
    report.note("the same, median", median(&mut took) * 1e3, "ms");
    report.goal("the same, server's CPU a request", cpu * 1e3 / count, "ms", Goal::AtMost(1.0));
    report.goal("the same, p99", p99(&mut took) * 1e3, "ms", Goal::AtMost(3.0));
    Ok(())
}
