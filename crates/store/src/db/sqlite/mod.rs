//! The embedded engine: one file, one writer thread with group commit, a pool of readers.
//!
//! Must hold: WAL with `synchronous=FULL`, so the commit that acknowledges a write has been
//! fsynced; readers work on snapshots and neither wait for the writer nor hold it up.

mod bind;
mod checkpoint;
mod patience;
mod reader;
mod writer;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use falaj_base::{Clock, Error, Result, code};
use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};

use super::config::{DatabaseConfig, Durability};
use super::dialect;
use super::value::{Row, Value};
use crate::record::ReplyKey;
use bind::Slots;
use checkpoint::Moved;

pub(super) use reader::Readers;
pub(super) use writer::Writer;

/// How long somebody else's lock is waited for.
const BUSY: Duration = Duration::from_secs(5);
/// How often it is tried to empty a log that is in use.
const SCRUB_AGAIN: Duration = Duration::from_millis(5);

/// Prepared statements kept per connection.
const STATEMENT_CACHE: usize = 256;

pub(super) struct Sqlite {
    pub(super) writer: Writer,
    pub(super) readers: Readers,
    path: PathBuf,
    /// Held while the store is open: a second server on the same file would break group commit.
    _lock: File,
}

impl Sqlite {
    pub(super) fn open(
        path: &Path,
        config: &DatabaseConfig,
        clock: &Clock,
        replies: ReplyKey,
    ) -> Result<Self> {
        let lock = lock_file(path)?;
        let (durability, file) = (config.durability, path.to_owned());
        let connections = (connect(path, durability)?, connect(path, durability)?);
        Ok(Self {
            writer: Writer::start(connections, config, clock.clone(), replies)?,
            readers: Readers::new(config.readers, move || connect(&file, durability))?,
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Moves everything from the write-ahead log into the database file and empties the log, so
    /// that what was deleted is in neither.
    pub(super) fn empty_log(&self) -> Result<()> {
        let connection = Connection::open(&self.path).map_err(translate)?;
        connection.busy_timeout(BUSY).map_err(translate)?;
        // Readers are waited for; whoever moves the log at this moment is not, and that is told in a row.
        let until = Instant::now() + BUSY;
        while checkpoint::run(&connection, "TRUNCATE").map_err(translate)? == Moved::Busy {
            if Instant::now() >= until {
                let text = "the write-ahead log is in use and could not be emptied";
                return Err(Error::new(&code::UNAVAILABLE, text));
            }
            std::thread::sleep(SCRUB_AGAIN);
        }
        Ok(())
    }
}

fn lock_file(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path.with_extension("lock"))
        .map_err(Error::internal)?;
    file.try_lock().map_err(|held| {
        Error::new(&code::CONFLICT, format!("{} is in use by another server", path.display()))
            .caused_by(held)
    })?;
    Ok(file)
}

fn connect(path: &Path, durability: Durability) -> Result<Connection> {
    // Created by hand first: SQLite would leave it readable for everyone under a wide umask.
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path).map_err(
        |error| {
            Error::new(&code::UNAVAILABLE, format!("cannot open {}", path.display()))
                .caused_by(error)
        },
    )?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(translate)?;
    connection.busy_timeout(BUSY).map_err(translate)?;
    let synchronous = match durability {
        Durability::Full => "FULL",
        Durability::UnsafeOff => "OFF",
    };
    // Secure delete: what a destroyed key was wrapped in must not linger in free pages.
    connection
        .execute_batch(&format!(
            "PRAGMA journal_mode = WAL;
             PRAGMA synchronous = {synchronous};
             PRAGMA foreign_keys = ON;
             PRAGMA cache_size = -8192;
             PRAGMA temp_store = MEMORY;
             PRAGMA secure_delete = ON;"
        ))
        .map_err(translate)?;
    // A plan does not depend on what is bound. Otherwise a statement with `LIMIT $1` is compiled
    // anew at each use, at several times the cost of running it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(translate)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    Ok(connection)
}

pub(super) fn execute(connection: &Connection, sql: &str, params: &[Value]) -> Result<u64> {
    let mut statement = connection.prepare_cached(sql).map_err(translate)?;
    Slots::of(&statement)?.bind(&mut statement, params)?;
    statement.raw_execute().map(|changed| changed as u64).map_err(translate)
}

pub(super) fn execute_many(
    connection: &Connection,
    sql: &str,
    rows: impl Iterator<Item = impl AsRef<[Value]>>,
) -> Result<u64> {
    let mut statement = connection.prepare_cached(sql).map_err(translate)?;
    let slots = Slots::of(&statement)?;
    let mut changed = 0;
    for row in rows {
        slots.bind(&mut statement, row.as_ref())?;
        changed += statement.raw_execute().map_err(translate)? as u64;
    }
    Ok(changed)
}

pub(super) fn query(connection: &Connection, sql: &str, params: &[Value]) -> Result<Vec<Row>> {
    let mut found = Vec::new();
    scan(connection, sql, params, &mut |row| {
        found.push(row);
        Ok(())
    })?;
    Ok(found)
}

pub(super) fn scan(
    connection: &Connection,
    sql: &str,
    params: &[Value],
    each: &mut dyn FnMut(Row) -> Result<()>,
) -> Result<()> {
    let mut statement = connection.prepare_cached(sql).map_err(translate)?;
    let columns: Arc<[String]> = statement.column_names().map(str::to_owned).collect();
    Slots::of(&statement)?.bind(&mut statement, params)?;
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next().map_err(translate)? {
        let values = (0..columns.len())
            .map(|index| row.get_ref(index).map(read).map_err(translate))
            .collect::<Result<_>>()?;
        each(Row { columns: columns.clone(), values })?;
    }
    Ok(())
}

/// Begins or ends a transaction or a part of one: often, so not compiled each time.
fn control(connection: &Connection, verb: &str) -> Result<()> {
    let mut statement = connection.prepare_cached(verb).map_err(translate)?;
    statement.raw_execute().map(drop).map_err(translate)
}

pub(super) fn execute_ddl(connection: &Connection, sql: &str) -> Result<()> {
    connection.execute_batch(&dialect::sqlite_ddl(sql)).map_err(translate)
}

fn read(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Int(value),
        ValueRef::Real(value) => Value::Real(value),
        ValueRef::Text(value) => Value::Text(match std::str::from_utf8(value) {
            // Checks many bytes at once, which the other does not.
            Ok(text) => text.to_owned(),
            Err(_) => String::from_utf8_lossy(value).into_owned(),
        }),
        ValueRef::Blob(value) => Value::Blob(value.to_vec()),
    }
}

/// The engine's error in our terms.
pub(super) fn translate(error: rusqlite::Error) -> Error {
    let translated = match error.sqlite_error() {
        Some(cause) if cause.code == ErrorCode::DiskFull => disk_full(),
        Some(cause) if cause.code == ErrorCode::SystemIoFailure => match cause.extended_code {
            // On a full disk the write-ahead index cannot grow; SQLite reports that as I/O.
            ffi::SQLITE_IOERR_SHMSIZE | ffi::SQLITE_IOERR_WRITE | ffi::SQLITE_IOERR_TRUNCATE => {
                disk_full()
            }
            _ => return Error::internal(error),
        },
        Some(cause) if cause.code == ErrorCode::ConstraintViolation => match cause.extended_code {
            ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY => {
                Error::new(&code::ALREADY_EXISTS, "it already exists")
            }
            ffi::SQLITE_CONSTRAINT_FOREIGNKEY => {
                Error::new(&code::IN_USE, "something still depends on it")
            }
            _ => return Error::internal(error),
        },
        _ => return Error::internal(error),
    };
    translated.caused_by(error)
}

fn disk_full() -> Error {
    Error::new(&code::STORAGE_FULL, "the metadata store's disk is full; free space and try again")
}
