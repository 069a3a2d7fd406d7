//! Feast's registry: what is declared there, as definitions of features.
//!
//! Must hold: nothing of a registry is executed. What cannot come is named, with the reason, and so
//! is what would be only half of what it was.

mod read;
mod translate;
mod wire;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::Result;

/// Where files of Feast's are found by the server.
#[derive(Clone, Debug)]
pub enum Place {
    /// Below one of `features.source_roots`.
    Path(String),
    /// Among the objects of the project.
    Object(String),
}

/// How a registry is read.
pub struct Reading<'a> {
    /// Which of Feast's projects; the only one if absent.
    pub project: Option<&'a str>,
    /// Where a file or a folder is found, by the address that Feast has of it; else why not. The
    /// second is whether it is a table of Delta's.
    pub place: &'a dyn Fn(&str, bool) -> std::result::Result<Place, String>,
}

impl std::fmt::Debug for Reading<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reading").field("project", &self.project).finish_non_exhaustive()
    }
}

/// Definitions as `falaj apply` takes them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Definitions {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entity: Vec<Entity>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source: Vec<Source>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub view: Vec<View>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub service: Vec<Service>,
}

/// What people say of a definition.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct About {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Column {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entity {
    pub name: String,
    pub join_keys: Vec<Column>,
    #[serde(flatten)]
    pub about: About,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Source {
    pub name: String,
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    #[serde(flatten)]
    pub about: About,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    pub name: String,
    pub entities: Vec<String>,
    pub source: String,
    pub schema: Vec<Column>,
    pub event_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
    #[serde(flatten)]
    pub about: About,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Service {
    pub name: String,
    pub features: Vec<String>,
    #[serde(flatten)]
    pub about: About,
}

/// Something that did not come, or not whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Left {
    pub kind: &'static str,
    pub name: String,
    pub reason: String,
}

/// What a registry came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Translated {
    pub definitions: Definitions,
    pub left: Vec<Left>,
}

/// Reads a registry: a file of protobuf, or a SQLite database.
pub fn translate(path: &Path, reading: &Reading<'_>) -> Result<Translated> {
    translate::translate(&read::read(path)?, reading)
}
