//! The messages, written by hand so that nothing is generated while building; a test speaks to them
//! with what the stock compiler makes of the `.proto` file.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use falaj_online::{Value as Known, moment};
use prost::{Enumeration, Message, Oneof};
use serde_json::Value as Json;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Value {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub(crate) kind: Option<Kind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Kind {
    #[prost(bool, tag = "1")]
    Bool(bool),
    #[prost(int64, tag = "2")]
    Int(i64),
    #[prost(double, tag = "3")]
    Float(f64),
    #[prost(string, tag = "4")]
    Text(String),
    #[prost(bytes = "vec", tag = "5")]
    Bytes(Vec<u8>),
    #[prost(int64, tag = "6")]
    Time(i64),
    #[prost(message, tag = "7")]
    List(Values),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Values {
    #[prost(message, repeated, tag = "1")]
    pub(crate) values: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetOnlineFeaturesRequest {
    #[prost(string, repeated, tag = "1")]
    pub(crate) features: Vec<String>,
    #[prost(string, tag = "2")]
    pub(crate) service: String,
    #[prost(btree_map = "string, message", tag = "3")]
    pub(crate) entities: BTreeMap<String, Values>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum Status {
    Unspecified = 0,
    Present = 1,
    NullValue = 2,
    NotFound = 3,
    OutsideMaxAge = 4,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetOnlineFeaturesResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) features: Vec<Feature>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Feature {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) values: Vec<Value>,
    #[prost(enumeration = "Status", repeated, tag = "3")]
    pub(crate) statuses: Vec<i32>,
    #[prost(int64, repeated, tag = "4")]
    pub(crate) event_times: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PushRequest {
    #[prost(string, tag = "1")]
    pub(crate) view: String,
    #[prost(btree_map = "string, message", tag = "2")]
    pub(crate) columns: BTreeMap<String, Values>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PushResponse {
    #[prost(string, tag = "1")]
    pub(crate) view: String,
    #[prost(int64, tag = "2")]
    pub(crate) version: i64,
    #[prost(uint64, tag = "3")]
    pub(crate) rows: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) placed: u64,
}

impl Value {
    /// As requests in JSON have it.
    pub(super) fn into_json(self) -> Json {
        match self.kind {
            None => Json::Null,
            Some(Kind::Bool(value)) => value.into(),
            Some(Kind::Int(value)) => value.into(),
            Some(Kind::Float(value)) => float(value),
            Some(Kind::Text(value)) => value.into(),
            Some(Kind::Bytes(value)) => STANDARD.encode(value).into(),
            Some(Kind::Time(value)) => time(value),
            Some(Kind::List(values)) => values.into_json().into(),
        }
    }
}

impl Values {
    pub(super) fn into_json(self) -> Vec<Json> {
        self.values.into_iter().map(Value::into_json).collect()
    }
}

/// A number; what is none has a name in JSON's place.
pub(crate) fn float(value: f64) -> Json {
    if let Some(number) = serde_json::Number::from_f64(value) {
        return number.into();
    }
    match value {
        value if value.is_nan() => "NaN".into(),
        value if value > 0.0 => "Infinity".into(),
        _ => "-Infinity".into(),
    }
}

/// A moment by its microseconds; one that no year tells is refused where it is read.
pub(crate) fn time(micros: i64) -> Json {
    if !(moment::FIRST..=moment::LAST).contains(&micros) {
        return format!("{micros} microseconds").into();
    }
    let mut text = Vec::new();
    moment::write(&mut text, micros);
    String::from_utf8_lossy(&text).into_owned().into()
}

/// A day as text.
pub(crate) fn day(day: i32) -> String {
    let mut text = Vec::new();
    moment::write_day(&mut text, day);
    String::from_utf8_lossy(&text).into_owned()
}

impl From<Known> for Value {
    fn from(value: Known) -> Self {
        let kind = match value {
            Known::Null => None,
            Known::Bool(value) => Some(Kind::Bool(value)),
            Known::Int32(value) => Some(Kind::Int(value.into())),
            Known::Int64(value) => Some(Kind::Int(value)),
            Known::Float32(value) => Some(Kind::Float(value.into())),
            Known::Float64(value) => Some(Kind::Float(value)),
            Known::String(value) => Some(Kind::Text(value)),
            Known::Bytes(value) => Some(Kind::Bytes(value)),
            Known::Timestamp(value) => Some(Kind::Time(value)),
            Known::Date(value) => Some(Kind::Text(day(value))),
            Known::Decimal(value, of) => Some(Kind::Text(of.shown(value))),
            Known::List(items) => {
                Some(Kind::List(Values { values: items.into_iter().map(Self::from).collect() }))
            }
        };
        Self { kind }
    }
}
