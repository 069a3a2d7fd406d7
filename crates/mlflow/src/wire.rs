//! Reading what MLflow's clients send: JSON in protobuf's manner, or the same fields as a query.
//!
//! Whole numbers may come as text, lists as one value, doubles as `"NaN"`; unknown fields are
//! passed over, because newer clients send some. What the original quietly drops or guesses (text
//! that is not JSON, a fraction where a whole number belongs) is refused here: silence loses data.
//!
//! Fields are read by the functions below, through `#[serde(default, deserialize_with = "…")]`.

use std::fmt;
use std::marker::PhantomData;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use falaj_base::{Error, Result, code};
use http::{HeaderMap, Method, header};
use serde::Deserialize;
use serde::de::{self, DeserializeOwned, Deserializer, SeqAccess, Unexpected, Visitor};
use serde_json::{Map, Value};

use crate::error;

/// The fields of a request: the query of a GET, the JSON body of anything else.
pub async fn read<T: DeserializeOwned>(request: Request) -> Result<T> {
    if request.method() == Method::GET {
        return from_query(request.uri().query().unwrap_or(""));
    }
    let json = says_json(request.headers());
    let bytes = Bytes::from_request(request, &()).await.map_err(|rejection| {
        Error::new(&code::TOO_LARGE, "the body is larger than this route accepts")
            .caused_by(rejection)
    })?;
    from_body(json, &bytes)
}

/// The fields of a request whose body has come.
pub(crate) fn given<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8]) -> Result<T> {
    from_body(says_json(headers), body)
}

fn says_json(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json"))
}

fn from_body<T: DeserializeOwned>(json: bool, bytes: &[u8]) -> Result<T> {
    if bytes.is_empty() {
        return from_json(b"{}");
    }
    if !json {
        let text = "Bad Request. Content-Type must be application/json.";
        return Err(Error::new(&code::INVALID_INPUT, text));
    }
    from_json(bytes)
}

/// An object. A list would be taken for its fields in their order, and text that is not UTF-8 would
/// pass in a field that nobody reads.
pub fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let Ok(body) = std::str::from_utf8(bytes) else {
        let text = "The request body is not valid JSON: it is not UTF-8";
        return Err(Error::new(&code::INVALID_INPUT, text));
    };
    if bytes.trim_ascii_start().starts_with(b"[") {
        let text = "The request body is a list, where an object is expected";
        return Err(Error::new(&code::INVALID_INPUT, text));
    }
    let mut json = serde_json::Deserializer::from_str(body);
    let value = serde_path_to_error::deserialize(&mut json)
        .map_err(|failed| explain(&failed, || serde_json::from_str(body).ok()))?;
    json.end().map_err(|cause| not_json(&cause))?;
    Ok(value)
}

/// A parameter that is repeated is a list.
pub fn from_query<T: DeserializeOwned>(query: &str) -> Result<T> {
    let mut fields: Map<String, Value> = Map::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let value = Value::String(value.into_owned());
        match fields.get_mut(name.as_ref()) {
            None => drop(fields.insert(name.into_owned(), value)),
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
        }
    }
    let fields = Value::Object(fields);
    serde_path_to_error::deserialize(&fields)
        .map_err(|failed| explain(&failed, || Some(fields.clone())))
}

fn not_json(cause: &serde_json::Error) -> Error {
    Error::new(&code::INVALID_INPUT, format!("The request body is not valid JSON: {cause}"))
}

/// Says which field is at fault and repeats its value, as the original does. The value is looked
/// up only now, when something is wrong.
fn explain(
    failed: &serde_path_to_error::Error<serde_json::Error>,
    whole: impl FnOnce() -> Option<Value>,
) -> Error {
    let cause = failed.inner();
    let Some(whole) = whole().filter(|_| cause.is_data()) else { return not_json(cause) };
    let mut at = &whole;
    for segment in failed.path() {
        let next = match segment {
            serde_path_to_error::Segment::Seq { index } => at.get(index),
            serde_path_to_error::Segment::Map { key } => at.get(key),
            _ => None,
        };
        at = next.unwrap_or(at);
    }
    error::invalid(&failed.path().to_string(), at, &cause.to_string())
}

macro_rules! visitors {
    ($($(#[$doc:meta])* $function:ident -> $type:ty = $visitor:ident;)*) => {$(
        $(#[$doc])*
        pub fn $function<'de, D: Deserializer<'de>>(from: D) -> Result<Option<$type>, D::Error> {
            from.deserialize_any($visitor)
        }
    )*};
}

visitors! {
    /// A whole number, or text that holds one.
    int -> i64 = IntVisitor;
    /// A number, a flag, or `"NaN"`, `"Infinity"`, `"-Infinity"`.
    double -> f64 = DoubleVisitor;
    /// `true`, `false`, also as text.
    flag -> bool = FlagVisitor;
}

struct IntVisitor;

impl Visitor<'_> for IntVisitor {
    type Value = Option<i64>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }
    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Some(value))
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        let fits = i64::try_from(value);
        fits.map(Some).map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
        // 1e3 and 5.0 are whole numbers in JSON; 5.7 is not. Beyond 2^53 a double cannot tell.
        #[allow(clippy::cast_possible_truncation, reason = "whole and within 2^53")]
        if value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0 {
            Ok(Some(value as i64))
        } else {
            Err(E::invalid_value(Unexpected::Float(value), &self))
        }
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        text.parse().map(Some).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

struct DoubleVisitor;

impl Visitor<'_> for DoubleVisitor {
    type Value = Option<f64>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, \"NaN\", \"Infinity\" or \"-Infinity\"")
    }
    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Some(f64::from(u8::from(value))))
    }
    #[allow(clippy::cast_precision_loss, reason = "as every JSON reader does")]
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Some(value as f64))
    }
    #[allow(clippy::cast_precision_loss, reason = "as every JSON reader does")]
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Some(value as f64))
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Some(value))
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        match text {
            "NaN" => Ok(Some(f64::NAN)),
            "Infinity" => Ok(Some(f64::INFINITY)),
            "-Infinity" => Ok(Some(f64::NEG_INFINITY)),
            // `inf` and `nan` are numbers to Rust's parser, but not to JSON.
            _ if text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b)) => {
                text.parse().map(Some).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
            }
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}

struct FlagVisitor;

impl Visitor<'_> for FlagVisitor {
    type Value = Option<bool>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true or false")
    }
    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Some(value))
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        match text {
            "true" => Ok(Some(true)),
            "false" => Ok(Some(false)),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}

/// A list; one value alone is a list of one, as a query writes it.
pub fn list<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    from.deserialize_any(ListVisitor(PhantomData))
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = Vec<T>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }
    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        T::deserialize(de::value::StrDeserializer::new(text)).map(|one| vec![one])
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::with_capacity(items.size_hint().unwrap_or(0).min(1024));
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(all)
    }
}

/// A double as the original prints it.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
pub fn print_double<S: serde::Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
    if value.is_nan() {
        to.serialize_str("NaN")
    } else if value.is_infinite() {
        to.serialize_str(if *value > 0.0 { "Infinity" } else { "-Infinity" })
    } else {
        to.serialize_f64(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Metric {
        key: Option<String>,
        #[serde(deserialize_with = "double")]
        value: Option<f64>,
        #[serde(deserialize_with = "int", alias = "theStep")]
        step: Option<i64>,
        #[serde(deserialize_with = "flag")]
        deep: Option<bool>,
        #[serde(deserialize_with = "list")]
        runs: Vec<String>,
    }

    #[test]
    fn only_an_object_in_utf_8_is_read() {
        for bad in [&b"[]"[..], b" [\"k\"]", b"{\"unknown\": \"\xff\"}", b"null", b"{} {}"] {
            assert!(from_json::<Metric>(bad).is_err(), "{bad:?}");
        }
        assert_eq!(from_json::<Metric>(b" {} ").unwrap(), Metric::default());
    }

    #[test]
    fn protobufs_manner_is_understood() {
        let read = |text: &str| from_json::<Metric>(text.as_bytes());
        for text in [
            r#"{"step":7}"#,
            r#"{"step":"7"}"#,
            r#"{"step":7.0,"unknown":[1]}"#,
            r#"{"theStep":7}"#,
            r#"{"step":7,"value":null}"#,
        ] {
            assert_eq!(read(text).unwrap().step, Some(7), "{text}");
        }
        for (text, value) in
            [("1", 1.0), ("true", 1.0), ("\"2.5\"", 2.5), ("\"-Infinity\"", f64::NEG_INFINITY)]
        {
            assert_eq!(read(&format!("{{\"value\":{text}}}")).unwrap().value, Some(value));
        }
        assert!(read(r#"{"value":"NaN"}"#).unwrap().value.unwrap().is_nan());
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_name_and_value() {
        let refused = |text: &str| from_json::<Metric>(text.as_bytes()).unwrap_err().to_string();
        assert!(refused(r#"{"step":5.7}"#).starts_with("Invalid value 5.7 for parameter 'step'"));
        assert!(refused(r#"{"value":"inf"}"#).contains("Invalid value \"inf\" for parameter"));
        assert!(refused(r#"{"step":1,"theStep":2}"#).contains("duplicate field"));
        assert!(refused("{").starts_with("The request body is not valid JSON"));
        assert!(refused("{} x").starts_with("The request body is not valid JSON"));
    }

    #[test]
    fn a_query_is_the_same_fields() {
        let read: Metric = from_query("key=a%20b&step=-3&deep=true&runs=x&runs=y").unwrap();
        assert_eq!(read.key.as_deref(), Some("a b"));
        assert_eq!((read.step, read.deep), (Some(-3), Some(true)));
        assert_eq!(read.runs, ["x", "y"]);
        assert_eq!(from_query::<Metric>("runs=x").unwrap().runs, ["x"]);
        assert!(from_query::<Metric>("deep=TRUE").is_err());
    }
}
