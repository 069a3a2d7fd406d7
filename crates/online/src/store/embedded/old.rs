//! A store of before: one file with a B-tree, brought into a folder.

use std::path::Path;

use falaj_base::{Error, Result, code};
use redb::{Database, ReadTransaction, ReadableDatabase, TableDefinition, TableError};

use super::folder::damaged;
use super::make::{Made, Maker};
use super::record::Record;
use crate::store::{About, Home, Position};

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");
const REACHED: TableDefinition<'_, (), (i64, i64)> = TableDefinition::new("reached");
const ABOUT: TableDefinition<'_, &str, &str> = TableDefinition::new("about");
/// Memory for its pages: it is read once, from the beginning to the end.
const PAGES: usize = 32 << 20;

/// Brings its rows; tells what it remembered of itself.
pub(super) fn bring(path: &Path, mut maker: Maker<'_>) -> Result<(Vec<Made>, About)> {
    tracing::info!(path = %path.display(), "the online store is brought into its new form");
    let wrong = |error: redb::Error| unopened(path, error);
    let db = Database::builder().set_cache_size(PAGES).open(path).map_err(|it| wrong(it.into()))?;
    let read = db.begin_read().map_err(|error| wrong(error.into()))?;
    if let Some(table) = there(read.open_table(ROWS)).map_err(wrong)? {
        for entry in table.range::<&[u8]>(..).map_err(|error| wrong(error.into()))? {
            let (key, row) = entry.map_err(|error| wrong(error.into()))?;
            maker.add(Record { key: key.value(), row: Some(row.value()) })?;
        }
    }
    let about = about(&read).map_err(wrong)?;
    Ok((maker.finish()?, about))
}

/// A table, if it was ever made.
fn there<T>(opened: Result<T, TableError>) -> Result<Option<T>, redb::Error> {
    match opened {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn about(read: &ReadTransaction) -> Result<About, redb::Error> {
    let mut about = About::default();
    if let Some(table) = there(read.open_table(REACHED))?
        && let Some(found) = table.get(())?
    {
        let (tx, seq) = found.value();
        about.reached = Position { tx, seq };
    }
    if let Some(table) = there(read.open_table(ABOUT))? {
        let home = table.get("home")?;
        about.home = home.map(|home| Home::read(home.value()));
        about.id = table.get("id")?.map(|id| id.value().to_owned());
    }
    Ok(about)
}

#[cold]
fn unopened(path: &Path, error: redb::Error) -> Error {
    use std::io::ErrorKind::{InvalidData, UnexpectedEof};
    let shown = path.display();
    let text = match &error {
        redb::Error::DatabaseAlreadyOpen => {
            format!("the online store {shown} is in use by another process")
        }
        redb::Error::Io(io) if !matches!(io.kind(), InvalidData | UnexpectedEof) => {
            format!("the online store {shown} could not be opened")
        }
        _ => return damaged(path).caused_by(error),
    };
    Error::new(&code::INTEGRITY, text).caused_by(error)
}
