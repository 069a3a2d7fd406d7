//! What an object is.

use falaj_base::{BlobId, Name, ObjectId, Timestamp, hex};
use schemars::JsonSchema;
use serde::Serialize;

use super::name::ObjectName;

/// A named object as the caller sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Object {
    pub id: ObjectId,
    pub name: String,
    /// Bytes of content.
    pub size: u64,
    /// The SHA-256 of the content in hex; absent once its key was destroyed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    pub content_type: String,
    /// The zone it lies in.
    pub zone: Name,
    pub created_at: Timestamp,
}

/// An object as it is kept.
#[derive(Clone, Debug)]
pub(super) struct ObjectRow {
    pub(super) id: ObjectId,
    pub(super) name: String,
    pub(super) blob: BlobId,
    pub(super) content_type: String,
    pub(super) size: u64,
    pub(super) created_at: Timestamp,
}

impl ObjectRow {
    pub(super) fn shown(self, zone: Name, sha256: Option<[u8; 32]>) -> Object {
        Object {
            id: self.id,
            name: self.name,
            size: self.size,
            sha256: sha256.map(|digest| hex(&digest)),
            content_type: self.content_type,
            zone,
            created_at: self.created_at,
        }
    }
}

/// What a caller wants to store.
#[derive(Clone, Debug)]
pub(super) struct NewObject {
    pub(super) name: ObjectName,
    pub(super) content_type: String,
}

/// Reads 64 hex digits, in either case.
pub(super) fn unhex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}
