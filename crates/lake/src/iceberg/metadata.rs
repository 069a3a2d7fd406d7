//! Which metadata is meant, and which snapshot in it.

use std::collections::BTreeMap;
use std::io::Read;

use falaj_base::{Error, Result, Timestamp};
use serde::Deserialize;

use super::schema::Schema;
use crate::limits::Budget;
use crate::path::{below, joined};
use crate::place::{File, Place};

const FOLDER: &str = "metadata";
const HINT: &str = "version-hint.text";
const MAX_HINT: u64 = 64;
const ENDING: &str = ".metadata.json";
const PACKED: &str = ".gz.metadata.json";
/// Some writers put the other ending last.
const PACKED_TOO: &str = ".metadata.json.gz";

/// Which moment of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pin {
    #[default]
    Latest,
    Snapshot(i64),
    /// A branch or a tag.
    Reference(String),
    /// What was current at this time.
    At(Timestamp),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Metadata {
    pub(super) format_version: i64,
    pub(super) location: String,
    #[serde(default)]
    schemas: Vec<Schema>,
    #[serde(default)]
    schema: Option<Schema>,
    #[serde(default)]
    current_schema_id: Option<i64>,
    #[serde(default)]
    pub(super) partition_specs: Vec<Spec>,
    #[serde(default)]
    partition_spec: Option<Vec<SpecField>>,
    #[serde(default)]
    current_snapshot_id: Option<i64>,
    #[serde(default)]
    snapshots: Vec<Snapshot>,
    #[serde(default)]
    snapshot_log: Vec<Logged>,
    #[serde(default)]
    refs: BTreeMap<String, Reference>,
    #[serde(default)]
    pub(super) properties: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Spec {
    pub(super) spec_id: i64,
    pub(super) fields: Vec<SpecField>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct SpecField {
    pub(super) source_id: i32,
    #[serde(default)]
    pub(super) field_id: Option<i32>,
    pub(super) name: String,
    pub(super) transform: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Snapshot {
    #[serde(rename = "snapshot-id")]
    pub(super) id: i64,
    #[serde(default)]
    pub(super) manifest_list: Option<String>,
    /// In place of a list, in the first version of the format.
    #[serde(default)]
    pub(super) manifests: Option<Vec<String>>,
    #[serde(default)]
    schema_id: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Logged {
    timestamp_ms: i64,
    snapshot_id: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Reference {
    snapshot_id: i64,
    #[serde(rename = "type")]
    kind: String,
}

/// The file with the metadata of a table: the one that is named, the one that a hint points to, or
/// the newest.
pub(super) fn find(
    place: &dyn Place,
    table: &str,
    named: Option<&str>,
    budget: &Budget,
) -> Result<File> {
    let folder = joined(table, FOLDER);
    if let Some(named) = named {
        let path = below(table, named, "metadata")?;
        let file = place.open(&path)?;
        return file.ok_or_else(|| {
            Error::invalid("metadata", place.shown(&path), "a file of the table's metadata")
        });
    }
    if let Some(version) = hint(place, &folder)? {
        for name in [format!("v{version}{ENDING}"), format!("v{version}{PACKED}")] {
            if let Some(file) = place.open(&joined(&folder, &name))? {
                return Ok(file);
            }
        }
    }
    let listed = place.list(&folder, None, budget.limits().listed)?;
    let newest = listed
        .iter()
        .filter_map(|entry| Some((number(&entry.name)?, entry.modified, &entry.name)))
        .max();
    let newest = match newest {
        Some((_, _, name)) => place.open(&joined(&folder, name))?,
        None => None,
    };
    newest.ok_or_else(|| {
        let allowed = format!("an Iceberg table: a folder with `{FOLDER}/…{ENDING}`");
        Error::invalid("path", place.shown(table), allowed)
    })
}

fn hint(place: &dyn Place, folder: &str) -> Result<Option<u64>> {
    let Some(file) = place.open(&joined(folder, HINT))? else { return Ok(None) };
    if file.size() > MAX_HINT {
        return Ok(None);
    }
    let text = file.whole(MAX_HINT)?;
    Ok(std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok()))
}

/// The number in the name of a file of metadata: `v3.metadata.json`, `00003-….metadata.json`.
fn number(name: &str) -> Option<u64> {
    let endings = [PACKED, PACKED_TOO, ENDING];
    let stem = endings.iter().find_map(|ending| name.strip_suffix(ending))?;
    match stem.strip_prefix('v') {
        Some(digits) => digits.parse().ok(),
        None => stem.split('-').next()?.parse().ok(),
    }
}

impl Metadata {
    pub(super) fn read(file: &File, budget: &mut Budget) -> Result<Self> {
        let most = budget.file();
        let bytes = file.whole(most)?;
        budget.took(file.size())?;
        let packed = file.name().ends_with(PACKED) || file.name().ends_with(PACKED_TOO);
        let text = if packed {
            let mut text = Vec::new();
            let decoder = flate2::read::GzDecoder::new(&bytes[..]);
            let unpacked = decoder.take(most.saturating_add(1)).read_to_end(&mut text);
            if unpacked.is_err() || text.len() as u64 > most {
                let allowed = format!("gzip of at most {most} bytes");
                return Err(Error::invalid(file.name(), "something else", allowed));
            }
            text.into()
        } else {
            bytes
        };
        let read: Self = serde_json::from_slice(&text).map_err(|error| {
            let why: String = error.to_string().chars().take(200).collect();
            Error::invalid(file.name(), why, "metadata of an Iceberg table")
        })?;
        if !(1..=2).contains(&read.format_version) {
            let field = format!("{} format-version", file.name());
            return Err(Error::invalid(field, read.format_version, "1 or 2"));
        }
        Ok(read)
    }

    /// The snapshot that is meant; none of a table without rows.
    pub(super) fn snapshot(&self, pin: &Pin, table: &str) -> Result<Option<&Snapshot>> {
        let id = match pin {
            Pin::Latest => match self.current_snapshot_id.filter(|id| *id != -1) {
                Some(id) => id,
                None => return Ok(None),
            },
            Pin::Snapshot(id) => *id,
            Pin::Reference(name) => match self.refs.get(name) {
                Some(found) => found.snapshot_id,
                // Tables without branches have this one.
                None if name == "main" => return self.snapshot(&Pin::Latest, table),
                None => {
                    let names: Vec<&str> = self.refs.keys().map(String::as_str).take(50).collect();
                    let allowed = format!("a branch or tag of {table}: {}", names.join(", "));
                    return Err(Error::invalid("ref", name, allowed));
                }
            },
            Pin::At(time) => {
                let reached = |it: &&Logged| it.timestamp_ms.saturating_mul(1000) <= time.micros();
                let found = self.snapshot_log.iter().rev().find(reached);
                let Some(found) = found else {
                    let allowed = format!("a time at which {table} had a snapshot");
                    return Err(Error::invalid("timestamp", time, allowed));
                };
                found.snapshot_id
            }
        };
        let found = self.snapshots.iter().find(|snapshot| snapshot.id == id);
        found.map(Some).ok_or_else(|| {
            let allowed = format!("a snapshot of {table} that has not expired");
            Error::invalid("snapshot", id, allowed)
        })
    }

    /// The schema that a snapshot is read by: its own, but the table's for what moves on.
    pub(super) fn schema(
        &self,
        pin: &Pin,
        snapshot: Option<&Snapshot>,
        table: &str,
    ) -> Result<&Schema> {
        let moves = match pin {
            Pin::Latest => true,
            Pin::Reference(name) => {
                self.refs.get(name).is_none_or(|reference| reference.kind == "branch")
            }
            Pin::Snapshot(_) | Pin::At(_) => false,
        };
        let own = snapshot.and_then(|snapshot| snapshot.schema_id).filter(|_| !moves);
        let wanted = own.or(self.current_schema_id);
        let found = match wanted {
            Some(id) => self.schemas.iter().find(|schema| schema.id == Some(id)),
            None => None,
        };
        let found = found.or(self.schema.as_ref());
        found.ok_or_else(|| {
            let field = format!("{table} current-schema-id");
            Error::invalid(field, wanted.unwrap_or(-1), "the id of one of its schemas")
        })
    }

    /// All schemas: columns that are gone may still tell which rows are.
    pub(super) fn schemas(&self) -> impl Iterator<Item = &Schema> {
        self.schemas.iter().chain(&self.schema)
    }

    pub(super) fn spec(&self, id: i64) -> Option<&[SpecField]> {
        let found = self.partition_specs.iter().find(|spec| spec.spec_id == id);
        let fields = found.map(|spec| spec.fields.as_slice());
        fields.or_else(|| self.partition_spec.as_deref().filter(|_| id == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_in_a_name_tells_the_newest() {
        for (name, found) in [
            ("v3.metadata.json", Some(3)),
            ("v12.gz.metadata.json", Some(12)),
            ("00003-5c6e.metadata.json", Some(3)),
            ("00010-5c6e.metadata.json.gz", Some(10)),
            ("snap-123.avro", None),
            ("x.metadata.json", None),
            ("version-hint.text", None),
        ] {
            assert_eq!(number(name), found, "{name}");
        }
    }
}
