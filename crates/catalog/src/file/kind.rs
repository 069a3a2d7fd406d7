//! What the texts of a column are: the narrowest kind that all of them can be read as.

use std::str::FromStr;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    BooleanBuilder, Date32Builder, Decimal128Builder, Float64Builder, Int64Builder, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_schema::{DataType, TimeUnit};
use chrono::{DateTime, NaiveDate, NaiveDateTime};
use falaj_base::{Error, Result};
use falaj_tables::decimal;

/// Kinds of columns that CSV can be read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int64,
    Float64,
    Date,
    Timestamp,
    String,
    /// So many digits, so many of them behind the point. Only ever asked for: what looks like one may be
    /// a float.
    Decimal(u8, i8),
}

/// What a column may be found to be.
const ALL: [Kind; 6] =
    [Kind::Bool, Kind::Int64, Kind::Float64, Kind::Date, Kind::Timestamp, Kind::String];

impl Kind {
    const fn name(self) -> &'static str {
        // Of decimals the beginning: there are many.
        match self {
            Self::Bool => "bool",
            Self::Int64 => "int64",
            Self::Float64 => "float64",
            Self::Date => "date",
            Self::Timestamp => "timestamp",
            Self::String => "string",
            Self::Decimal(..) => "decimal",
        }
    }

    pub(super) fn arrow(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int64 => DataType::Int64,
            Self::Float64 => DataType::Float64,
            Self::Date => DataType::Date32,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::String => DataType::Utf8,
            Self::Decimal(precision, scale) => DataType::Decimal128(precision, scale),
        }
    }
}

impl FromStr for Kind {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let plain = ALL.into_iter().find(|kind| kind.name() == text);
        let decimal =
            || decimal::named(text).map(|(precision, scale)| Self::Decimal(precision, scale));
        plain.or_else(decimal).ok_or_else(|| {
            let allowed = ALL.map(Self::name).join(", ") + ", decimal(PRECISION,SCALE)";
            Error::invalid("types", text, allowed)
        })
    }
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// A whole number as it would be written back: a code such as `007` is a text.
fn whole(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits == "0" && digits == text || !digits.is_empty() && !digits.starts_with('0');
    if plain && digits.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn float(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let code = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
    let begins = digits.starts_with(|it: char| it.is_ascii_digit() || it == '.');
    let word = matches!(text, "NaN" | "nan" | "inf" | "-inf" | "Infinity" | "-Infinity");
    if word || begins && !code { text.parse().ok() } else { None }
}

fn date(text: &str) -> Option<i32> {
    if text.len() != 10 {
        return None;
    }
    let day = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
    i32::try_from(day.signed_duration_since(NaiveDate::default()).num_days()).ok()
}

/// A moment in microseconds; without a zone it is one of UTC.
fn moment(text: &str) -> Option<i64> {
    if text.len() < 16 || !text.starts_with(|it: char| it.is_ascii_digit()) {
        return None;
    }
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time.timestamp_micros());
    }
    let naive = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M"];
    let found = naive.iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok());
    found.map(|time| time.and_utc().timestamp_micros())
}

/// What a column may still be, after the texts that were seen.
#[derive(Clone, Debug)]
pub(super) struct Guess {
    left: Vec<Kind>,
    seen: bool,
}

impl Default for Guess {
    fn default() -> Self {
        Self { left: ALL.to_vec(), seen: false }
    }
}

impl Guess {
    /// Takes a text into account. Nothing between two delimiters says nothing.
    pub(super) fn see(&mut self, text: &str, quoted: bool) {
        if text.is_empty() && !quoted {
            return;
        }
        self.seen = true;
        if self.left.len() == 1 {
            return;
        }
        self.left.retain(|kind| match kind {
            // An empty text is a text.
            _ if text.is_empty() => *kind == Kind::String,
            Kind::Bool => boolean(text).is_some(),
            Kind::Int64 => whole(text).is_some(),
            Kind::Float64 => float(text).is_some(),
            Kind::Date => date(text).is_some(),
            Kind::Timestamp => moment(text).is_some(),
            Kind::String => true,
            Kind::Decimal(precision, scale) => decimal::steps(text, *precision, *scale).is_some(),
        });
    }

    pub(super) fn kind(&self) -> Kind {
        if self.seen { self.left.first().copied().unwrap_or(Kind::String) } else { Kind::String }
    }
}

/// A column that is being filled.
pub(super) enum Builder {
    Bool(BooleanBuilder),
    Int64(Int64Builder),
    Float64(Float64Builder),
    Date(Date32Builder),
    Timestamp(TimestampMicrosecondBuilder),
    String(StringBuilder),
    Decimal(Decimal128Builder, u8, i8),
}

impl Builder {
    pub(super) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Bool => Self::Bool(BooleanBuilder::new()),
            Kind::Int64 => Self::Int64(Int64Builder::new()),
            Kind::Float64 => Self::Float64(Float64Builder::new()),
            Kind::Date => Self::Date(Date32Builder::new()),
            Kind::Timestamp => Self::Timestamp(
                TimestampMicrosecondBuilder::new().with_data_type(Kind::Timestamp.arrow()),
            ),
            Kind::String => Self::String(StringBuilder::new()),
            Kind::Decimal(precision, scale) => {
                let builder = Decimal128Builder::new().with_data_type(kind.arrow());
                Self::Decimal(builder, precision, scale)
            }
        }
    }

    /// Adds a text; false if it is none of this kind.
    pub(super) fn add(&mut self, text: &str, quoted: bool) -> bool {
        let nothing = text.is_empty() && !quoted;
        macro_rules! add {
            ($builder:ident, $read:expr) => {
                match $read {
                    _ if nothing => $builder.append_null(),
                    Some(value) => $builder.append_value(value),
                    None => return false,
                }
            };
        }
        match self {
            Self::Bool(builder) => add!(builder, boolean(text)),
            Self::Int64(builder) => add!(builder, whole(text)),
            Self::Float64(builder) => add!(builder, float(text)),
            Self::Date(builder) => add!(builder, date(text)),
            Self::Timestamp(builder) => add!(builder, moment(text)),
            Self::String(builder) => add!(builder, Some(text)),
            Self::Decimal(builder, precision, scale) => {
                add!(builder, decimal::steps(text, *precision, *scale));
            }
        }
        true
    }

    pub(super) fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Bool(builder) => Arc::new(builder.finish()),
            Self::Int64(builder) => Arc::new(builder.finish()),
            Self::Float64(builder) => Arc::new(builder.finish()),
            Self::Date(builder) => Arc::new(builder.finish()),
            Self::Timestamp(builder) => Arc::new(builder.finish()),
            Self::String(builder) => Arc::new(builder.finish()),
            Self::Decimal(builder, ..) => Arc::new(builder.finish()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_the_narrowest_that_holds_all() {
        for (texts, kind) in [
            (&["1", "", "-3", "0"][..], Kind::Int64),
            (&["1", "2.5", "1e3", "NaN"], Kind::Float64),
            (&["true", "FALSE"], Kind::Bool),
            (&["2026-01-31", ""], Kind::Date),
            (&["2026-01-31T09:00:00Z", "2026-01-31 09:00:00.5"], Kind::Timestamp),
            (&["2026-01-31", "2026-01-31T09:00:00Z"], Kind::String),
            (&["007", "1"], Kind::String),
            (&["9223372036854775808"], Kind::Float64),
            (&["", ""], Kind::String),
            (&["1", "x"], Kind::String),
            (&["+1"], Kind::String),
            (&["-0"], Kind::Float64),
        ] {
            let mut guess = Guess::default();
            for text in texts {
                guess.see(text, false);
            }
            assert_eq!(guess.kind(), kind, "{texts:?}");
            let mut builder = Builder::new(kind);
            assert!(texts.iter().all(|text| builder.add(text, false)), "{texts:?}");
            let built = builder.finish();
            assert_eq!((built.len(), built.data_type()), (texts.len(), &kind.arrow()));
        }
        let mut guess = Guess::default();
        guess.see("1", false);
        guess.see("", true);
        assert_eq!(guess.kind(), Kind::String);
        assert!(!Builder::new(Kind::Int64).add("x", false));
        let price: Kind = "decimal(5,2)".parse().unwrap();
        let mut builder = Builder::new(price);
        assert!(["12.5", "", "-0.01"].iter().all(|text| builder.add(text, false)));
        assert!(!builder.add("12.505", false), "it would have to be rounded");
        assert_eq!(builder.finish().data_type(), &DataType::Decimal128(5, 2));
        assert!("decimal(40,2)".parse::<Kind>().is_err());
    }
}
