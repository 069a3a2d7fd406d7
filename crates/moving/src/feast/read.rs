//! Registries on disk: one file of protobuf, or a SQLite database of the same messages.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use prost::Message;
use rusqlite::{Connection, OpenFlags};

use super::wire::Registry;
use crate::{Error, Result};

/// The largest registry that is read.
const MOST: u64 = 256 << 20;

/// Reads a registry, whichever of the two it is.
pub(super) fn read(path: &Path) -> Result<Registry> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    file.take(MOST + 1).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    if bytes.len() as u64 > MOST {
        return Err(Error::Unsupported(format!("{}: a registry has at most {MOST} bytes", path.display())));
    }
    if bytes.starts_with(b"SQLite format 3\0") {
        return tables(path).map_err(|error| unreadable(path, &error));
    }
    Registry::decode(bytes.as_slice()).map_err(|error| {
        Error::Unsupported(format!("{} is no registry of Feast: {error}", path.display()))
    })
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Unsupported(format!("{} cannot be read: {error}", path.display()))
}

/// The same messages, a row each. A table that an older Feast did not have is empty.
fn tables(path: &Path) -> std::result::Result<Registry, Box<dyn std::error::Error>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    let mut registry = Registry::default();
    registry.entities = messages(&db, "entities", "entity_proto")?;
    registry.data_sources = messages(&db, "data_sources", "data_source_proto")?;
    registry.feature_views = messages(&db, "feature_views", "feature_view_proto")?;
    registry.stream_feature_views = messages(&db, "stream_feature_views", "feature_view_proto")?;
    registry.on_demand_feature_views =
        messages(&db, "on_demand_feature_views", "feature_view_proto")?;
    registry.label_views = messages(&db, "label_views", "feature_view_proto")?;
    registry.feature_services = messages(&db, "feature_services", "feature_service_proto")?;
    registry.saved_datasets = messages(&db, "saved_datasets", "saved_dataset_proto")?;
    registry.validation_references =
        messages(&db, "validation_references", "validation_reference_proto")?;
    registry.permissions = messages(&db, "permissions", "permission_proto")?;
    Ok(registry)
}

fn messages<M: Message + Default>(
    db: &Connection,
    table: &str,
    column: &str,
) -> std::result::Result<Vec<M>, Box<dyn std::error::Error>> {
    let found = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?1";
    if db.query_row(found, [table], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(Vec::new());
    }
    let mut statement = db.prepare(&format!("SELECT {column} FROM {table} ORDER BY 1"))?;
    let rows = statement.query_map([], |row| row.get::<_, Vec<u8>>(0))?;
    rows.map(|bytes| Ok(M::decode(bytes?.as_slice())?)).collect()
}
