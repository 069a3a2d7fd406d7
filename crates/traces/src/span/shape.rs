//! A stored span as clients read it: in protobuf's JSON, and as the text that MLflow keeps.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use falaj_base::hex;
use serde_json::{Map, Value, json};

use crate::otlp::message::{Event, KeyValue, Link, Span};
use crate::otlp::value::{dumped, quote, typed_pairs, write_map};
use crate::trace::TraceId;

/// Under which name a span keeps the id of its trace.
const REQUEST_ID: &str = "mlflow.traceRequestId";

/// Makes a stored span say which trace it belongs to, whatever its sender wrote there.
pub(crate) fn named(mut span: Span, trace: &TraceId) -> Span {
    span.attributes.retain(|pair| pair.key != REQUEST_ID);
    span.attributes.push(KeyValue::text(REQUEST_ID, trace.as_str()));
    span
}

const fn status_name(code: i32) -> &'static str {
    match code {
        1 => "STATUS_CODE_OK",
        2 => "STATUS_CODE_ERROR",
        _ => "STATUS_CODE_UNSET",
    }
}

/// The status in the word of filters.
pub(crate) fn status_word(span: &Span) -> &'static str {
    match span.status.as_ref().map_or(0, |status| status.code) {
        1 => "OK",
        2 => "ERROR",
        _ => "UNSET",
    }
}

/// In protobuf's JSON. Fields that are not set are absent.
fn message(span: &Span) -> Value {
    let mut all = Map::new();
    let mut set = |key: &str, value: Value| drop(all.insert(key.to_owned(), value));
    set("trace_id", STANDARD.encode(&span.trace_id).into());
    set("span_id", STANDARD.encode(&span.span_id).into());
    if !span.parent_span_id.is_empty() {
        set("parent_span_id", STANDARD.encode(&span.parent_span_id).into());
    }
    if !span.name.is_empty() {
        set("name", span.name.as_str().into());
    }
    for (key, time) in [
        ("start_time_unix_nano", span.start_time_unix_nano),
        ("end_time_unix_nano", span.end_time_unix_nano),
    ] {
        if time > 0 {
            set(key, time.into());
        }
    }
    for (key, list) in [
        ("attributes", typed_pairs(&span.attributes)),
        ("events", span.events.iter().map(event).collect()),
        ("links", span.links.iter().map(link).collect()),
    ] {
        if !list.is_empty() {
            set(key, list.into());
        }
    }
    let status = span.status.clone().unwrap_or_default();
    let mut said = Map::new();
    if !status.message.is_empty() {
        said.insert("message".to_owned(), status.message.into());
    }
    if (1..=2).contains(&status.code) {
        said.insert("code".to_owned(), status_name(status.code).into());
    }
    set("status", said.into());
    Value::Object(all)
}

/// The same as text.
pub(crate) fn message_text(span: &Span) -> String {
    message(span).to_string()
}

fn event(event: &Event) -> Value {
    let mut all = json!({ "time_unix_nano": event.time_unix_nano, "name": event.name });
    if !event.attributes.is_empty() {
        all["attributes"] = typed_pairs(&event.attributes).into();
    }
    all
}

fn link(link: &Link) -> Value {
    let mut all = json!({
        "trace_id": STANDARD.encode(&link.trace_id),
        "span_id": STANDARD.encode(&link.span_id),
    });
    if !link.attributes.is_empty() {
        all["attributes"] = typed_pairs(&link.attributes).into();
    }
    all
}

/// As MLflow keeps it, in Python's manner of JSON: this is what text filters look at.
pub(crate) fn content(span: &Span) -> String {
    let mut out = String::with_capacity(256);
    let text = |out: &mut String, key: &str, value: &str| {
        out.push_str(key);
        quote(out, value);
    };
    text(&mut out, "{\"trace_id\": ", &STANDARD.encode(&span.trace_id));
    text(&mut out, ", \"span_id\": ", &STANDARD.encode(&span.span_id));
    if span.parent_span_id.is_empty() {
        out.push_str(", \"parent_span_id\": null");
    } else {
        text(&mut out, ", \"parent_span_id\": ", &STANDARD.encode(&span.parent_span_id));
    }
    text(&mut out, ", \"name\": ", &span.name);
    let (start, end) = (span.start_time_unix_nano, span.end_time_unix_nano);
    let times = format!(", \"start_time_unix_nano\": {start}, \"end_time_unix_nano\": {end}");
    out.push_str(&times);
    out.push_str(", \"events\": [");
    for (at, event) in span.events.iter().enumerate() {
        text(&mut out, if at == 0 { "{\"name\": " } else { ", {\"name\": " }, &event.name);
        let time = format!(", \"time_unix_nano\": {}, \"attributes\": ", event.time_unix_nano);
        out.push_str(&time);
        write_map(&mut out, &event.attributes, |out, value| out.push_str(&dumped(value)));
        out.push('}');
    }
    let status = span.status.clone().unwrap_or_default();
    text(&mut out, "], \"status\": {\"code\": ", status_name(status.code));
    text(&mut out, ", \"message\": ", &status.message);
    // A value is kept as JSON inside the text.
    out.push_str("}, \"attributes\": ");
    write_map(&mut out, &span.attributes, |out, value| quote(out, &dumped(value)));
    out.push_str(", \"links\": [");
    for (at, link) in span.links.iter().enumerate() {
        let trace = TraceId::of_otel(&link.trace_id).map(|id| id.to_string()).unwrap_or_default();
        text(&mut out, if at == 0 { "{\"trace_id\": " } else { ", {\"trace_id\": " }, &trace);
        text(&mut out, ", \"span_id\": ", &hex(&link.span_id));
        out.push_str(", \"attributes\": ");
        write_map(&mut out, &link.attributes, |out, value| out.push_str(&dumped(value)));
        out.push('}');
    }
    out.push_str("]}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::message::{Any, Status};

    fn span() -> Span {
        Span {
            trace_id: vec![1; 16],
            span_id: vec![2; 8],
            name: "a \"b\"".into(),
            start_time_unix_nano: 5,
            end_time_unix_nano: 7,
            attributes: vec![KeyValue::text("s", "x"), KeyValue::any("n", Any::Int(3))],
            events: vec![Event { time_unix_nano: 6, name: "e".into(), ..Event::default() }],
            links: vec![Link { trace_id: vec![3; 16], span_id: vec![4; 8], ..Link::default() }],
            status: Some(Status { code: 1, message: String::new() }),
            ..Span::default()
        }
    }

    #[test]
    fn the_content_is_json_and_holds_every_value_as_text() {
        let read: Value = serde_json::from_str(&content(&span())).unwrap();
        assert_eq!(read["name"], "a \"b\"");
        assert_eq!(read["parent_span_id"], Value::Null);
        assert_eq!(read["attributes"], json!({"s": "\"x\"", "n": "3"}));
        assert_eq!(read["status"], json!({"code": "STATUS_CODE_OK", "message": ""}));
        assert_eq!(read["links"][0]["trace_id"], format!("tr-{}", "03".repeat(16)));
        assert!(content(&span()).contains("\"s\": \"\\\"x\\\"\""));
    }

    #[test]
    fn the_message_is_protobufs_json() {
        let read = message(&named(span(), &TraceId::of_otel(&[1; 16]).unwrap()));
        assert_eq!(read["attributes"][0], json!({"key": "s", "value": {"string_value": "x"}}));
        assert_eq!(read["attributes"][2]["key"], REQUEST_ID);
        assert_eq!((&read["start_time_unix_nano"], read.get("parent_span_id")), (&json!(5), None));
    }
}
