//! Writing a store that a stock MLflow opens: a SQLite database.
//!
//! Must hold: a run is written whole or not at all, and what is written again replaces what was
//! there, so that an export that broke off is simply run again.

mod models;
mod runs;
mod traces;

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use crate::error::{Error, Result};
use crate::record::Experiment;

/// The revision of the schema that is written.
const REVISION: &str = "770bee3ae1dd";
const SCHEMA: &str = include_str!("schema.sql");

/// A database that is being filled.
#[derive(Debug)]
pub struct Database {
    connection: Connection,
}

impl Database {
    /// Makes a database, or opens one that an export has begun. One that an MLflow has opened since
    /// has another schema and is not touched.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |cause: rusqlite::Error| Error::writing(path.display(), cause);
        let connection = Connection::open(path).map_err(failed)?;
        connection
            .execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;")
            .map_err(failed)?;
        let tables: i64 = connection
            .query_row("SELECT COUNT(*) FROM sqlite_master", [], |row| row.get(0))
            .map_err(failed)?;
        if tables == 0 {
            let all = format!("BEGIN;\n{SCHEMA}\nCOMMIT;");
            connection.execute_batch(&all).map_err(failed)?;
            return Ok(Self { connection });
        }
        let found: Option<String> = connection
            .query_row("SELECT version_num FROM alembic_version", [], |row| row.get(0))
            .optional()
            .unwrap_or_default();
        if found.as_deref() != Some(REVISION) {
            return Err(Error::Unsupported(format!(
                "{} is a database of another schema ({}): export into a new folder",
                path.display(),
                found.as_deref().unwrap_or("none of MLflow's")
            )));
        }
        Ok(Self { connection })
    }

    /// One change, whole or not at all.
    fn change<T>(
        &mut self,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let failed = |cause: rusqlite::Error| Error::writing("the database", cause);
        let tx = self.connection.transaction().map_err(failed)?;
        let done = change(&tx).map_err(failed)?;
        tx.commit().map_err(failed)?;
        Ok(done)
    }

    pub fn put_experiment(&mut self, one: &Experiment) -> Result<()> {
        self.change(|tx| {
            tx.execute(
                "INSERT INTO experiments (experiment_id, name, artifact_location, lifecycle_stage,
                     creation_time, last_update_time) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT (experiment_id) DO UPDATE SET name = excluded.name,
                     artifact_location = excluded.artifact_location,
                     lifecycle_stage = excluded.lifecycle_stage,
                     creation_time = excluded.creation_time,
                     last_update_time = excluded.last_update_time",
                params![
                    one.id.parse::<i64>().unwrap_or_default(),
                    one.name,
                    one.artifact_location,
                    one.stage.as_str(),
                    one.created_at,
                    one.updated_at,
                ],
            )?;
            let id = one.id.parse::<i64>().unwrap_or_default();
            tx.execute("DELETE FROM experiment_tags WHERE experiment_id = ?1", [id])?;
            let sql = "INSERT INTO experiment_tags (experiment_id, key, value) VALUES (?1, ?2, ?3)";
            for (key, value) in &one.tags {
                tx.execute(sql, params![id, key, value])?;
            }
            Ok(())
        })
    }

    /// Everything is in the one file when this returns.
    pub fn finish(self) -> Result<()> {
        let failed = |cause: rusqlite::Error| Error::writing("the database", cause);
        self.connection
            .execute_batch("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE;")
            .map_err(failed)
    }
}
