//! The pieces of a backup: a kind, a length, a payload.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use falaj_base::{BlobId, Error, Name, Result, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::{Summary, damaged};
use crate::db::Value;

/// The longest payload. A row holds small things; blobs travel in pieces.
const MAX_PAYLOAD: usize = 64 << 20;

/// One piece. Kinds are numbered for ever; a new one gets a new number.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Frame {
    Table(TableStart),
    Row(Vec<Value>),
    Blob(BlobStart),
    BlobBytes(Vec<u8>),
    BlobEnd,
    End(Summary),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TableStart {
    pub(super) name: String,
    pub(super) columns: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BlobStart {
    pub(super) tenant: TenantId,
    pub(super) blob: BlobId,
    pub(super) root: Name,
}

impl Frame {
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let (kind, payload) = match self {
            Self::Table(table) => (1, text(table)?),
            Self::Row(values) => (2, text(&values.iter().map(to_json).collect::<Vec<_>>())?),
            Self::Blob(blob) => (3, text(blob)?),
            Self::BlobBytes(bytes) => (4, bytes.clone()),
            Self::BlobEnd => (5, Vec::new()),
            Self::End(summary) => (6, text(summary)?),
        };
        let length = u32::try_from(payload.len()).map_err(Error::internal)?;
        let mut frame = Vec::with_capacity(payload.len() + 5);
        frame.push(kind);
        frame.extend_from_slice(&length.to_be_bytes());
        frame.extend_from_slice(&payload);
        Ok(frame)
    }

    fn decode(kind: u8, payload: &[u8]) -> Result<Self> {
        Ok(match kind {
            1 => Self::Table(parse(payload)?),
            2 => Self::Row(
                parse::<Vec<Json>>(payload)?.into_iter().map(from_json).collect::<Result<_>>()?,
            ),
            3 => Self::Blob(parse(payload)?),
            4 => Self::BlobBytes(payload.to_vec()),
            5 => Self::BlobEnd,
            6 => Self::End(parse(payload)?),
            other => return Err(damaged(format!("a piece of unknown kind {other}"))),
        })
    }
}

/// Finds frames in plaintext that arrives in pieces of any length.
#[derive(Debug, Default)]
pub(super) struct Frames {
    waiting: Vec<u8>,
    read: usize,
}

impl Frames {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.waiting.drain(..self.read);
        self.read = 0;
        self.waiting.extend_from_slice(bytes);
    }

    pub(super) fn next(&mut self) -> Result<Option<Frame>> {
        let rest = &self.waiting[self.read..];
        let Some((head, rest)) = rest.split_at_checked(5) else { return Ok(None) };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > MAX_PAYLOAD {
            return Err(damaged("a piece is too long"));
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let frame = Frame::decode(head[0], payload)?;
        self.read += 5 + length;
        Ok(Some(frame))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.read == self.waiting.len()
    }
}

fn text(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(Error::internal)
}

fn parse<T: serde::de::DeserializeOwned>(payload: &[u8]) -> Result<T> {
    serde_json::from_slice(payload)
        .map_err(|error| damaged("a piece cannot be read").caused_by(error))
}

/// Integers and texts are themselves; bytes and floats, which JSON cannot carry exactly, are not.
fn to_json(value: &Value) -> Json {
    match value {
        // A number that is not known yet never comes out of a database.
        Value::Null | Value::Number => Json::Null,
        Value::Int(number) => json!(number),
        Value::Text(text) => json!(text),
        Value::Blob(bytes) => json!({ "bytes": STANDARD.encode(bytes) }),
        Value::Real(number) => json!({ "bits": number.to_bits() }),
    }
}

fn from_json(json: Json) -> Result<Value> {
    let value = match &json {
        Json::Null => Some(Value::Null),
        Json::Number(number) => number.as_i64().map(Value::Int),
        Json::String(text) => Some(Value::Text(text.clone())),
        Json::Object(fields) => match (fields.get("bytes"), fields.get("bits")) {
            (Some(Json::String(text)), None) => STANDARD.decode(text).ok().map(Value::Blob),
            (None, Some(bits)) => bits.as_u64().map(|bits| Value::Real(f64::from_bits(bits))),
            _ => None,
        },
        _ => None,
    };
    value.ok_or_else(|| damaged("a value cannot be read"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::Int),
            any::<String>().prop_map(Value::Text),
            proptest::collection::vec(any::<u8>(), 0..64).prop_map(Value::Blob),
            any::<i32>().prop_map(|n| Value::Real(f64::from(n) / 3.0)),
        ]
    }

    proptest! {
        #[test]
        fn rows_survive_whatever_the_pieces(
            rows in proptest::collection::vec(proptest::collection::vec(value(), 0..6), 0..8),
            cut in 1_usize..40,
        ) {
            let sent: Vec<Frame> = rows.into_iter().map(Frame::Row).collect();
            let bytes: Vec<u8> = sent.iter().flat_map(|frame| frame.encode().unwrap()).collect();
            let (mut frames, mut got) = (Frames::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                frames.push(piece);
                while let Some(frame) = frames.next().unwrap() {
                    got.push(frame);
                }
            }
            prop_assert_eq!(got, sent);
            prop_assert!(frames.is_empty());
        }

        #[test]
        fn noise_is_refused_and_never_panics(noise in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut frames = Frames::default();
            frames.push(&noise);
            while let Ok(Some(_)) = frames.next() {}
        }
    }
}
