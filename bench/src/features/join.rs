//! A million moments joined to three histories of 14 million rows, through the front door, beside
//! other engines that do the same; and the same with a fifth of the data's size for memory.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::falaj::Falaj;
use super::python::{self, Environments, Took};
use crate::report::{Goal, Report};

/// Views, and how long their rows answer.
const VIEWS: [(&str, Option<&str>); 3] =
    [("small", Some("7d")), ("medium", Some("30d")), ("large", None)];
const FEATURES: usize = 10;

/// An engine, the environment it runs in, and what we want our CPU time to be at most, of its own.
const ENGINES: [(&str, &str, f64); 3] =
    [("polars", "engines", 2.5), ("duckdb", "engines", 5.0), ("feast", "feast", 10.0)];

fn definitions() -> Value {
    let fields: Vec<_> = (0..FEATURES)
        .map(|field| json!({ "name": format!("f{field}"), "type": "float32" }))
        .collect();
    let source = |(name, _): &(&str, _)| {
        json!({ "name": format!("{name}_rows"), "kind": "parquet",
            "path": format!("lake/{name}.parquet") })
    };
    let view = |(name, ttl): &(&str, Option<&str>)| {
        let mut view = json!({ "name": name, "entities": ["driver"],
            "source": format!("{name}_rows"), "known_time": "created", "schema": fields });
        if let Some(ttl) = ttl {
            view["ttl"] = json!(ttl);
        }
        view
    };
    json!({
        "entities": [{ "name": "driver",
            "join_keys": [{ "name": "driver_id", "type": "int64" }] }],
        "sources": VIEWS.iter().map(source).collect::<Vec<_>>(),
        "views": VIEWS.iter().map(view).collect::<Vec<_>>(),
    })
}

fn wanted(hindsight: bool) -> Value {
    let views: Vec<_> = VIEWS.iter().map(|(name, _)| name).collect();
    json!({ "features": views, "moments_object": "moments.parquet", "hindsight": hindsight,
        "full_feature_names": true })
}

async fn started(data: &Path, settings: &str) -> Result<Falaj> {
    let falaj = Falaj::start(Some(data), settings).await?;
    falaj.post("/api/features/apply", definitions()).await?;
    falaj.put("moments.parquet", &data.join("moments.parquet")).await?;
    Ok(falaj)
}

/// Beside the other engines. Corrections count from the beginning, as Feast has it: none of the
/// others could tell since when they are known. Our own rule is measured as well.
pub(super) async fn join(
    report: &mut Report,
    environments: &Environments,
    peers: bool,
) -> Result<()> {
    let data = environments.data()?;
    let folder = tempfile::tempdir()?;
    let falaj = started(&data, "").await?;
    let out = folder.path().join("falaj.parquet");
    let ours = falaj.join(wanted(true), &out).await?;
    told(report, "a million moments, 14 million rows, to Parquet: Falaj", ours);
    let strict = folder.path().join("strict.parquet");
    let took = falaj.join(wanted(false), &strict).await?;
    told(report, "the same, corrections only once they were known", took);
    drop(falaj);
    if !peers {
        return Ok(());
    }
    let checksum = |file: &Path| -> Result<Option<Value>> {
        let Some(python) = environments.python("engines") else { return Ok(None) };
        let sums = python::run(&python, "checksum.py", [file])?;
        Ok(Some(serde_json::from_str(&sums)?))
    };
    let expected = checksum(&out)?;
    let mut least = f64::INFINITY;
    for (engine, environment, at_most) in ENGINES {
        let Some(python) = environments.python(environment) else { continue };
        for memory in [false, true] {
            let file = folder.path().join(format!("{engine}.parquet"));
            let mut arguments = vec![engine.into(), data.clone(), file.clone()];
            arguments.extend(memory.then(|| "memory".into()));
            let said = python::run(&python, "join.py", arguments)?;
            let theirs = Took::read(&said)?;
            let what = if memory { "into memory" } else { "to Parquet" };
            told(report, &format!("the same {what}: {engine}"), theirs);
            let answers = checksum(&file)?;
            ensure!(answers == expected, "{engine} answers {answers:?}, we {expected:?}");
            let ratio = theirs.cpu / ours.cpu;
            if memory {
                report.note(&format!("CPU, {engine} into memory / Falaj to Parquet"), ratio, "×");
            } else {
                let what = format!("CPU, {engine} / Falaj");
                report.goal(&what, ratio, "×", Goal::AtLeast(at_most));
            }
            least = least.min(theirs.peak);
        }
    }
    if least.is_finite() {
        report.goal(
            "peak memory, Falaj / the least of them",
            ours.peak / least,
            "×",
            Goal::AtMost(1.0),
        );
    }
    Ok(())
}

/// With a fifth of the size of the files for memory. Twice that is taken, for moments and for
/// what answers them, beside what a server needs anyway.
pub(super) async fn memory(report: &mut Report, environments: &Environments) -> Result<()> {
    let data = environments.data()?;
    let mut size = 0;
    for (name, _) in VIEWS {
        size += std::fs::metadata(data.join(format!("{name}.parquet")))?.len();
    }
    let limit = size / 5;
    #[allow(clippy::cast_precision_loss, reason = "a number for people")]
    let megabytes = limit as f64 / 1e6;
    let folder = tempfile::tempdir()?;
    let plain = started(&data, "").await?;
    let out = folder.path().join("plain.parquet");
    plain.join(wanted(false), &out).await?;
    drop(plain);
    let small = started(&data, &format!("memory = \"{limit}\"")).await?;
    let within = folder.path().join("within.parquet");
    let took = small.join(wanted(false), &within).await?;
    report.note("a limit on memory of a fifth of the data", megabytes, "MB");
    told(report, "a million moments, 14 million rows, within it", took);
    report.goal("peak memory / the limit", took.peak / megabytes, "×", Goal::AtMost(3.0));
    if let Some(python) = environments.python("engines") {
        let sums = |file: &Path| python::run(&python, "checksum.py", [file]);
        ensure!(sums(&out)? == sums(&within)?, "other answers with less memory");
    }
    Ok(())
}

pub(super) fn told(report: &Report, what: &str, took: Took) {
    let Took { cpu, wall, peak } = took;
    report.row(what, &[(cpu, "s of CPU"), (wall, "s"), (peak, "MB at most")]);
}
