//! The protocol's JSON: lower camel case, ids as hexadecimal, long numbers as text or not.

use falaj_mlflow::wire;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::value::RawValue;

use super::message::{
    Any, AnyValue, ArrayValue, Event, KeyValue, KeyValueList, Link, Span, Status,
};
use super::read::Limits;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Request<'a> {
    #[serde(borrow)]
    pub(super) resource_spans: Vec<ResourceSpans<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ResourceSpans<'a> {
    #[serde(borrow)]
    pub(super) resource: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) scope_spans: Vec<ScopeSpans<'a>>,
}

/// Spans are only pointed at here; each is read by itself, within its limits.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ScopeSpans<'a> {
    #[serde(borrow)]
    pub(super) spans: Vec<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resource {
    attributes: Vec<JsonPair>,
}

/// Reads what a resource says of itself, if it is small and simple enough.
pub(super) fn attributes(text: &str, limits: &Limits) -> Result<Vec<KeyValue>, String> {
    check_size(text, limits)?;
    let read = serde_json::from_str::<Resource>(text).map_err(|cause| cause.to_string())?;
    Ok(pairs(read.attributes))
}

/// Reads one span, if it is small and simple enough.
pub(super) fn span(text: &str, limits: &Limits) -> Result<Span, String> {
    check_size(text, limits)?;
    serde_json::from_str::<JsonSpan>(text).map(Span::from).map_err(|cause| cause.to_string())
}

fn check_size(text: &str, limits: &Limits) -> Result<(), String> {
    // Text may hold these too, hence the wide margin.
    let signs = text.bytes().filter(|byte| matches!(byte, b'{' | b'[' | b',')).count();
    if text.len() > limits.span_size.saturating_mul(2) || signs / 8 > limits.span_parts {
        return Err(format!(
            "it has {} bytes and {signs} parts; `traces.max_span_size` allows {} and \
             `traces.max_span_parts` {}",
            text.len(),
            limits.span_size,
            limits.span_parts
        ));
    }
    Ok(())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonSpan {
    #[serde(deserialize_with = "hex")]
    trace_id: Vec<u8>,
    #[serde(deserialize_with = "hex")]
    span_id: Vec<u8>,
    trace_state: String,
    #[serde(deserialize_with = "hex")]
    parent_span_id: Vec<u8>,
    name: String,
    #[serde(deserialize_with = "kind")]
    kind: i32,
    #[serde(deserialize_with = "nanos")]
    start_time_unix_nano: u64,
    #[serde(deserialize_with = "nanos")]
    end_time_unix_nano: u64,
    attributes: Vec<JsonPair>,
    events: Vec<JsonEvent>,
    links: Vec<JsonLink>,
    status: Option<JsonStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonEvent {
    #[serde(deserialize_with = "nanos")]
    time_unix_nano: u64,
    name: String,
    attributes: Vec<JsonPair>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonLink {
    #[serde(deserialize_with = "hex")]
    trace_id: Vec<u8>,
    #[serde(deserialize_with = "hex")]
    span_id: Vec<u8>,
    trace_state: String,
    attributes: Vec<JsonPair>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JsonStatus {
    message: String,
    #[serde(deserialize_with = "status_code")]
    code: i32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JsonPair {
    key: String,
    value: Option<JsonAny>,
}

/// At most one of these is given; none is a value that is not there.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(clippy::struct_field_names, reason = "the protocol's own names")]
struct JsonAny {
    string_value: Option<String>,
    bool_value: Option<bool>,
    #[serde(deserialize_with = "wire::int")]
    int_value: Option<i64>,
    #[serde(deserialize_with = "wire::double")]
    double_value: Option<f64>,
    array_value: Option<JsonList<JsonAny>>,
    kvlist_value: Option<JsonList<JsonPair>>,
    #[serde(deserialize_with = "base64")]
    bytes_value: Option<Vec<u8>>,
}

#[derive(Debug, Deserialize)]
#[serde(default)]
struct JsonList<T> {
    values: Vec<T>,
}

impl<T> Default for JsonList<T> {
    fn default() -> Self {
        Self { values: Vec::new() }
    }
}

impl From<JsonSpan> for Span {
    fn from(span: JsonSpan) -> Self {
        Self {
            trace_id: span.trace_id,
            span_id: span.span_id,
            trace_state: span.trace_state,
            parent_span_id: span.parent_span_id,
            name: span.name,
            kind: span.kind,
            start_time_unix_nano: span.start_time_unix_nano,
            end_time_unix_nano: span.end_time_unix_nano,
            attributes: pairs(span.attributes),
            events: span.events.into_iter().map(Event::from).collect(),
            links: span.links.into_iter().map(Link::from).collect(),
            status: span.status.map(|status| Status { message: status.message, code: status.code }),
            ..Self::default()
        }
    }
}

impl From<JsonEvent> for Event {
    fn from(event: JsonEvent) -> Self {
        Self {
            time_unix_nano: event.time_unix_nano,
            name: event.name,
            attributes: pairs(event.attributes),
            ..Self::default()
        }
    }
}

impl From<JsonLink> for Link {
    fn from(link: JsonLink) -> Self {
        Self {
            trace_id: link.trace_id,
            span_id: link.span_id,
            trace_state: link.trace_state,
            attributes: pairs(link.attributes),
            ..Self::default()
        }
    }
}

fn pairs(pairs: Vec<JsonPair>) -> Vec<KeyValue> {
    let pair = |pair: JsonPair| KeyValue { key: pair.key, value: pair.value.map(AnyValue::from) };
    pairs.into_iter().map(pair).collect()
}

impl From<JsonAny> for AnyValue {
    fn from(given: JsonAny) -> Self {
        let list = |list: JsonList<JsonAny>| {
            Any::List(ArrayValue { values: list.values.into_iter().map(Self::from).collect() })
        };
        let map = |list: JsonList<JsonPair>| Any::Map(KeyValueList { values: pairs(list.values) });
        let value = (given.string_value.map(Any::Text))
            .or(given.bool_value.map(Any::Flag))
            .or(given.int_value.map(Any::Int))
            .or(given.double_value.map(Any::Double))
            .or(given.array_value.map(list))
            .or(given.kvlist_value.map(map))
            .or(given.bytes_value.map(Any::Bytes));
        Self { value }
    }
}

fn hex<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    let digits: Option<Vec<u8>> = text
        .bytes()
        .map(|byte| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    match digits {
        Some(digits) if digits.len().is_multiple_of(2) => {
            Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
        }
        _ => Err(D::Error::custom("an id is written in hexadecimal digits")),
    }
}

fn base64<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u8>>, D::Error> {
    use base64::Engine as _;
    let text = Option::<String>::deserialize(from)?;
    let read = |text| base64::engine::general_purpose::STANDARD.decode(text);
    text.map(read).transpose().map_err(D::Error::custom)
}

fn nanos<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let number = wire::int(from)?.unwrap_or_default();
    u64::try_from(number).map_err(|_| D::Error::custom("a time is not negative"))
}

fn kind<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    const NAMES: &[&str] = &["UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"];
    named(from, "SPAN_KIND_", NAMES)
}

fn status_code<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    named(from, "STATUS_CODE_", &["UNSET", "OK", "ERROR"])
}

/// An enum by its number, or by its name, which some senders write.
fn named<'de, D: Deserializer<'de>>(
    from: D,
    prefix: &str,
    names: &[&str],
) -> Result<i32, D::Error> {
    let unknown = || D::Error::custom(format!("unknown value; allowed: {prefix}{names:?}"));
    match serde_json::Value::deserialize(from)? {
        serde_json::Value::String(text) => {
            let name = text.strip_prefix(prefix).ok_or_else(unknown)?;
            let at = names.iter().position(|known| *known == name).ok_or_else(unknown)?;
            i32::try_from(at).map_err(|_| unknown())
        }
        serde_json::Value::Number(number) => {
            number.as_i64().and_then(|number| i32::try_from(number).ok()).ok_or_else(unknown)
        }
        serde_json::Value::Null => Ok(0),
        _ => Err(unknown()),
    }
}
