//! Bringing a million rows of ten features online, beside Feast on Redis.

use anyhow::{Result, ensure};
use serde_json::json;
use std::time::Instant;

use super::falaj::Falaj;
use super::join::told;
use super::python::{self, Environments, Peer, Took};
use crate::report::{Goal, Report};

pub(super) async fn materialize(
    report: &mut Report,
    environments: &Environments,
    peers: bool,
) -> Result<()> {
    let data = environments.data()?;
    let falaj = Falaj::start(Some(&data), "").await?;
    let fields: Vec<_> =
        (0..10).map(|field| json!({ "name": format!("f{field}"), "type": "float32" })).collect();
    let definitions = json!({
        "entities": [{ "name": "driver",
            "join_keys": [{ "name": "driver_id", "type": "int64" }] }],
        "sources": [{ "name": "rows", "kind": "parquet", "path": "lake/wide.parquet" }],
        "views": [{ "name": "wide", "entities": ["driver"], "source": "rows", "schema": fields }],
    });
    falaj.post("/api/features/apply", definitions).await?;
    let (used, began) = (falaj.cpu()?, Instant::now());
    let wanted = json!({ "disable_event_timestamp": true, "feature_views": ["wide"] });
    let brought = falaj.post("/materialize", wanted).await?;
    let wall = began.elapsed().as_secs_f64();
    let ours = Took { cpu: falaj.cpu()? - used, wall, peak: falaj.peak()? };
    ensure!(brought["rows"]["wide"] == json!(1_000_000), "brought {brought}");
    let asked = json!({ "features": ["wide:f0"], "entities": { "driver_id": [0, 999_999] } });
    let read = falaj.post("/get-online-features", asked).await?;
    ensure!(read["results"][1]["statuses"] == json!(["PRESENT", "PRESENT"]), "read {read}");
    told(report, "a million rows of ten features online: Falaj", ours);
    report.goal("the same, peak memory", ours.peak, "MB", Goal::AtMost(500.0));
    drop(falaj);
    let python = if peers { environments.python("feast") } else { None };
    if let Some(python) = python {
        let redis = Peer::redis()?;
        let arguments = ["materialize".into(), data, redis.address.port().to_string().into()];
        let theirs = Took::read(&python::run(&python, "feast_online.py", arguments)?)?;
        told(report, "the same: Feast on Redis, without Redis itself", theirs);
        let ratio = theirs.cpu / ours.cpu;
        report.goal("CPU, Feast / Falaj", ratio, "×", Goal::AtLeast(30.0));
    }
    Ok(())
}
