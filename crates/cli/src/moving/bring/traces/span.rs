//! A span as MLflow keeps it, in the words of OpenTelemetry. Pure.

use falaj_base::hex;
use falaj_moving::record::from_base64;
use serde_json::{Map, Value, json};

/// Reads a span in either form that MLflow has written: that of its tables and newer files, and
/// that of the files of MLflow 2. Nothing if it is none of them.
pub(super) fn otlp(kept: &Value) -> Option<Value> {
    if kept.get("context").is_some() { of_version_2(kept) } else { of_version_3(kept) }
}

/// The trace that a span says it belongs to, as traces are called since MLflow 3.
pub(super) fn trace_of(span: &Value) -> String {
    format!("tr-{}", span["traceId"].as_str().unwrap_or_default())
}

fn of_version_3(kept: &Value) -> Option<Value> {
    let id = |field: &str| from_base64(kept[field].as_str()?).map(|bytes| hex(&bytes));
    let status = &kept["status"];
    let mut span = json!({
        "traceId": id("trace_id")?,
        "spanId": id("span_id")?,
        "name": kept["name"].as_str().unwrap_or_default(),
        "startTimeUnixNano": time(&kept["start_time_unix_nano"]),
        "endTimeUnixNano": time(&kept["end_time_unix_nano"]),
        "attributes": attributes(&kept["attributes"], decoded),
        "events": list(&kept["events"]).map(|one| event(one, "time_unix_nano")).collect::<Vec<_>>(),
        "links": list(&kept["links"]).map(link).collect::<Vec<_>>(),
        "status": {
            "code": status_code(&status["code"]),
            "message": status["message"].as_str().unwrap_or_default(),
        },
    });
    if let Some(parent) = id("parent_span_id") {
        span["parentSpanId"] = parent.into();
    }
    Some(span)
}

fn of_version_2(kept: &Value) -> Option<Value> {
    let id = |value: &Value, digits: usize| {
        let text = value.as_str()?.trim_start_matches("0x");
        Some(format!("{text:0>digits$}"))
    };
    let mut span = json!({
        "traceId": id(&kept["context"]["trace_id"], 32)?,
        "spanId": id(&kept["context"]["span_id"], 16)?,
        "name": kept["name"].as_str().unwrap_or_default(),
        "startTimeUnixNano": time(&kept["start_time"]),
        "endTimeUnixNano": time(&kept["end_time"]),
        "attributes": attributes(&kept["attributes"], decoded),
        "events": list(&kept["events"]).map(|one| event(one, "timestamp")).collect::<Vec<_>>(),
        "status": {
            "code": status_code(&kept["status_code"]),
            "message": kept["status_message"].as_str().unwrap_or_default(),
        },
    });
    if let Some(parent) = id(&kept["parent_id"], 16) {
        span["parentSpanId"] = parent.into();
    }
    Some(span)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Numbers of 64 bits are texts there.
fn time(value: &Value) -> String {
    value.as_u64().unwrap_or_default().to_string()
}

fn status_code(code: &Value) -> i64 {
    match code.as_str().unwrap_or_default() {
        "STATUS_CODE_OK" | "OK" => 1,
        "STATUS_CODE_ERROR" | "ERROR" => 2,
        _ => code.as_i64().unwrap_or_default(),
    }
}

/// An attribute is JSON inside a text; what is none is the text itself.
fn decoded(value: &Value) -> Value {
    match value.as_str() {
        Some(text) => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
        None => value.clone(),
    }
}

fn attributes(map: &Value, read: fn(&Value) -> Value) -> Vec<Value> {
    let none = Map::new();
    let pairs = map.as_object().unwrap_or(&none).iter();
    pairs.map(|(key, value)| json!({ "key": key, "value": any(&read(value)) })).collect()
}

fn event(event: &Value, at: &str) -> Value {
    json!({
        "name": event["name"].as_str().unwrap_or_default(),
        "timeUnixNano": time(&event[at]),
        "attributes": attributes(&event["attributes"], Value::clone),
    })
}

fn link(link: &Value) -> Value {
    let text = |field: &str| link[field].as_str().unwrap_or_default();
    json!({
        "traceId": text("trace_id").trim_start_matches("tr-"),
        "spanId": text("span_id"),
        "attributes": attributes(&link["attributes"], Value::clone),
    })
}

/// A value with its type.
fn any(value: &Value) -> Value {
    match value {
        Value::Null => json!({}),
        Value::Bool(flag) => json!({ "boolValue": flag }),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => json!({ "intValue": whole.to_string() }),
            None => json!({ "doubleValue": number }),
        },
        Value::String(text) => json!({ "stringValue": text }),
        Value::Array(values) => {
            json!({ "arrayValue": { "values": values.iter().map(any).collect::<Vec<_>>() } })
        }
        Value::Object(pairs) => {
            let values: Vec<Value> =
                pairs.iter().map(|(key, one)| json!({ "key": key, "value": any(one) })).collect();
            json!({ "kvlistValue": { "values": values } })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_tables_keep_it() {
        let kept = json!({
            "trace_id": "AQEBAQEBAQEBAQEBAQEBAQ==", "span_id": "AgICAgICAgI=",
            "parent_span_id": "AwMDAwMDAwM=", "name": "f",
            "start_time_unix_nano": 1_794_769_940_077_794_937_u64,
            "end_time_unix_nano": 1_794_769_940_077_794_938_u64,
            "events": [{"name": "e", "time_unix_nano": 5, "attributes": {"a": 1, "s": "[1]"}}],
            "status": {"code": "STATUS_CODE_ERROR", "message": "no"},
            "attributes": {"n": "3", "t": "\"3\"", "l": "[1.5, null]", "raw": "{not json"},
            "links": [{"trace_id": "tr-04", "span_id": "05", "attributes": {}}],
        });
        let span = otlp(&kept).unwrap();
        assert_eq!(trace_of(&span), format!("tr-{}", "01".repeat(16)));
        assert_eq!(span["spanId"], "02".repeat(8));
        assert_eq!(span["parentSpanId"], "03".repeat(8));
        assert_eq!(span["startTimeUnixNano"], "1794769940077794937");
        assert_eq!(span["status"], json!({"code": 2, "message": "no"}));
        assert_eq!(
            span["attributes"],
            json!([
                {"key": "n", "value": {"intValue": "3"}},
                {"key": "t", "value": {"stringValue": "3"}},
                {"key": "l", "value": {"arrayValue": {"values": [{"doubleValue": 1.5}, {}]}}},
                {"key": "raw", "value": {"stringValue": "{not json"}},
            ])
        );
        // Those of events are not texts of texts.
        assert_eq!(span["events"][0]["attributes"][1]["value"], json!({"stringValue": "[1]"}));
        assert_eq!(span["links"][0]["traceId"], "04");
    }

    #[test]
    fn as_older_files_keep_it() {
        let kept = json!({
            "name": "f", "context": {"span_id": "0x2", "trace_id": "0x1"}, "parent_id": null,
            "start_time": 5, "end_time": 6, "status_code": "OK", "status_message": "",
            "attributes": {"d": "{\"x\": true}"}, "events": [{"name": "e", "timestamp": 5}],
        });
        let span = otlp(&kept).unwrap();
        assert_eq!(span["traceId"], format!("{:0>32}", "1"));
        assert_eq!(span["spanId"], format!("{:0>16}", "2"));
        assert_eq!((span.get("parentSpanId"), &span["status"]["code"]), (None, &json!(1)));
        let value =
            json!({"kvlistValue": {"values": [{"key": "x", "value": {"boolValue": true}}]}});
        assert_eq!(span["attributes"][0]["value"], value);
    }

    #[test]
    fn what_is_no_span() {
        for kept in [json!({}), json!([]), json!({"trace_id": "?", "span_id": "AgI="}), json!(null)]
        {
            assert_eq!(otlp(&kept), None, "{kept}");
        }
    }
}
