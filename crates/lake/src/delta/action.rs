//! What one line of a commit says.

use std::collections::BTreeMap;

use falaj_base::{Error, Result, percent_decoded};
use serde::Deserialize;

/// Everything a line can say that decides which rows there are. The rest is passed over.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Action {
    #[serde(default)]
    pub(super) add: Option<Add>,
    #[serde(default)]
    pub(super) remove: Option<Remove>,
    #[serde(default)]
    pub(super) meta_data: Option<Metadata>,
    #[serde(default)]
    pub(super) protocol: Option<Protocol>,
    #[serde(default)]
    pub(super) commit_info: Option<CommitInfo>,
    #[serde(default)]
    pub(super) sidecar: Option<Sidecar>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Add {
    /// An address: relative, with percent signs.
    pub(super) path: String,
    #[serde(default)]
    pub(super) partition_values: BTreeMap<String, Option<String>>,
    #[serde(default)]
    pub(super) modification_time: i64,
    #[serde(default)]
    pub(super) deletion_vector: Option<Vector>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Remove {
    pub(super) path: String,
    #[serde(default)]
    pub(super) deletion_vector: Option<Vector>,
}

/// Where the rows of a file that are gone are told.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Vector {
    pub(super) storage_type: String,
    pub(super) path_or_inline_dv: String,
    #[serde(default)]
    pub(super) offset: Option<i64>,
    pub(super) size_in_bytes: i64,
    pub(super) cardinality: i64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    #[serde(default)]
    pub(super) format: Option<Format>,
    pub(super) schema_string: String,
    #[serde(default)]
    pub(super) partition_columns: Vec<String>,
    #[serde(default)]
    pub(super) configuration: BTreeMap<String, Option<String>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Format {
    pub(super) provider: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Protocol {
    pub(super) min_reader_version: i64,
    #[serde(default)]
    pub(super) reader_features: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommitInfo {
    #[serde(default)]
    pub(super) in_commit_timestamp: Option<i64>,
}

/// A part of a checkpoint in a file of its own.
#[derive(Debug, Deserialize)]
pub(super) struct Sidecar {
    pub(super) path: String,
}

/// What tells one entry for a file from another: deleting rows makes a new one for the same file.
pub(super) type Key = (String, Option<String>);

impl Vector {
    pub(super) fn id(&self) -> String {
        let offset = self.offset.map_or(String::new(), |at| format!("@{at}"));
        format!("{}{}{offset}", self.storage_type, self.path_or_inline_dv)
    }
}

pub(super) fn key(path: &str, vector: Option<&Vector>) -> Key {
    (percent_decoded(path), vector.map(Vector::id))
}

/// The actions of a file of lines. `name` is the file's.
pub(super) fn lines<'a>(
    text: &'a [u8],
    name: &'a str,
) -> impl Iterator<Item = Result<Action>> + 'a {
    let lines = text.split(|byte| *byte == b'\n').enumerate();
    let filled = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    filled.map(move |(number, line)| {
        serde_json::from_slice(line).map_err(|error| {
            let place = format!("{name} line {}", number + 1);
            let why: String = error.to_string().chars().take(200).collect();
            Error::invalid(place, why, "an action of Delta's log")
        })
    })
}
