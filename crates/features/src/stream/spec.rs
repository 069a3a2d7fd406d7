//! What a source says about its stream.

use std::collections::BTreeMap;
use std::fmt;

use falaj_base::{Error, Name, Result, Timestamp};
use falaj_streams::{Start, Topic};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::definition::form::SourceForm;
use crate::definition::spec::Source;
use crate::name::FeatureName;

/// The longest name of a topic that Kafka takes.
const MAX_TOPIC: usize = 249;
const MAX_SUBJECT: usize = 512;
const MAX_PATH: usize = 512;
/// Columns that are looked for elsewhere than under their own name, at most.
const MAX_FIELDS: usize = 1000;

/// The part of a stream source that decides what its rows are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamForm {
    /// The configured stream.
    pub stream: Name,
    /// The topic of Kafka, or the stream of NATS.
    pub topic: String,
    /// The subjects of a NATS stream that count; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub format: Format,
    /// Where columns are found that are not under their own name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<FeatureName, FieldPath>,
    /// The rows from before.
    // A source of the same shape; a schema that names itself cannot be flattened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub batch: Option<Box<SourceForm>>,
}

impl StreamForm {
    /// What its offsets are those of: another topic has others.
    pub(crate) fn place(&self) -> String {
        let subject = self.subject.as_deref().unwrap_or_default();
        format!("{}/{}/{subject}", self.stream, self.topic)
    }

    pub(crate) fn as_topic(&self) -> Topic {
        Topic { name: self.topic.clone(), subject: self.subject.clone() }
    }
}

/// How records are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// An object of JSON.
    #[default]
    Json,
}

/// Where a column is found in a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum FieldPath {
    /// A name, a JSON pointer such as `/trip/driver`, `@key` for the record's key, or `@timestamp`
    /// for its time.
    At(String),
    /// The same of a time that is a number.
    Timed(Timed),
}

/// A time that is a number, and of what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Timed {
    pub path: String,
    pub unit: Unit,
}

/// What a time that is a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    S,
    Ms,
    Us,
    Ns,
}

impl FieldPath {
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::At(path) | Self::Timed(Timed { path, .. }) => path,
        }
    }

    pub(crate) fn unit(&self) -> Option<Unit> {
        match self {
            Self::At(_) => None,
            Self::Timed(Timed { unit, .. }) => Some(*unit),
        }
    }
}

/// How a stream is read: it decides nothing about its rows, and is changed in place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Reading {
    #[serde(skip_serializing_if = "is_default")]
    pub on_bad: OnBad,
    #[serde(skip_serializing_if = "is_default")]
    pub on_gap: OnGap,
    #[serde(skip_serializing_if = "is_default")]
    pub start: StartAt,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What becomes of a record that is no row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnBad {
    /// Reading stops before it.
    #[default]
    Refuse,
    /// It is put aside with the reason, and reading goes on.
    Quarantine,
}

/// What is done where records were removed before they were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnGap {
    /// Reading stops.
    #[default]
    Stop,
    /// Reading goes on with the first that is there.
    Skip,
}

/// Where a partition is begun that nothing was read of yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartAt {
    #[default]
    Earliest,
    Latest,
    At(Timestamp),
}

impl StartAt {
    pub(crate) fn as_start(self) -> Start {
        match self {
            Self::Earliest => Start::Earliest,
            Self::Latest => Start::Latest,
            Self::At(time) => Start::At(time.micros()),
        }
    }
}

impl fmt::Display for StartAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Earliest => f.write_str("earliest"),
            Self::Latest => f.write_str("latest"),
            Self::At(time) => time.fmt(f),
        }
    }
}

impl Serialize for StartAt {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StartAt {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        match text.as_str() {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            other => other.parse().map(Self::At).map_err(|_| {
                let allowed =
                    "expected `earliest`, `latest` or a time such as 2026-05-01T00:00:00Z";
                serde::de::Error::custom(format!("`{other}` is none: {allowed}"))
            }),
        }
    }
}

impl JsonSchema for StartAt {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StreamStart".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "`earliest`, `latest`, or a time (RFC 3339)",
        })
    }
}

/// Refuses what no stream source could mean.
pub(crate) fn checked(source: &Source) -> Result<()> {
    if source.stream.is_none() {
        let allowed = "the name of a configured stream (`features.streams`)";
        return Err(Error::invalid("stream", "absent", allowed));
    }
    let topic = source.topic.as_deref().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if topic.is_empty() || topic.len() > MAX_TOPIC || !topic.bytes().all(plain) {
        let allowed = format!("1 to {MAX_TOPIC} letters, digits, `.`, `_` and `-`");
        return Err(Error::invalid("topic", topic, allowed));
    }
    if let Some(subject) = &source.subject {
        let fits = |byte: u8| byte.is_ascii_graphic();
        if subject.is_empty() || subject.len() > MAX_SUBJECT || !subject.bytes().all(fits) {
            let allowed = format!("1 to {MAX_SUBJECT} signs without spaces, such as `rides.>`");
            return Err(Error::invalid("subject", subject, allowed));
        }
    }
    if source.fields.len() > MAX_FIELDS {
        let allowed = format!("at most {MAX_FIELDS}");
        return Err(Error::invalid("fields", source.fields.len(), allowed));
    }
    for (name, path) in &source.fields {
        let text = path.path();
        let known = !text.starts_with('@') || text == KEY || text == TIMESTAMP;
        if text.is_empty() || text.len() > MAX_PATH || !known {
            let allowed = "a name, a JSON pointer such as `/trip/driver`, `@key` or `@timestamp`";
            return Err(Error::invalid(format!("fields.{name}"), text, allowed));
        }
        if path.unit().is_some() && text == TIMESTAMP {
            let allowed = "no unit: what it counts is known";
            return Err(Error::invalid(format!("fields.{name}.unit"), text, allowed));
        }
    }
    Ok(())
}

/// Refuses what only a stream source has.
pub(crate) fn unasked(source: &Source) -> Result<()> {
    let given = [
        ("stream", source.stream.is_some()),
        ("topic", source.topic.is_some()),
        ("subject", source.subject.is_some()),
        ("format", source.format.is_some()),
        ("fields", !source.fields.is_empty()),
        ("on_bad", source.on_bad.is_some()),
        ("on_gap", source.on_gap.is_some()),
        ("start", source.start.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((field, _)) => Err(Error::invalid(
            field,
            "given",
            "nothing for a source of another kind than `stream`",
        )),
        None => Ok(()),
    }
}

/// A record's key.
pub(super) const KEY: &str = "@key";
/// A record's time.
pub(super) const TIMESTAMP: &str = "@timestamp";

impl Source {
    /// How it is read, if it is a stream.
    pub(crate) fn reading(&self) -> Option<Reading> {
        self.stream.as_ref()?;
        Some(Reading {
            on_bad: self.on_bad.unwrap_or_default(),
            on_gap: self.on_gap.unwrap_or_default(),
            start: self.start.unwrap_or_default(),
        })
    }

    /// What it decides, if it is a stream, with the rows from before.
    pub(crate) fn stream_form(&self, batch: Option<Box<SourceForm>>) -> Result<StreamForm> {
        let absent = || Error::internal("a stream source without a stream");
        Ok(StreamForm {
            stream: self.stream.clone().ok_or_else(absent)?,
            topic: self.topic.clone().ok_or_else(absent)?,
            subject: self.subject.clone(),
            format: self.format.unwrap_or_default(),
            fields: self.fields.clone(),
            batch,
        })
    }

    /// Takes up what a stream source was declared with.
    pub(crate) fn take_stream(&mut self, form: StreamForm, reading: Option<Reading>) {
        let reading = reading.unwrap_or_default();
        self.stream = Some(form.stream);
        self.topic = Some(form.topic);
        self.subject = form.subject;
        self.format = Some(form.format);
        self.fields = form.fields;
        self.batch = form.batch.map(|batch| batch.name);
        self.on_bad = Some(reading.on_bad);
        self.on_gap = Some(reading.on_gap);
        self.start = Some(reading.start);
    }
}
