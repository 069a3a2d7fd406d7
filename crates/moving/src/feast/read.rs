//! Registries on disk: one file of protobuf, or a SQLite database of the same messages.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use prost::Message;
use rusqlite::{Connection, OpenFlags};

use super::wire::{
    DataSource, Entity, FeatureService, FeatureView, Reference, Registry, Something,
};
use crate::{Error, Result};

/// The largest registry that is read.
const MOST: u64 = 256 << 20;

/// Reads a registry, whichever of the two it is.
pub(super) fn read(path: &Path) -> Result<Registry> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    file.take(MOST + 1).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    if bytes.len() as u64 > MOST {
        return Err(Error::Unsupported(format!(
            "{}: a registry has at most {MOST} bytes",
            path.display()
        )));
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
    Ok(Registry {
        entities: messages(&db, "entities", "entity_proto", |it: &mut Entity, project| {
            it.spec.iter_mut().for_each(|spec| spec.project.clone_from(&project));
        })?,
        data_sources: messages(
            &db,
            "data_sources",
            "data_source_proto",
            |it: &mut DataSource, project| {
                it.project = project;
            },
        )?,
        feature_views: messages(&db, "feature_views", VIEW, |it: &mut FeatureView, project| {
            it.spec.iter_mut().for_each(|spec| spec.project.clone_from(&project));
        })?,
        stream_feature_views: messages(&db, "stream_feature_views", VIEW, in_project)?,
        on_demand_feature_views: messages(&db, "on_demand_feature_views", VIEW, in_project)?,
        label_views: messages(&db, "label_views", VIEW, in_project)?,
        feature_services: messages(
            &db,
            "feature_services",
            "feature_service_proto",
            |it: &mut FeatureService, project| {
                it.spec.iter_mut().for_each(|spec| spec.project.clone_from(&project));
            },
        )?,
        saved_datasets: messages(&db, "saved_datasets", "saved_dataset_proto", in_project)?,
        validation_references: messages(
            &db,
            "validation_references",
            "validation_reference_proto",
            |it: &mut Reference, project| it.project = project,
        )?,
        permissions: messages(&db, "permissions", "permission_proto", in_project)?,
    })
}

/// The column of views of any kind.
const VIEW: &str = "feature_view_proto";

fn in_project(it: &mut Something, project: String) {
    it.spec.iter_mut().for_each(|spec| spec.project.clone_from(&project));
}

/// The messages of a table. Which project each is of stands in a column, and not always in it.
fn messages<M: Message + Default>(
    db: &Connection,
    table: &str,
    column: &str,
    place: impl Fn(&mut M, String),
) -> std::result::Result<Vec<M>, Box<dyn std::error::Error>> {
    let found = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?1";
    if db.query_row(found, [table], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(Vec::new());
    }
    let mut statement =
        db.prepare(&format!("SELECT {column}, project_id FROM {table} ORDER BY 1"))?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, String>(1)?));
    let mut found = Vec::new();
    for row in statement.query_map([], read)? {
        let (bytes, project) = row?;
        let mut message = M::decode(bytes.as_slice())?;
        place(&mut message, project);
        found.push(message);
    }
    Ok(found)
}
