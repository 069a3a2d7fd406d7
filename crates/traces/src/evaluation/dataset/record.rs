//! One example: what goes in, and what is expected to come out. Values are kept as they were sent.

use std::collections::BTreeMap;
use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use falaj_base::{Error, Result, code};
use falaj_mlflow::error::{invalid, refused};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

use super::dataset::{DatasetId, USER_TAG};
use super::shape::Fields;

const RECORDS: &str = "records";

/// A record as a client sends it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Sent {
    inputs: Option<Box<RawValue>>,
    /// `null` is something that was said, unlike nothing.
    #[serde(deserialize_with = "said")]
    outputs: Option<Box<RawValue>>,
    expectations: Option<Fields>,
    tags: Option<Fields>,
    source: Option<SentSource>,
}

#[derive(Debug, Deserialize)]
struct SentSource {
    source_type: String,
    #[serde(default)]
    source_data: Option<Fields>,
}

fn said<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(from).map(Some)
}

/// A record that was read, not yet stored.
#[derive(Debug)]
pub(super) struct NewRecord {
    /// What tells it from others: equal inputs, however they are written, have equal ones.
    pub(super) hash: Vec<u8>,
    pub(super) inputs: Box<RawValue>,
    pub(super) fields: Fields,
    pub(super) outputs: Option<Box<RawValue>>,
    pub(super) expectations: Option<Fields>,
    tags: Fields,
    source: Option<Source>,
}

/// Where an example comes from.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Source {
    source_type: String,
    source_data: Fields,
}

/// A record. This is also how it is kept.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) id: String,
    pub(super) created_at: i64,
    updated_at: i64,
    created_by: Option<String>,
    updated_by: Option<String>,
    inputs: Box<RawValue>,
    outputs: Option<Box<RawValue>>,
    expectations: Option<Fields>,
    tags: Fields,
    source: Option<Source>,
}

/// Reads records as clients send them: a JSON list in a text. Each is read within `limit` bytes,
/// and no more than `most` of them.
pub(super) fn read(text: &str, most: usize, limit: usize) -> Result<Vec<NewRecord>> {
    let mut json = serde_json::Deserializer::from_str(text);
    let pieces = json.deserialize_seq(Pieces(most)).and_then(|pieces| json.end().map(|()| pieces));
    let pieces = pieces.map_err(|cause| refused(format!("`{RECORDS}`: {cause}")).at(RECORDS))?;
    let one = |(at, piece): (usize, &&RawValue)| {
        if piece.get().len() > limit {
            return Err(too_large(at, limit));
        }
        NewRecord::read(piece.get())
            .map_err(|why| refused(format!("record {at}: {why}")).at(RECORDS))
    };
    pieces.iter().enumerate().map(one).collect()
}

fn too_large(at: usize, limit: usize) -> Error {
    let text = format!("record {at} has more than {limit} bytes (`traces.max_record_size`)");
    Error::new(&code::TOO_LARGE, text).at(RECORDS)
}

/// The members of a list, unread.
struct Pieces(usize);

impl<'de> Visitor<'de> for Pieces {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of records")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            if all.len() == self.0 {
                let why = format!("more than {} (`traces.max_dataset_records`)", self.0);
                return Err(serde::de::Error::custom(why));
            }
            all.push(item);
        }
        Ok(all)
    }
}

impl NewRecord {
    fn read(text: &str) -> Result<Self, String> {
        let sent: Sent = serde_json::from_str(text).map_err(|cause| cause.to_string())?;
        let inputs = sent.inputs.ok_or("Each record must have an 'inputs' field")?;
        let fields: Fields = serde_json::from_str(inputs.get())
            .map_err(|cause| format!("'inputs' must be an object: {cause}"))?;
        let whole: Value = serde_json::from_str(inputs.get()).map_err(|cause| cause.to_string())?;
        let mut canonical = String::with_capacity(inputs.get().len());
        write_sorted(&whole, &mut canonical);
        Ok(Self {
            hash: digest(&SHA256, canonical.as_bytes()).as_ref().to_vec(),
            inputs,
            fields,
            outputs: sent.outputs,
            expectations: sent.expectations,
            tags: sent.tags.unwrap_or_default(),
            source: sent.source.map(Source::read).transpose()?,
        })
    }

    /// Who sent it, if it says so.
    pub(super) fn user(&self) -> Option<String> {
        text(self.tags.get(USER_TAG)?)
    }

    pub(super) fn into_record(self, now: i64) -> Record {
        let by = self.user();
        // Nothing said of outputs reads as an empty object, as in MLflow.
        let outputs = self.outputs.or_else(|| RawValue::from_string("{}".to_owned()).ok());
        Record {
            id: format!("dr-{}", Uuid::now_v7().simple()),
            created_at: now,
            updated_at: now,
            created_by: by.clone(),
            updated_by: by,
            inputs: self.inputs,
            outputs: outputs.filter(|outputs| outputs.get() != "null"),
            expectations: self.expectations,
            tags: self.tags,
            source: self.source,
        }
    }
}

impl Record {
    /// Adds what is said anew about the same inputs.
    pub(super) fn merge(&mut self, new: NewRecord, now: i64) {
        self.updated_by = new.user().or_else(|| self.updated_by.take());
        if let Some(outputs) = new.outputs {
            self.outputs = Some(outputs).filter(|outputs| outputs.get() != "null");
        }
        if let Some(expectations) = new.expectations.filter(|expected| !expected.is_empty()) {
            self.expectations.get_or_insert_default().extend(expectations);
        }
        self.tags.extend(new.tags);
        self.updated_at = now;
    }

    pub(super) fn shown<'a>(&'a self, dataset: &'a DatasetId) -> ShownRecord<'a> {
        ShownRecord {
            dataset_record_id: &self.id,
            dataset_id: dataset.as_str(),
            inputs: &self.inputs,
            created_time: self.created_at,
            last_update_time: self.updated_at,
            outputs: self.outputs.as_deref(),
            expectations: self.expectations.as_ref(),
            tags: &self.tags,
            source: self.source.as_ref(),
            source_id: self.source.as_ref().and_then(Source::id),
            source_type: self.source.as_ref().map(|source| source.source_type.as_str()),
            created_by: self.created_by.as_deref(),
            last_updated_by: self.updated_by.as_deref(),
        }
    }
}

impl Source {
    const TYPES: [&str; 5] = ["UNSPECIFIED", "TRACE", "HUMAN", "DOCUMENT", "CODE"];

    fn read(sent: SentSource) -> Result<Self, String> {
        let source_type = sent.source_type.to_ascii_uppercase();
        if !Self::TYPES.contains(&source_type.as_str()) {
            let why = format!("one of {}", Self::TYPES.join(", "));
            return Err(invalid("source_type", &json!(sent.source_type), &why)
                .message()
                .to_owned());
        }
        Ok(Self { source_type, source_data: sent.source_data.unwrap_or_default() })
    }

    fn id(&self) -> Option<String> {
        let key = if self.source_type == "TRACE" { "trace_id" } else { "source_id" };
        text(self.source_data.get(key)?)
    }
}

fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// A record as MLflow writes it.
#[derive(Debug, Serialize)]
pub(super) struct ShownRecord<'a> {
    dataset_record_id: &'a str,
    dataset_id: &'a str,
    inputs: &'a RawValue,
    created_time: i64,
    last_update_time: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    outputs: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expectations: Option<&'a Fields>,
    tags: &'a BTreeMap<String, Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a Source>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_updated_by: Option<&'a str>,
}

/// Writes a value with the members of its objects in order, and nothing between its parts. It is
/// as deep as the reader allows. Numbers beyond 64 bits are compared as doubles.
fn write_sorted(value: &Value, to: &mut String) {
    match value {
        Value::Array(items) => {
            to.push('[');
            for item in items {
                write_sorted(item, to);
                to.push(',');
            }
            to.push(']');
        }
        Value::Object(members) => {
            let members: BTreeMap<&String, &Value> = members.iter().collect();
            to.push('{');
            for (name, member) in members {
                to.push_str(&json!(name).to_string());
                to.push(':');
                write_sorted(member, to);
                to.push(',');
            }
            to.push('}');
        }
        plain => to.push_str(&plain.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(text: &str) -> NewRecord {
        read(&format!("[{text}]"), 10, 1000).unwrap().pop().unwrap()
    }

    fn shown(record: &Record) -> Value {
        let id = DatasetId::parse(&format!("d-{}", "0".repeat(32))).unwrap();
        serde_json::to_value(record.shown(&id)).unwrap()
    }

    #[test]
    fn equal_inputs_are_one_record() {
        let a = one(r#"{"inputs": {"q": "x", "deep": {"b": [1, 2], "a": 1.0}}}"#);
        let b = one(r#"{"inputs":{"deep":{"a":1.0,"b":[1,2]},"q":"\u0078"}}"#);
        assert_eq!(a.hash, b.hash);
        for other in [r#"{"q": "x"}"#, r#"{"q": "x", "deep": {"b": [2, 1], "a": 1.0}}"#, "{}"] {
            assert_ne!(a.hash, one(&format!("{{\"inputs\": {other}}}")).hash, "{other}");
        }
    }

    #[test]
    fn what_is_said_again_completes() {
        let first = r#"{"inputs": {"q": 1}, "expectations": {"a": "x", "b": 1},
            "tags": {"t": "1", "mlflow.user": "ada"},
            "source": {"source_type": "trace", "source_data": {"trace_id": "tr-1"}}}"#;
        let mut record = one(first).into_record(5);
        assert_eq!(shown(&record)["outputs"], json!({}));
        record.merge(one(r#"{"inputs": {"q": 1}, "expectations": {"b": 2}, "outputs": "yes"}"#), 9);
        let now = shown(&record);
        assert_eq!(now["expectations"], json!({"a": "x", "b": 2}));
        assert_eq!((&now["outputs"], &now["created_by"]), (&json!("yes"), &json!("ada")));
        assert_eq!(now["last_updated_by"], "ada");
        assert_eq!((&now["created_time"], &now["last_update_time"]), (&json!(5), &json!(9)));
        assert_eq!((&now["source_id"], &now["source_type"]), (&json!("tr-1"), &json!("TRACE")));
        record.merge(
            one(r#"{"inputs": {"q": 1}, "outputs": null, "tags": {"mlflow.user": "bo"}}"#),
            9,
        );
        let now = shown(&record);
        assert_eq!((now.get("outputs"), &now["last_updated_by"]), (None, &json!("bo")));
        let kept = serde_json::to_string(&record).unwrap();
        let back: Record = serde_json::from_str(&kept).unwrap();
        assert_eq!(shown(&back), now);
    }

    #[test]
    fn numbers_come_back_as_they_were() {
        let record = one(r#"{"inputs": {"n": 123456789012345678901234567890, "f": 1.10}}"#);
        assert!(record.into_record(1).inputs.get().contains("123456789012345678901234567890"));
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for (bad, why) in [
            ("", "records"),
            ("{}", "a list of records"),
            ("[1]", "record 0"),
            ("[{}]", "'inputs' field"),
            (r#"[{"inputs": []}]"#, "must be an object"),
            (r#"[{"inputs": {}, "tags": 1}]"#, "record 0"),
            (r#"[{"inputs": {}, "source": {"source_type": "x"}}]"#, "UNSPECIFIED, TRACE"),
            (r#"[{"inputs": {}}] x"#, "trailing"),
            ("[{\"inputs\": {}}, {\"inputs\": {}}, {\"inputs\": {}}]", "max_dataset_records"),
        ] {
            let error = read(bad, 2, 1000).unwrap_err();
            assert!(error.message().contains(why), "{bad}: {error}");
        }
        let deep = format!("[{{\"inputs\": {{\"a\": {}{}}}}}]", "[".repeat(400), "]".repeat(400));
        assert!(read(&deep, 2, 10_000).is_err(), "no deeper than the reader allows");
        let error = read(r#"[{"inputs": {"q": "long enough"}}]"#, 2, 20).unwrap_err();
        assert_eq!(error.code(), &code::TOO_LARGE);
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e9..1e9_f64).prop_map(Value::from),
            ".{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 30, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((".{0,4}", inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// The same value with the members of every object the other way round.
    fn turned(value: &Value) -> Value {
        match value {
            Value::Array(items) => Value::Array(items.iter().map(turned).collect()),
            Value::Object(members) => {
                let members = members.iter().rev();
                Value::Object(members.map(|(k, v)| (k.clone(), turned(v))).collect())
            }
            plain => plain.clone(),
        }
    }

    proptest! {
        #[test]
        fn the_order_of_members_means_nothing(value in values(), other in values()) {
            let text = |value: &Value| json!({"inputs": {"v": value}}).to_string();
            let hash = |value: &Value| one_of_any_size(&text(value)).hash;
            prop_assert_eq!(hash(&value), hash(&turned(&value)));
            prop_assert_eq!(hash(&value) == hash(&other), value == other);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,60}") {
            let _ = read(&text, 5, 100);
        }
    }

    fn one_of_any_size(text: &str) -> NewRecord {
        read(&format!("[{text}]"), 10, 1 << 20).unwrap().pop().unwrap()
    }
}
