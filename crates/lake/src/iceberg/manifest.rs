//! Which files there are: lists of manifests, and manifests.

use falaj_base::{Error, Result};

use super::avro::{Container, Value};
use crate::place::File;

/// A manifest in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    /// An address.
    pub(super) path: String,
    pub(super) spec: i64,
    pub(super) deletes: bool,
    pub(super) sequence: i64,
}

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Rows,
    /// Places of rows in files.
    Places,
    /// Values that rows have.
    Values,
}

/// A file of a table.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) content: Content,
    /// An address.
    pub(super) path: String,
    pub(super) spec: i64,
    /// Values of the partition: each with the number of its field.
    pub(super) partition: Value,
    pub(super) sequence: i64,
    /// Of a file with values: the columns that are compared.
    pub(super) equality: Vec<i32>,
}

pub(super) fn list(
    bytes: &[u8],
    file: &File,
    mut each: impl FnMut(Manifest) -> Result<()>,
) -> Result<()> {
    let wanted = ["manifest_path", "partition_spec_id", "content", "sequence_number"];
    Container::open(bytes, file.name())?.each(&wanted, &[], |value| {
        let path = required(value.get("manifest_path").text(), "manifest_path", file)?;
        let content = value.get("content").long().unwrap_or(0);
        if !(0..=1).contains(&content) {
            let field = format!("{} content", file.name());
            return Err(Error::invalid(field, content, "0 or 1"));
        }
        each(Manifest {
            path: path.to_owned(),
            spec: value.get("partition_spec_id").long().unwrap_or(0),
            deletes: content == 1,
            sequence: value.get("sequence_number").long().unwrap_or(0),
        })
    })
}

/// The files of a manifest that are still there.
pub(super) fn entries(
    bytes: &[u8],
    file: &File,
    manifest: &Manifest,
    mut each: impl FnMut(Entry) -> Result<()>,
) -> Result<()> {
    let wanted = [
        "status",
        "sequence_number",
        "data_file",
        "content",
        "file_path",
        "file_format",
        "equality_ids",
    ];
    let container = Container::open(bytes, file.name())?;
    // Where no list tells the specification, the manifest does.
    let own = container.note("partition-spec-id").and_then(|text| std::str::from_utf8(text).ok());
    let spec = own.and_then(|text| text.trim().parse().ok()).unwrap_or(manifest.spec);
    container.each(&wanted, &["partition", "equality_ids"], |value| {
        const DELETED: i64 = 2;
        const EXISTING: i64 = 0;
        let status = required(value.get("status").long(), "status", file)?;
        if status == DELETED {
            return Ok(());
        }
        let data = value.get("data_file");
        let path = required(data.get("file_path").text(), "file_path", file)?;
        let format = data.get("file_format").text().unwrap_or("PARQUET");
        if !format.eq_ignore_ascii_case("parquet") {
            return Err(Error::invalid(path, format, "files in the format PARQUET"));
        }
        let content = match data.get("content").long().unwrap_or(0) {
            0 => Content::Rows,
            1 => Content::Places,
            2 => Content::Values,
            other => return Err(Error::invalid(path, format!("content {other}"), "0, 1 or 2")),
        };
        if (content == Content::Rows) == manifest.deletes {
            let allowed = "rows in a manifest of rows, deletes in one of deletes";
            return Err(Error::invalid(path, format!("{content:?}"), allowed));
        }
        let told = value.get("sequence_number").long();
        let sequence = match told {
            Some(told) => told,
            // What was there before must say when it came.
            None if status == EXISTING && manifest.sequence > 0 => {
                return Err(Error::invalid(path, "no sequence number", "one for what existed"));
            }
            None => manifest.sequence,
        };
        let equality = match data.get("equality_ids") {
            Value::Array(ids) => {
                let ids = ids.iter().map(|id| id.long().and_then(|id| i32::try_from(id).ok()));
                required(ids.collect::<Option<Vec<_>>>(), "equality_ids", file)?
            }
            _ => Vec::new(),
        };
        if content == Content::Values && equality.is_empty() {
            return Err(Error::invalid(path, "no equality_ids", "columns to compare"));
        }
        each(Entry {
            content,
            path: path.to_owned(),
            spec,
            partition: data.get("partition").clone(),
            sequence,
            equality,
        })
    })
}

fn required<T>(value: Option<T>, field: &str, file: &File) -> Result<T> {
    value.ok_or_else(|| {
        Error::invalid(format!("{} {field}", file.name()), "absent", "a value of its type")
    })
}
