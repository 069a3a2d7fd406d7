//! What a feature or a key can be: its kind, its values, and how both are written.
//!
//! JSON is as Feast has it: what is no number is a string (`"NaN"`, `"Infinity"`, `"-Infinity"`),
//! decimals and days are strings, bytes are base64, moments RFC 3339 or, where Feast's clients read them, whole [`Moments`]. Reading
//! is strict about what a value is and lenient about how pandas wrote it: a whole number may come as
//! `3.0`.
//!
//! Must hold: what is written is read back as the same value, bit for bit (all NaN are one).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use falaj_base::{Error, Result};
use serde_json::Value as Json;

use crate::decimal::Decimal;
use crate::moment;

/// What a single value can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scalar {
    Bool,
    Int32,
    Int64,
    Float32,
    Float64,
    String,
    Bytes,
    /// Microseconds since 1970, UTC.
    Timestamp,
    /// Days since 1970.
    Date,
    /// An exact number.
    Decimal(Decimal),
}

/// What a feature can be: a single value or a list of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    One(Scalar),
    List(Scalar),
}

/// How moments are written in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moments {
    /// RFC 3339, to the microsecond.
    Text,
    /// Whole seconds since 1970, which is all that Feast's clients can read.
    Seconds,
}

/// A value of some kind, or none.
#[derive(Clone, Debug)]
pub enum Value {
    Null,
    Bool(bool),
    Int32(i32),
    Int64(i64),
    Float32(f32),
    Float64(f64),
    String(String),
    Bytes(Vec<u8>),
    Timestamp(i64),
    Date(i32),
    /// So many of the smallest steps of such decimals.
    Decimal(i128, Decimal),
    /// Values of one kind, none of them null nor a list.
    List(Vec<Value>),
}

/// The kinds and their names; decimals have one for each count of digits.
const NAMES: [(Scalar, &str); 9] = [
    (Scalar::Bool, "bool"),
    (Scalar::Int32, "int32"),
    (Scalar::Int64, "int64"),
    (Scalar::Float32, "float32"),
    (Scalar::Float64, "float64"),
    (Scalar::String, "string"),
    (Scalar::Bytes, "bytes"),
    (Scalar::Timestamp, "timestamp"),
    (Scalar::Date, "date"),
];
const ALLOWED: &str = "bool, int32, int64, float32, float64, string, bytes, timestamp, date, \
                       decimal(PRECISION,SCALE) of up to 38 digits, or a list of one of them like \
                       list<int64>; not structs, maps or lists of lists";
/// Decimals of so many digits are told apart by floats.
const SURE_DIGITS: u32 = 15;
/// From here on a float may stand for its neighbour: a whole number must then be written as one.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl Scalar {
    /// All but decimals, of which there are many.
    pub const ALL: [Self; 9] = [
        Self::Bool,
        Self::Int32,
        Self::Int64,
        Self::Float32,
        Self::Float64,
        Self::String,
        Self::Bytes,
        Self::Timestamp,
        Self::Date,
    ];

    /// Whether a key may be of it: equal means the same for all of its values.
    #[must_use]
    pub fn is_key(self) -> bool {
        !matches!(self, Self::Float32 | Self::Float64 | Self::Date | Self::Decimal(_))
    }

    fn of(name: &str) -> Option<Self> {
        let plain = NAMES.iter().find(|(_, known)| *known == name).map(|(scalar, _)| *scalar);
        plain.or_else(|| Decimal::named(name).map(Self::Decimal))
    }

    fn allowed(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Bool => "true or false (bool)",
            Self::Int32 => "a whole number from -2147483648 to 2147483647 (int32)",
            Self::Int64 => {
                "a whole number from -9223372036854775808 to 9223372036854775807 (int64)"
            }
            Self::Float32 => {
                "a number up to 3.4028235e38, \"NaN\", \"Infinity\" or \"-Infinity\" (float32)"
            }
            Self::Float64 => "a number, \"NaN\", \"Infinity\" or \"-Infinity\" (float64)",
            Self::String => "a string (string)",
            Self::Bytes => "a string of base64 (bytes)",
            Self::Timestamp => {
                "a time like \"2026-01-31T09:00:00Z\", or whole seconds since 1970 (timestamp)"
            }
            Self::Date => "a day like \"2026-01-31\" (date)",
            Self::Decimal(of) => {
                let (digits, behind) = (of.precision(), of.scale());
                let text = format!(
                    "a number of up to {digits} digits, {behind} of them behind the point, as text \
                     like \"{}\" if that makes more than {SURE_DIGITS} in all ({of})",
                    of.shown(15)
                );
                return Cow::Owned(text);
            }
        })
    }

    fn read(self, json: &Json) -> Option<Value> {
        Some(match self {
            Self::Bool => Value::Bool(json.as_bool()?),
            Self::Int32 => Value::Int32(whole(json)?.try_into().ok()?),
            Self::Int64 => Value::Int64(whole(json)?),
            Self::Float32 => Value::Float32(narrow(number(json)?)?),
            Self::Float64 => Value::Float64(number(json)?),
            Self::String => Value::String(json.as_str()?.to_owned()),
            Self::Bytes => Value::Bytes(STANDARD.decode(json.as_str()?).ok()?),
            Self::Timestamp => Value::Timestamp(match json {
                Json::String(text) => moment::read(text)?,
                _ => moment::of_seconds(whole(json)?)?,
            }),
            Self::Date => Value::Date(moment::read_day(json.as_str()?)?),
            Self::Decimal(of) => Value::Decimal(steps(json, of)?, of),
        })
    }
}

/// A decimal as text, or as a number of JSON. Those with a point are floats, which tell decimals of so
/// many digits apart and no more: one that could stand for another must be written as text.
fn steps(json: &Json, of: Decimal) -> Option<i128> {
    match json {
        Json::String(text) => of.read(text),
        Json::Number(number) => {
            let exact = number.is_i64() || number.is_u64();
            let steps = of.read(&number.to_string())?;
            (exact || steps.unsigned_abs() < 10_u128.pow(SURE_DIGITS)).then_some(steps)
        }
        _ => None,
    }
}

fn whole(json: &Json) -> Option<i64> {
    if let Some(number) = json.as_i64() {
        return Some(number);
    }
    let number = json.as_f64()?;
    #[allow(clippy::cast_possible_truncation, reason = "whole and under 2^53")]
    (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i64)
}

fn number(json: &Json) -> Option<f64> {
    match json {
        Json::String(word) => match word.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => json.as_f64(),
    }
}

/// The nearest float of four bytes; none if a finite number would become infinite.
#[allow(clippy::cast_possible_truncation, reason = "a float of four bytes is wanted")]
fn narrow(number: f64) -> Option<f32> {
    let narrow = number as f32;
    (narrow.is_finite() || !number.is_finite()).then_some(narrow)
}

impl Kind {
    #[must_use]
    pub fn scalar(self) -> Scalar {
        match self {
            Self::One(scalar) | Self::List(scalar) => scalar,
        }
    }

    /// Reads a value of this kind; `field` names what is read, for the refusal.
    pub fn read(self, json: &Json, field: impl Fn() -> String) -> Result<Value> {
        if json.is_null() {
            return Ok(Value::Null);
        }
        match self {
            Self::One(scalar) => {
                scalar.read(json).ok_or_else(|| Error::invalid(field(), json, scalar.allowed()))
            }
            Self::List(scalar) => {
                let Json::Array(items) = json else {
                    let allowed = format!("a list, each of it {}", scalar.allowed());
                    return Err(Error::invalid(field(), json, allowed));
                };
                let one = |(place, item): (usize, &Json)| {
                    let field = || format!("{}[{place}]", field());
                    scalar.read(item).ok_or_else(|| Error::invalid(field(), item, scalar.allowed()))
                };
                items.iter().enumerate().map(one).collect::<Result<_>>().map(Value::List)
            }
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, NAMES.iter().find(|(scalar, _)| scalar == self)) {
            (Self::Decimal(of), _) => of.fmt(f),
            (_, Some((_, name))) => f.write_str(name),
            (_, None) => Err(fmt::Error),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(scalar) => scalar.fmt(f),
            Self::List(scalar) => write!(f, "list<{scalar}>"),
        }
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let list = text.strip_prefix("list<").and_then(|rest| rest.strip_suffix('>'));
        let kind = match list {
            Some(of) => Scalar::of(of).map(Self::List),
            None => Scalar::of(text).map(Self::One),
        };
        kind.ok_or_else(|| Error::invalid("type", text, ALLOWED))
    }
}

impl serde::Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Kind {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Kind {
    fn schema_name() -> Cow<'static, str> {
        "FeatureType".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let ones = Scalar::ALL.map(Kind::One);
        let lists = Scalar::ALL.map(Kind::List);
        let names: Vec<String> = ones.iter().chain(&lists).map(ToString::to_string).collect();
        let decimal =
            "^(decimal\\([0-9]{1,2}, ?[0-9]{1,2}\\)|list<decimal\\([0-9]{1,2}, ?[0-9]{1,2}\\)>)$";
        schemars::json_schema!({
            "type": "string",
            "anyOf": [{"enum": names}, {"pattern": decimal}],
        })
    }
}

impl Value {
    /// What it is; none for null and for a list of nothing.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        let scalar = match self {
            Self::Null => return None,
            Self::List(items) => return Some(Kind::List(items.first()?.kind()?.scalar())),
            Self::Bool(_) => Scalar::Bool,
            Self::Int32(_) => Scalar::Int32,
            Self::Int64(_) => Scalar::Int64,
            Self::Float32(_) => Scalar::Float32,
            Self::Float64(_) => Scalar::Float64,
            Self::String(_) => Scalar::String,
            Self::Bytes(_) => Scalar::Bytes,
            Self::Timestamp(_) => Scalar::Timestamp,
            Self::Date(_) => Scalar::Date,
            Self::Decimal(_, of) => Scalar::Decimal(*of),
        };
        Some(Kind::One(scalar))
    }

    /// Whether a field of this kind can hold it. Null can be held by every field.
    #[must_use]
    pub fn is(&self, kind: Kind) -> bool {
        match (self, kind) {
            (Self::Null, _) => true,
            (Self::List(items), Kind::List(scalar)) => {
                items.iter().all(|item| item.kind() == Some(Kind::One(scalar)))
            }
            (one, kind) => one.kind() == Some(kind),
        }
    }

    pub fn write_json(&self, out: &mut Vec<u8>, moments: Moments) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Bool(value) => json::boolean(out, *value),
            Self::Int32(value) => json::whole(out, i64::from(*value)),
            Self::Int64(value) => json::whole(out, *value),
            Self::Float32(value) => json::float32(out, *value),
            Self::Float64(value) => json::float64(out, *value),
            Self::String(value) => json::text(out, value),
            Self::Bytes(value) => json::bytes(out, value),
            Self::Timestamp(value) => json::timestamp(out, *value, moments),
            Self::Date(value) => json::date(out, *value),
            Self::Decimal(value, of) => json::decimal(out, *value, *of),
            Self::List(items) => {
                out.push(b'[');
                for (place, item) in items.iter().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    item.write_json(out, moments);
                }
                out.push(b']');
            }
        }
    }
}

/// The same value: floats by their bits, so that NaN equals NaN and the zeros differ.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(one), Self::Bool(other)) => one == other,
            (Self::Int32(one), Self::Int32(other)) | (Self::Date(one), Self::Date(other)) => {
                one == other
            }
            (Self::Decimal(one, of), Self::Decimal(other, than)) => one == other && of == than,
            (Self::Int64(one), Self::Int64(other))
            | (Self::Timestamp(one), Self::Timestamp(other)) => one == other,
            (Self::Float32(one), Self::Float32(other)) => {
                one.to_bits() == other.to_bits() || (one.is_nan() && other.is_nan())
            }
            (Self::Float64(one), Self::Float64(other)) => {
                one.to_bits() == other.to_bits() || (one.is_nan() && other.is_nan())
            }
            (Self::String(one), Self::String(other)) => one == other,
            (Self::Bytes(one), Self::Bytes(other)) => one == other,
            (Self::List(one), Self::List(other)) => one == other,
            _ => false,
        }
    }
}

/// Writing single values, for those who have them in another form than [`Value`].
pub mod json {
    use serde::Serialize;

    use super::{Decimal, Engine, Moments, STANDARD, moment};

    fn put<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
        // Writing into a vector does not fail, and none of these values refuses to be written.
        let _ = serde_json::to_writer(out, value);
    }

    pub fn boolean(out: &mut Vec<u8>, value: bool) {
        out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    pub fn whole(out: &mut Vec<u8>, value: i64) {
        put(out, &value);
    }

    pub fn float32(out: &mut Vec<u8>, value: f32) {
        if value.is_finite() { put(out, &value) } else { word(out, f64::from(value)) }
    }

    pub fn float64(out: &mut Vec<u8>, value: f64) {
        if value.is_finite() { put(out, &value) } else { word(out, value) }
    }

    fn word(out: &mut Vec<u8>, value: f64) {
        let word = match value {
            value if value.is_nan() => "\"NaN\"",
            value if value > 0.0 => "\"Infinity\"",
            _ => "\"-Infinity\"",
        };
        out.extend_from_slice(word.as_bytes());
    }

    pub fn text(out: &mut Vec<u8>, value: &str) {
        put(out, value);
    }

    pub fn bytes(out: &mut Vec<u8>, value: &[u8]) {
        out.push(b'"');
        out.extend_from_slice(STANDARD.encode(value).as_bytes());
        out.push(b'"');
    }

    pub fn date(out: &mut Vec<u8>, day: i32) {
        out.push(b'"');
        moment::write_day(out, day);
        out.push(b'"');
    }

    /// As text: a number of JSON would be rounded by whoever reads it.
    pub fn decimal(out: &mut Vec<u8>, steps: i128, of: Decimal) {
        out.push(b'"');
        of.write(out, steps);
        out.push(b'"');
    }

    pub fn timestamp(out: &mut Vec<u8>, micros: i64, moments: Moments) {
        match moments {
            Moments::Text => {
                out.push(b'"');
                moment::write(out, micros);
                out.push(b'"');
            }
            Moments::Seconds => whole(out, micros.div_euclid(1_000_000)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn kinds() -> impl Strategy<Value = Kind> {
        let mut all = Scalar::ALL.to_vec();
        for (precision, scale) in [(1, 0), (5, 2), (18, 18), (38, 10)] {
            all.extend(Decimal::new(precision, scale).map(Scalar::Decimal));
        }
        let scalar = proptest::sample::select(all);
        (scalar, any::<bool>()).prop_map(
            |(scalar, list)| {
                if list { Kind::List(scalar) } else { Kind::One(scalar) }
            },
        )
    }

    pub(crate) fn scalars(scalar: Scalar) -> BoxedStrategy<Value> {
        match scalar {
            Scalar::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
            Scalar::Int32 => any::<i32>().prop_map(Value::Int32).boxed(),
            Scalar::Int64 => any::<i64>().prop_map(Value::Int64).boxed(),
            Scalar::Float32 => any::<f32>().prop_map(Value::Float32).boxed(),
            Scalar::Float64 => any::<f64>().prop_map(Value::Float64).boxed(),
            Scalar::String => any::<String>().prop_map(Value::String).boxed(),
            Scalar::Bytes => {
                proptest::collection::vec(any::<u8>(), 0..20).prop_map(Value::Bytes).boxed()
            }
            Scalar::Timestamp => (moment::FIRST..=moment::LAST).prop_map(Value::Timestamp).boxed(),
            Scalar::Date => (moment::FIRST_DAY..=moment::LAST_DAY).prop_map(Value::Date).boxed(),
            Scalar::Decimal(of) => {
                let most = 10_i128.pow(of.precision().into());
                any::<i128>().prop_map(move |it| Value::Decimal(it % most, of)).boxed()
            }
        }
    }

    /// Values that a field of this kind can hold.
    pub(crate) fn values(kind: Kind) -> BoxedStrategy<Value> {
        let some = match kind {
            Kind::One(scalar) => scalars(scalar),
            Kind::List(scalar) => {
                proptest::collection::vec(scalars(scalar), 0..5).prop_map(Value::List).boxed()
            }
        };
        prop_oneof![1 => Just(Value::Null), 5 => some].boxed()
    }

    fn written(value: &Value) -> String {
        let mut out = Vec::new();
        value.write_json(&mut out, Moments::Text);
        String::from_utf8(out).unwrap()
    }

    fn read(kind: &str, json: &str) -> Result<Value> {
        let json: Json = serde_json::from_str(json).unwrap();
        kind.parse::<Kind>().unwrap().read(&json, || "df.x[3]".to_owned())
    }

    #[test]
    fn each_kind_has_a_name() {
        for scalar in Scalar::ALL {
            for kind in [Kind::One(scalar), Kind::List(scalar)] {
                assert_eq!(kind.to_string().parse::<Kind>().unwrap(), kind);
            }
        }
        for text in ["decimal(10,2)", "list<decimal(38,0)>"] {
            assert_eq!(text.parse::<Kind>().unwrap().to_string(), text);
        }
        for wrong in [
            "",
            "int",
            "Int64",
            "list<>",
            "list<list<int64>>",
            "list<int64",
            "int64>",
            "decimal",
            "decimal(40,2)",
            "decimal(2,3)",
            "struct<a: int64>",
        ] {
            let refused = wrong.parse::<Kind>().unwrap_err();
            assert_eq!(refused.field(), Some("type"), "{wrong}");
        }
    }

    #[test]
    fn values_are_read_strictly_and_written_as_feast_does() {
        let table = [
            ("bool", "true", "true"),
            ("int32", "-7", "-7"),
            ("int64", "9223372036854775807", "9223372036854775807"),
            ("int64", "3.0", "3"),
            ("float32", "0.1", "0.1"),
            ("float64", "1", "1.0"),
            ("float64", "\"NaN\"", "\"NaN\""),
            ("float32", "\"-Infinity\"", "\"-Infinity\""),
            ("string", "\"a\\\"b\"", "\"a\\\"b\""),
            ("bytes", "\"AP8=\"", "\"AP8=\""),
            ("timestamp", "\"2026-03-30T04:00:00+04:00\"", "\"2026-03-30T00:00:00Z\""),
            ("timestamp", "1774828800", "\"2026-03-30T00:00:00Z\""),
            ("date", "\"2026-03-30\"", "\"2026-03-30\""),
            ("decimal(10,2)", "\"12.5\"", "\"12.50\""),
            ("decimal(10,2)", "12.1", "\"12.10\""),
            ("decimal(10,2)", "7", "\"7.00\""),
            ("decimal(18,2)", "-9999999999999.99", "\"-9999999999999.99\""),
            ("decimal(38,18)", "0.0001", "\"0.000100000000000000\""),
            ("decimal(38,2)", "9223372036854775807", "\"9223372036854775807.00\""),
            ("list<date>", "[\"2026-03-30\"]", "[\"2026-03-30\"]"),
            ("list<int64>", "[1, 2]", "[1,2]"),
            ("list<string>", "[]", "[]"),
            ("list<float64>", "null", "null"),
        ];
        for (kind, given, expected) in table {
            assert_eq!(written(&read(kind, given).unwrap()), expected, "{kind} {given}");
        }
    }

    #[test]
    fn a_wrong_value_is_refused_by_its_place() {
        let table = [
            ("bool", "1", "df.x[3]"),
            ("int32", "2147483648", "df.x[3]"),
            ("int64", "9223372036854775808", "df.x[3]"),
            ("int64", "1.5", "df.x[3]"),
            ("int64", "\"1\"", "df.x[3]"),
            ("float32", "1e39", "df.x[3]"),
            ("float64", "\"nan\"", "df.x[3]"),
            ("string", "5", "df.x[3]"),
            ("bytes", "\"%\"", "df.x[3]"),
            ("timestamp", "1774828800000", "df.x[3]"),
            ("timestamp", "1.5", "df.x[3]"),
            ("date", "\"2026-02-30\"", "df.x[3]"),
            ("date", "20000", "df.x[3]"),
            ("decimal(10,2)", "\"12.505\"", "df.x[3]"),
            ("decimal(3,2)", "\"12.5\"", "df.x[3]"),
            // Floats that have more digits than they tell, in the value or in what was written.
            ("decimal(38,20)", "0.1234567890123456789", "df.x[3]"),
            ("decimal(38,0)", "100000000000000000000001", "df.x[3]"),
            ("decimal(38,0)", "1e23", "df.x[3]"),
            ("decimal(38,18)", "12.100000000000000001", "df.x[3]"),
            ("decimal(38,18)", "-12.1", "df.x[3]"),
            ("decimal(18,2)", "10000000000000.01", "df.x[3]"),
            ("decimal(10,2)", "true", "df.x[3]"),
            ("list<int64>", "5", "df.x[3]"),
            ("list<int64>", "[1, null]", "df.x[3][1]"),
            ("list<int64>", "[[1]]", "df.x[3][0]"),
        ];
        for (kind, given, field) in table {
            let refused = read(kind, given).unwrap_err();
            assert_eq!(refused.field(), Some(field), "{kind} {given}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            (kind, value) in kinds().prop_flat_map(|kind| (Just(kind), values(kind)))
        ) {
            let json: Json = serde_json::from_str(&written(&value)).unwrap();
            prop_assert_eq!(kind.read(&json, String::new).unwrap(), value.clone());
            prop_assert!(value.is(kind));
        }
    }
}
