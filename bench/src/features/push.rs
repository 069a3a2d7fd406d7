//! From a push until its rows are read: durable, and in the order of whoever pushes and reads.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use falaj_base::Clock;
use serde_json::{Value, json};

use super::falaj::Falaj;
use super::online::filled;
use crate::lanes::drive;
use crate::report::{Goal, Report, median, p99};
use crate::wire::Wire;

const CONNECTIONS: usize = 16;
const FIELDS: usize = 50;

pub(super) async fn push(report: &mut Report, run: Duration) -> Result<()> {
    let falaj = filled().await?;
    for (rows, connections) in [(1, 1), (100, 1), (1, CONNECTIONS)] {
        let lanes = || (0..connections).map(|lane| one(&falaj, lane, rows, run));
        let mut took: Vec<f64> = drive(lanes)?.into_iter().flatten().collect();
        #[allow(clippy::cast_precision_loss, reason = "a count of pushes")]
        let rate = took.len() as f64 / run.as_secs_f64();
        let what = format!("push of {rows} × 50 until it is read, {connections} at a time");
        report.row(&what, &[(median(&mut took) * 1e3, "ms"), (rate, "/s")]);
        report.goal(&format!("{what}: p99"), p99(&mut took) * 1e3, "ms", Goal::AtMost(10.0));
    }
    Ok(())
}

/// Pushes to entities of its own, and reads each back; tells how long both took together.
async fn one(falaj: &Falaj, lane: usize, rows: usize, run: Duration) -> Result<Vec<f64>> {
    let mut wire = Wire::connect(falaj.address()?).await?;
    let ids: Vec<_> = (0..rows).map(|row| lane * rows + row).collect();
    let asked = json!({ "features": ["stats:f0"], "entities": { "driver_id": ids } });
    let read = falaj.request("/get-online-features", &asked)?;
    let (began, mut took, mut count) = (Instant::now(), Vec::new(), 0_u32);
    while began.elapsed() < run {
        count += 1;
        let now = Clock::System.now().to_string();
        let mut columns = json!({ "driver_id": ids, "event_timestamp": vec![now; rows] });
        for field in 0..FIELDS {
            columns[format!("f{field}")] = json!(vec![f64::from(count); rows]);
        }
        let push = json!({ "view": "stats", "columns": columns });
        let push = falaj.request("/api/features/push", &push)?;
        let at = Instant::now();
        let (status, body) = wire.ask(&push).await?;
        ensure!(status == 200, "{status} {}", String::from_utf8_lossy(body));
        let (status, body) = wire.ask(&read).await?;
        ensure!(status == 200, "{status} {}", String::from_utf8_lossy(body));
        took.push(at.elapsed().as_secs_f64());
        let answer: Value = serde_json::from_slice(body)?;
        let values = answer["results"][1]["values"].as_array().context("no values")?;
        let fresh = |value: &Value| *value == json!(f64::from(count));
        ensure!(values.iter().all(fresh), "read {values:?} after a push of {count}");
    }
    Ok(took)
}
