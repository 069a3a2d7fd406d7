//! `falaj endpoint traffic`: how the traffic of an endpoint goes.

use serde_json::Value;

use crate::exit::Result;
use crate::output::{Column, Output, cell};

const VARIANTS: &[Column] = &[
    ("variant", "name"),
    ("version", "version"),
    ("share", "share"),
    ("requests", "requests"),
    ("errors", "errors"),
    ("p50 ms", "p50"),
    ("p95 ms", "p95"),
    ("p99 ms", "p99"),
    ("outcomes", "outcomes"),
    ("mean", "mean_outcome"),
];

pub(super) fn show(out: Output, traffic: &Value) -> Result<()> {
    if out.is_json() {
        return out.json(traffic);
    }
    let variants: Vec<Value> =
        traffic["variants"].as_array().into_iter().flatten().cloned().map(rounded).collect();
    out.list(&variants, VARIANTS)?;
    for line in lines(traffic) {
        out.text(&format!("{line}\n"))?;
    }
    Ok(())
}

/// Numbers as people read them.
fn rounded(mut variant: Value) -> Value {
    for key in ["share", "p50", "p95", "p99", "mean_outcome"] {
        if let Some(number) = variant[key].as_f64() {
            variant[key] = Value::from(format!("{number:.3}"));
        }
    }
    variant
}

fn lines(traffic: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let canary = &traffic["canary"];
    if !canary.is_null() {
        let (step, steps) = (cell(canary, "step"), cell(canary, "steps"));
        lines.push(format!("canary: step {step} of {steps}, next: {}", brief(&canary["next"])));
    }
    let test = &traffic["test"];
    if !test.is_null() {
        lines.push(format!("test: {}, p {}", cell(test, "verdict"), cell(test, "p")));
    }
    for (name, shadow) in traffic["shadows"].as_object().into_iter().flatten() {
        let (compared, failed) = (cell(shadow, "compared"), cell(shadow, "failed"));
        let slower = shadow["mean_slower"].as_f64().unwrap_or_default();
        lines.push(format!(
            "shadow {name}: {compared} compared, {failed} failed, {slower:+.3} ms on average",
        ));
        for (output, report) in shadow["outputs"].as_object().into_iter().flatten() {
            let distance = report["mean_distance"].as_f64().unwrap_or_default();
            let furthest = report["max_distance"].as_f64().unwrap_or_default();
            lines.push(format!(
                "  {output}: {} of {} labels differ, numbers by {distance:.6}, at most {furthest:.6}",
                cell(report, "flipped"),
                cell(report, "labels"),
            ));
        }
    }
    let decided = &traffic["decided"];
    if !decided.is_null() {
        let (event, at) = (cell(decided, "event"), cell(decided, "at"));
        lines.push(format!("decided: {event} at {at}: {}", brief(&decided["why"])));
    }
    lines
}

/// The figures of a decision on one line.
fn brief(decision: &Value) -> String {
    let parts = decision.as_object().into_iter().flatten();
    let shown = parts.filter(|(_, value)| !value.is_null() && !value.is_object());
    shown.map(|(key, value)| format!("{key} {}", plain(value))).collect::<Vec<_>>().join(", ")
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn decisions_fit_on_a_line() {
        let traffic = json!({
            "canary": {"step": 1, "steps": 3, "next": {"decision": "wait", "reason": "too_early", "seconds": 3}},
            "shadows": {"next": {"compared": 5, "failed": 0, "mean_slower": 0.5, "outputs": {"y":
                {"labels": 5, "flipped": 2, "mean_distance": 0.25, "max_distance": 1.0}}}},
            "decided": {"event": "endpoint.advanced", "at": "now", "why": {"share": 0.5}},
        });
        assert_eq!(
            lines(&traffic),
            [
                "canary: step 1 of 3, next: decision wait, reason too_early, seconds 3",
                "shadow next: 5 compared, 0 failed, +0.500 ms on average",
                "  y: 2 of 5 labels differ, numbers by 0.250000, at most 1.000000",
                "decided: endpoint.advanced at now: share 0.5",
            ]
        );
    }
}
