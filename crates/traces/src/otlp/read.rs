//! From the body of a request to spans that can be stored: each within its limits, each with an id
//! of its own and of its trace. A span that is not is left out and counted, as the protocol has it;
//! a body that cannot be read at all is refused.

use std::sync::Arc;

use bytes::Bytes;
use falaj_base::{Error, Result, code};
use falaj_mlflow::error::refused;
use prost::Message;

use super::fact::Facts;
use super::message::{self, KeyValue, Span};
use super::value::compared;
use super::walk::{self, Malformed};
use super::{convention, json};
use crate::trace::TraceId;

/// What a request may bring.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub spans: usize,
    pub span_size: usize,
    pub span_parts: usize,
}

/// One span, ready to be stored.
#[derive(Clone, Debug)]
pub struct Received {
    pub trace: TraceId,
    pub id: Vec<u8>,
    pub parent: Option<Vec<u8>>,
    /// When it began and ended, in nanoseconds.
    pub start: u64,
    pub end: Option<u64>,
    /// Its message.
    pub content: Bytes,
    pub facts: Facts,
    /// Who sent it, such as `service.name`.
    pub resource: Arc<[(String, String)]>,
}

/// The spans of one request.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub spans: Vec<Received>,
    /// How many were left out, and why the first of them was.
    pub rejected: usize,
    pub why: Option<String>,
}

impl Batch {
    pub fn reject(&mut self, why: impl FnOnce() -> String) {
        self.rejected += 1;
        self.why.get_or_insert_with(why);
    }

    fn take(&mut self, span: Result<Received, String>, limits: &Limits) -> Result<()> {
        if self.spans.len() + self.rejected >= limits.spans {
            let text = format!(
                "the request has more than {} spans (`traces.max_batch_spans`)",
                limits.spans
            );
            return Err(Error::new(&code::TOO_LARGE, text));
        }
        match span {
            Ok(span) => self.spans.push(span),
            Err(why) => self.reject(|| why),
        }
        Ok(())
    }
}

const INVALID: &str = "Invalid OpenTelemetry format";

/// Reads an `ExportTraceServiceRequest`.
pub fn from_protobuf(body: &Bytes, limits: &Limits) -> Result<Batch> {
    let malformed = |_: Malformed| refused(INVALID);
    let mut batch = Batch::default();
    let mut any = false;
    for resource_spans in pieces(body, 1).map_err(malformed)? {
        any = true;
        let resource = resource(resource_spans, limits)?;
        for scope_spans in pieces(resource_spans, 2).map_err(malformed)? {
            for span in pieces(scope_spans, 2).map_err(malformed)? {
                batch.take(from_message(body.slice_ref(span), &resource, limits), limits)?;
            }
        }
    }
    checked(any, batch)
}

/// Reads the same as JSON, in the protocol's own manner: ids are hexadecimal.
pub fn from_json(body: &[u8], limits: &Limits) -> Result<Batch> {
    let request: json::Request<'_> =
        serde_json::from_slice(body).map_err(|cause| refused(format!("{INVALID}: {cause}")))?;
    let mut batch = Batch::default();
    let any = !request.resource_spans.is_empty();
    for group in request.resource_spans {
        let resource = group.resource.map(|text| json::attributes(text.get(), limits)).transpose();
        let resource =
            resource.map_err(|cause| refused(format!("{INVALID}: resource: {cause}")))?;
        let resource = tags_of(&resource.unwrap_or_default());
        for span in group.scope_spans.iter().flat_map(|scope| &scope.spans) {
            let read = json::span(span.get(), limits).and_then(|span| {
                let content = Bytes::from(span.encode_to_vec());
                if content.len() > limits.span_size {
                    return Err(too_large(content.len(), limits));
                }
                received(span, content, &resource)
            });
            batch.take(read, limits)?;
        }
    }
    checked(any, batch)
}

fn checked(any: bool, batch: Batch) -> Result<Batch> {
    if any { Ok(batch) } else { Err(refused(format!("{INVALID} - no spans found"))) }
}

fn pieces(message: &[u8], number: u64) -> Result<Vec<&[u8]>, Malformed> {
    let mut all = Vec::new();
    walk::each(message, number, |piece| {
        all.push(piece);
        Ok(())
    })?;
    Ok(all)
}

fn resource(resource_spans: &[u8], limits: &Limits) -> Result<Arc<[(String, String)]>> {
    let Some(bytes) = pieces(resource_spans, 1).map_err(|_| refused(INVALID))?.pop() else {
        return Ok(Arc::default());
    };
    let parts = walk::parts_of_resource(bytes, limits.span_parts).map_err(|_| refused(INVALID))?;
    if parts > limits.span_parts {
        let text = format!(
            "a resource has more than {} attributes and values (`traces.max_span_parts`)",
            limits.span_parts
        );
        return Err(Error::new(&code::TOO_LARGE, text));
    }
    let resource = message::Resource::decode(bytes).map_err(|_| refused(INVALID))?;
    Ok(tags_of(&resource.attributes))
}

/// What of a resource becomes tags of a trace: all but what speaks of the SDK, and what MLflow
/// keeps to itself.
fn tags_of(attributes: &[KeyValue]) -> Arc<[(String, String)]> {
    let ours = |pair: &&KeyValue| {
        !pair.key.starts_with("telemetry.sdk.") && !pair.key.starts_with("mlflow.")
    };
    let tag = |pair: &KeyValue| Some((pair.key.clone(), compared(pair.value()?)));
    attributes.iter().filter(ours).filter_map(tag).collect()
}

fn from_message(
    content: Bytes,
    resource: &Arc<[(String, String)]>,
    limits: &Limits,
) -> Result<Received, String> {
    if content.len() > limits.span_size {
        return Err(too_large(content.len(), limits));
    }
    let parts = walk::parts_of_span(&content, limits.span_parts)
        .map_err(|_| "it is not a protobuf message".to_owned())?;
    if parts > limits.span_parts {
        return Err(format!(
            "it has more than {} attributes, events, links and values (`traces.max_span_parts`)",
            limits.span_parts
        ));
    }
    let span = Span::decode(content.as_ref()).map_err(|cause| cause.to_string())?;
    received(span, content, resource)
}

fn too_large(size: usize, limits: &Limits) -> String {
    format!(
        "it has {size} bytes; at most {} are allowed (`traces.max_span_size`)",
        limits.span_size
    )
}

fn received(
    mut span: Span,
    content: Bytes,
    resource: &Arc<[(String, String)]>,
) -> Result<Received, String> {
    let trace = TraceId::of_otel(&span.trace_id).ok_or("trace_id is required: 16 bytes")?;
    if span.span_id.len() != 8 {
        return Err("span_id is required: 8 bytes".to_owned());
    }
    let parent = Some(std::mem::take(&mut span.parent_span_id))
        .filter(|parent| parent.iter().any(|byte| *byte != 0));
    if parent.as_ref().is_some_and(|parent| parent.len() != 8) {
        return Err("parent_span_id must have 8 bytes".to_owned());
    }
    let told = parent.is_none() && tell_service(&mut span, resource);
    let content = if convention::translate(&mut span.attributes, &span.events) || told {
        span.parent_span_id = parent.clone().unwrap_or_default();
        Bytes::from(span.encode_to_vec())
    } else {
        content
    };
    Ok(Received {
        facts: Facts::of(&span, parent.is_none()),
        trace,
        start: span.start_time_unix_nano,
        end: Some(span.end_time_unix_nano).filter(|end| *end > 0),
        id: span.span_id,
        parent,
        content,
        resource: resource.clone(),
    })
}

const SERVICE: &str = "service.name";

/// Coding agents, which clients show by name. What else calls itself something is a tag only.
const KNOWN_SERVICES: [&str; 5] =
    ["claude-code", "codex_cli_rs", "codex_vscode", "gemini-cli", "qwen-code"];

/// Says on the first span who made the trace, as MLflow does; tells whether it did.
fn tell_service(span: &mut Span, resource: &[(String, String)]) -> bool {
    let named = resource.iter().find(|(key, _)| key == SERVICE);
    let Some((_, name)) = named.filter(|(_, name)| KNOWN_SERVICES.contains(&name.as_str())) else {
        return false;
    };
    span.attributes.retain(|pair| pair.key != SERVICE);
    span.attributes.push(KeyValue::text(SERVICE, name.as_str()));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { spans: 4, span_size: 200, span_parts: 5 };

    fn span(id: u8) -> Span {
        Span {
            trace_id: vec![7; 16],
            span_id: vec![0, 0, 0, 0, 0, 0, 0, id],
            name: "work".into(),
            start_time_unix_nano: 5,
            end_time_unix_nano: 9,
            ..Span::default()
        }
    }

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        prost::encoding::encode_varint(content.len() as u64, &mut out);
        out.extend_from_slice(content);
        out
    }

    fn request(spans: &[Span]) -> Bytes {
        let spans: Vec<u8> =
            spans.iter().flat_map(|span| field(2, &span.encode_to_vec())).collect();
        let resource =
            message::Resource { attributes: vec![KeyValue::text("service.name", "shop")] };
        let mut group = field(1, &resource.encode_to_vec());
        group.extend(field(2, &spans));
        field(1, &group).into()
    }

    #[test]
    fn spans_are_found_with_their_resource() {
        let batch = from_protobuf(&request(&[span(1), span(2)]), &LIMITS).unwrap();
        assert_eq!((batch.spans.len(), batch.rejected), (2, 0));
        let first = &batch.spans[0];
        assert_eq!(first.trace.as_str(), "tr-07070707070707070707070707070707");
        assert_eq!((first.start, first.end, first.parent.clone()), (5, Some(9), None));
        assert_eq!(first.resource.as_ref(), [("service.name".to_owned(), "shop".to_owned())]);
    }

    #[test]
    fn the_first_span_says_which_agent_it_was() {
        let child = Span { parent_span_id: vec![1; 8], ..span(2) };
        for (service, told) in [("gemini-cli", true), ("shop", false)] {
            let resource: Arc<[(String, String)]> =
                [(SERVICE.to_owned(), service.to_owned())].into();
            for (given, told) in [(span(1), told), (child.clone(), false)] {
                let content = Bytes::from(given.encode_to_vec());
                let read = from_message(content.clone(), &resource, &LIMITS).unwrap();
                let kept = Span::decode(read.content.as_ref()).unwrap();
                let said = message::attribute(&kept.attributes, SERVICE);
                assert_eq!(said, told.then(|| message::Any::Text(service.into())).as_ref());
                assert_eq!(kept.parent_span_id, given.parent_span_id);
                assert!(told || read.content == content, "it is kept as it came");
            }
        }
    }

    #[test]
    fn one_bad_span_does_not_spoil_the_others() {
        let nameless = Span { span_id: Vec::new(), ..span(2) };
        let long = Span { name: "x".repeat(300), ..span(3) };
        let crowded = Span { attributes: vec![KeyValue::text("a", "b"); 6], ..span(4) };
        for (bad, why) in
            [(nameless, "span_id"), (long, "max_span_size"), (crowded, "max_span_parts")]
        {
            let batch = from_protobuf(&request(&[span(1), bad.clone()]), &LIMITS).unwrap();
            assert_eq!((batch.spans.len(), batch.rejected), (1, 1));
            assert!(batch.why.unwrap().contains(why));
            assert!(from_protobuf(&request(&[bad]), &LIMITS).unwrap().spans.is_empty());
        }
    }

    #[test]
    fn too_many_spans_and_no_spans_are_refused() {
        let many: Vec<Span> = (1..=5).map(span).collect();
        let error = from_protobuf(&request(&many), &LIMITS).unwrap_err();
        assert_eq!(error.code(), &code::TOO_LARGE);
        for bad in [&b""[..], &[0xff, 0xff, 0xff], &[0x0a, 0x7f]] {
            assert!(from_protobuf(&Bytes::copy_from_slice(bad), &LIMITS).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn json_says_the_same() {
        let text = r#"{"resourceSpans": [{
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
            "scopeSpans": [{"scope": {}, "spans": [{
                "traceId": "07070707070707070707070707070707", "spanId": "0000000000000001",
                "name": "work", "kind": 1, "startTimeUnixNano": "5", "endTimeUnixNano": 9,
                "attributes": [{"key": "n", "value": {"intValue": "3"}}],
                "status": {"code": 2, "message": "no"}, "droppedLinksCount": 0, "new": []}]}]}]}"#;
        let batch = from_json(text.as_bytes(), &LIMITS).unwrap();
        let read = Span::decode(batch.spans[0].content.as_ref()).unwrap();
        assert_eq!((read.name.as_str(), read.end_time_unix_nano), ("work", 9));
        assert_eq!(read.status.unwrap().code, 2);
        assert_eq!(batch.spans[0].resource[0].1, "shop");
        for bad in ["", "[]", "{}", r#"{"resourceSpans": 1}"#, r#"{"resourceSpans": []}"#] {
            assert!(from_json(bad.as_bytes(), &LIMITS).is_err(), "{bad}");
        }
        let short = text.replace("0000000000000001", "01");
        let why = from_json(short.as_bytes(), &LIMITS).unwrap().why.unwrap();
        assert!(why.contains("span_id"), "{why}");
    }
}
