//! `falaj job telemetry` and `falaj job hints`: what jobs use, and what they should ask for.

use reqwest::Method;
use serde_json::{Value, json};

use super::InProject;
use super::job::path;
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

const STARTS: &[Column] = &[
    ("task", "task"),
    ("attempt", "attempt"),
    ("running", "running"),
    ("cores", "now.cpu_cores"),
    ("memory MiB", "memory"),
    ("peak MiB", "summary.memory_mib.peak"),
    ("GPU %", "gpu"),
    ("GPU MiB", "gpu_memory"),
    ("watts", "watts"),
    ("mean cores", "summary.cpu_cores.mean"),
    ("mean GPU %", "summary.gpu_utilization.mean"),
    ("idle since", "idle_since"),
];
const HINTS: &[Column] = &[
    ("job", "job"),
    ("name", "name"),
    ("field", "field"),
    ("asked", "asked"),
    ("used", "used"),
    ("would do", "suggested"),
    ("starts", "starts"),
    ("saves an hour", "saves_per_hour"),
];

const MIB: f64 = 1_048_576.0;

/// Shows what the starts of a job use and have used.
pub(super) async fn telemetry(
    ctx: &Context,
    place: &InProject,
    job: &str,
    task: Option<u32>,
) -> Result<()> {
    let (client, out) = (ctx.client()?, ctx.output);
    let call = client.call(Method::GET, &path(place, &[job, "telemetry"]))?;
    let task = task.map(|task| task.to_string());
    let mut told = client.json(call.query("task", task.as_deref())).await?;
    if out.is_json() {
        return out.json(&told);
    }
    let mut starts = told["starts"].take();
    for start in starts.as_array_mut().into_iter().flatten() {
        let megabytes = |value: &Value| value.as_f64().map(|bytes| (bytes / MIB).round());
        let memory = megabytes(&start["now"]["memory_bytes"]);
        let gpus = start["now"]["gpus"].as_array().cloned().unwrap_or_default();
        let each = |read: &dyn Fn(&Value) -> Option<f64>| {
            let shown: Vec<String> = gpus
                .iter()
                .map(|gpu| read(gpu).map_or_else(|| "-".to_owned(), |value| format!("{value:.0}")))
                .collect();
            json!(shown.join(" "))
        };
        let (gpu, gpu_memory, watts) = (
            each(&|gpu| gpu["utilization"].as_f64()),
            each(&|gpu| megabytes(&gpu["memory_used_bytes"])),
            each(&|gpu| gpu["power_watts"].as_f64()),
        );
        if let Some(cores) = start["now"]["cpu_cores"].as_f64() {
            start["now"]["cpu_cores"] = json!((cores * 100.0).round() / 100.0);
        }
        start["memory"] = json!(memory);
        start["gpu"] = gpu;
        start["gpu_memory"] = gpu_memory;
        start["watts"] = watts;
    }
    out.list(starts.as_array().map_or(&[], Vec::as_slice), STARTS)
}

/// Shows what a job, or all jobs of a project or a queue, should ask for.
pub(super) async fn hints(
    ctx: &Context,
    place: &InProject,
    job: Option<&str>,
    queue: Option<&str>,
) -> Result<()> {
    let (client, out) = (ctx.client()?, ctx.output);
    let found = if let Some(job) = job {
        let call = client.call(Method::GET, &path(place, &[job, "hints"]))?;
        vec![client.json(call).await?]
    } else {
        let all = ["t", &place.place.tenant, &place.project, "api", "hints"];
        let call = client.call(Method::GET, &all)?;
        client.list(call.query("queue", queue)).await?
    };
    if out.is_json() {
        return out.json(&Value::Array(found));
    }
    let mut rows = Vec::new();
    for of in &found {
        for hint in of["hints"].as_array().into_iter().flatten() {
            let mut row = hint.clone();
            row["job"] = of["job"].clone();
            row["name"] = of["name"].clone();
            rows.push(row);
        }
    }
    out.list(&rows, HINTS)?;
    for row in &rows {
        let (name, text) = (row["name"].as_str(), row["text"].as_str());
        out.text(&format!("{}: {}", name.unwrap_or_default(), text.unwrap_or_default()))?;
    }
    Ok(())
}
