//! Comparing two versions: their columns, and their rows by key or as they are.
//!
//! Versions never change, so neither does what differs between two of them: a comparison that was
//! made is remembered, and one that takes long goes on when the request that asked for it is over.

mod compare;
mod service;
mod spill;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value as Json;

use crate::version::ColumnInfo;
pub use service::DiffWanted;
pub(crate) use service::Diffs;

/// How far a comparison is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Ask again.
    Running,
    Ready,
}

/// A comparison, as far as it is.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Answer {
    pub state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<Diff>,
}

/// What differs between two versions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Diff {
    pub from: i64,
    pub to: i64,
    /// The columns that tell rows apart; without any, equal rows cancel each other out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<String>,
    pub columns: ColumnChanges,
    /// The columns by which rows were compared: those of both versions.
    pub compared: Vec<String>,
    pub rows_before: u64,
    pub rows_after: u64,
    pub rows: RowCounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate_keys: Option<Duplicates>,
    pub samples: Samples,
}

/// Columns that came, went, or became something else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ColumnChanges {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<ColumnInfo>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<ColumnInfo>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<ChangedColumn>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChangedColumn {
    pub name: String,
    pub before: String,
    pub after: String,
}

/// How many rows. With a key, `changed` and `unchanged` count keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RowCounts {
    pub added: u64,
    pub removed: u64,
    pub changed: u64,
    pub unchanged: u64,
}

/// How many keys are there more than once: then rows of a key are compared as a bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Duplicates {
    pub before: u64,
    pub after: u64,
}

/// A few of the rows; long values are cut.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Samples {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<Json>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<Json>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<ChangedRow>,
}

/// A row of a key, before and after.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ChangedRow {
    pub key: Json,
    /// The columns whose values differ.
    pub columns: Vec<String>,
    pub before: Json,
    pub after: Json,
}

/// What became of columns.
pub(crate) fn column_changes(before: &[ColumnInfo], after: &[ColumnInfo]) -> ColumnChanges {
    let absent = |all: &[ColumnInfo], it: &&ColumnInfo| all.iter().all(|one| one.name != it.name);
    let changed = before.iter().filter_map(|old| {
        let new = after.iter().find(|new| new.name == old.name && new.kind != old.kind)?;
        let (name, before, after) = (old.name.clone(), old.kind.clone(), new.kind.clone());
        Some(ChangedColumn { name, before, after })
    });
    ColumnChanges {
        added: after.iter().filter(|it| absent(before, it)).cloned().collect(),
        removed: before.iter().filter(|it| absent(after, it)).cloned().collect(),
        changed: changed.collect(),
    }
}
