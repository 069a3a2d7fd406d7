//! What is said of a whole trace, as MLflow's protocol writes it. Pure.

use falaj_base::Timestamp;
use falaj_moving::record::{Assessment, Trace};
use serde_json::{Map, Value, json};

/// Tags that say where a store keeps the spans: here they are kept by the server.
const OF_THE_STORE: [&str; 4] = [
    "mlflow.artifactLocation",
    "mlflow.trace.spansLocation",
    "mlflow.trace.archiveLocation",
    "mlflow.trace.archivalFailure",
];

/// The info of a trace that goes into an experiment.
pub(super) fn info(trace: &Trace, experiment: &str) -> Value {
    let tags = trace.tags.iter().filter(|(key, _)| !OF_THE_STORE.contains(&key.as_str()));
    let mut info = json!({
        "trace_id": trace.id,
        "trace_location": {
            "type": "MLFLOW_EXPERIMENT",
            "mlflow_experiment": { "experiment_id": experiment },
        },
        "request_time": time(trace.timestamp),
        "state": state(&trace.state),
        "tags": map(tags),
        "trace_metadata": map(trace.metadata.iter()),
        "assessments": trace.assessments.iter().map(assessment).collect::<Vec<_>>(),
    });
    for (field, text) in [
        ("client_request_id", trace.client_request_id.clone()),
        ("request_preview", trace.request_preview.clone()),
        ("response_preview", trace.response_preview.clone()),
        ("execution_duration", trace.duration.map(seconds)),
    ] {
        if let Some(text) = text {
            info[field] = text.into();
        }
    }
    info
}

/// Whether what a server says of a trace holds all of this. Others may have added to it there.
pub(super) fn holds(there: &Value, ours: &Value) -> bool {
    let same = |field: &str| there[field] == ours[field];
    let texts = ["client_request_id", "request_preview", "response_preview"];
    let given = |field: &&str| ours[*field].as_str().is_some_and(|text| !text.is_empty());
    same("state")
        && same("trace_location")
        && moment(&there["request_time"]) == moment(&ours["request_time"])
        && length(&there["execution_duration"]) == length(&ours["execution_duration"])
        && texts.iter().filter(|field| given(field)).all(|field| same(field))
        && within(&there["tags"], &ours["tags"])
        && within(&there["trace_metadata"], &ours["trace_metadata"])
        && list(&ours["assessments"]).all(|one| {
            let is = |other: &&Value| other["assessment_id"] == one["assessment_id"];
            list(&there["assessments"]).find(is).is_some_and(|there| says(there, one))
        })
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn within(there: &Value, ours: &Value) -> bool {
    ours.as_object().into_iter().flatten().all(|(key, value)| there.get(key) == Some(value))
}

fn says(there: &Value, ours: &Value) -> bool {
    let value = |one: &Value| {
        let serialized = one["expectation"]["serialized_value"]["value"].as_str();
        match serialized.and_then(|text| serde_json::from_str::<Value>(text).ok()) {
            Some(value) => json!({ "value": value }),
            None if one["expectation"].is_object() => one["expectation"].clone(),
            None if one["issue"].is_object() => one["issue"].clone(),
            None => one["feedback"].clone(),
        }
    };
    let same = |field: &str| there[field] == ours[field];
    ["assessment_name", "rationale", "span_id", "source", "valid"].iter().all(|field| same(field))
        && value(there) == value(ours)
        && moment(&there["last_update_time"]) == moment(&ours["last_update_time"])
        && within(&there["metadata"], &ours["metadata"])
}

fn map<'a>(pairs: impl Iterator<Item = &'a (String, String)>) -> Value {
    pairs
        .map(|(key, value)| (key.clone(), Value::from(value.as_str())))
        .collect::<Map<_, _>>()
        .into()
}

fn time(milliseconds: i64) -> String {
    Timestamp::from_micros(milliseconds.saturating_mul(1000)).to_string()
}

fn moment(text: &Value) -> Option<i64> {
    text.as_str()?.parse::<Timestamp>().ok().map(|at| at.micros() / 1000)
}

fn seconds(milliseconds: i64) -> String {
    let sign = if milliseconds < 0 { "-" } else { "" };
    let all = milliseconds.unsigned_abs();
    format!("{sign}{}.{:03}s", all / 1000, all % 1000)
}

/// Without the noughts that need not be there.
fn length(text: &Value) -> Option<&str> {
    let text = text.as_str()?.trim_end_matches('s');
    Some(if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text })
}

fn state(text: &str) -> &str {
    match text {
        "OK" | "ERROR" | "IN_PROGRESS" => text,
        _ => "STATE_UNSPECIFIED",
    }
}

fn assessment(one: &Assessment) -> Value {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|_| text.into());
    let source_type = if one.source_type == "AI_JUDGE" { "LLM_JUDGE" } else { &one.source_type };
    let mut source = json!({ "source_type": source_type });
    if let Some(id) = &one.source_id {
        source["source_id"] = id.as_str().into();
    }
    let mut said = json!({
        "assessment_id": one.id,
        "assessment_name": one.name,
        "source": source,
        "create_time": time(one.created_at),
        "last_update_time": time(one.updated_at),
        "valid": one.valid,
    });
    match one.kind.as_str() {
        "expectation" => {
            said["expectation"] = json!({
                "serialized_value": { "serialization_format": "JSON_FORMAT", "value": one.value },
            });
        }
        "issue" => {
            said["issue"] = json!({ "issue_name": parsed(&one.value)["issue_name"] });
        }
        _ => {
            said["feedback"] = json!({ "value": parsed(&one.value) });
            if let Some(error) = &one.error {
                said["feedback"]["error"] = parsed(error);
            }
        }
    }
    for (field, text) in
        [("span_id", &one.span), ("rationale", &one.rationale), ("overrides", &one.overrides)]
    {
        if let Some(text) = text.as_ref().filter(|text| !text.is_empty()) {
            said[field] = text.as_str().into();
        }
    }
    if let Some(Value::Object(pairs)) = one.metadata.as_deref().map(parsed) {
        let text = |value: Value| match value {
            Value::String(text) => Value::String(text),
            other => other.to_string().into(),
        };
        said["metadata"] = pairs.into_iter().map(|(key, one)| (key, text(one))).collect();
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Trace {
        let pair = |key: &str| (key.to_owned(), "v".to_owned());
        Trace {
            id: "tr-1".to_owned(),
            timestamp: 1_794_769_939_997,
            duration: Some(1500),
            state: "OK".to_owned(),
            request_preview: Some("{}".to_owned()),
            tags: vec![pair("t"), pair("mlflow.artifactLocation")],
            metadata: vec![pair("m")],
            assessments: vec![
                Assessment {
                    id: "a-1".to_owned(),
                    name: "ex".to_owned(),
                    kind: "expectation".to_owned(),
                    value: "[1, 2]".to_owned(),
                    source_type: "HUMAN".to_owned(),
                    metadata: Some("{\"k\": 1}".to_owned()),
                    valid: true,
                    ..Assessment::default()
                },
                Assessment {
                    id: "a-2".to_owned(),
                    name: "fb".to_owned(),
                    kind: "feedback".to_owned(),
                    value: "null".to_owned(),
                    error: Some("{\"error_code\": \"E\"}".to_owned()),
                    source_type: "AI_JUDGE".to_owned(),
                    ..Assessment::default()
                },
            ],
            ..Trace::default()
        }
    }

    #[test]
    fn as_the_protocol_writes_it() {
        let info = info(&trace(), "7");
        assert_eq!(info["tags"], json!({"t": "v"}), "where spans were is the store's business");
        assert_eq!(info["execution_duration"], "1.500s");
        assert_eq!(info["assessments"][0]["metadata"], json!({"k": "1"}));
        assert_eq!(info["assessments"][1]["source"]["source_type"], "LLM_JUDGE");
        assert_eq!(
            info["assessments"][1]["feedback"],
            json!({"value": null, "error": {"error_code": "E"}})
        );
    }

    #[test]
    fn what_is_there_may_be_more_but_not_other() {
        let ours = info(&trace(), "7");
        let mut there = ours.clone();
        there["request_time"] = "2026-11-15T19:12:19.997Z".into();
        there["execution_duration"] = "1.5s".into();
        there["tags"]["more"] = "x".into();
        there["assessments"][0]["expectation"] = json!({"value": [1, 2]});
        assert!(holds(&there, &ours));
        for (field, other) in [
            ("state", json!("ERROR")),
            ("request_time", json!("2026-11-15T19:12:19.998Z")),
            ("request_preview", json!("other")),
            ("tags", json!({"t": "other"})),
            ("assessments", json!([])),
        ] {
            let mut there = there.clone();
            there[field] = other;
            assert!(!holds(&there, &ours), "{field}");
        }
    }
}
