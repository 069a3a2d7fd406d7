//! The embedded engine: one file, one writer thread with group commit, a pool of readers.
//!
//! Must hold: WAL with `synchronous=FULL`, so the commit that acknowledges a write has been
//! fsynced; readers work on snapshots and neither wait for the writer nor hold it up.

mod reader;
mod writer;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use falaj_base::{Clock, Error, Result, code};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql, ffi};

use super::config::{DatabaseConfig, Durability};
use super::dialect;
use super::value::{Row, Value};
use crate::record::ReplyKey;

pub(super) use reader::Readers;
pub(super) use writer::Writer;

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
        let connection = connect(path, config.durability)?;
        let readers = (0..config.readers)
            .map(|_| connect(path, config.durability))
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            writer: Writer::start(connection, config, clock.clone(), replies)?,
            readers: Readers::new(readers),
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Moves everything from the write-ahead log into the database file and empties the log, so
    /// that what was deleted is in neither.
    pub(super) fn empty_log(&self) -> Result<()> {
        let connection = Connection::open(&self.path).map_err(translate)?;
        connection
            .execute_batch("PRAGMA busy_timeout = 5000; PRAGMA wal_checkpoint(TRUNCATE);")
            .map_err(translate)
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
             PRAGMA busy_timeout = 5000;
             PRAGMA cache_size = -8192;
             PRAGMA temp_store = MEMORY;
             PRAGMA secure_delete = ON;"
        ))
        .map_err(translate)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    Ok(connection)
}

pub(super) fn execute(connection: &Connection, sql: &str, params: &[Value]) -> Result<u64> {
    let mut statement = connection.prepare_cached(sql).map_err(translate)?;
    bind(&mut statement, params)?;
    statement.raw_execute().map(|changed| changed as u64).map_err(translate)
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
    bind(&mut statement, params)?;
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next().map_err(translate)? {
        let values = (0..columns.len())
            .map(|index| row.get_ref(index).map(read).map_err(translate))
            .collect::<Result<_>>()?;
        each(Row { columns: columns.clone(), values })?;
    }
    Ok(())
}

pub(super) fn execute_ddl(connection: &Connection, sql: &str) -> Result<()> {
    connection.execute_batch(&dialect::sqlite_ddl(sql)).map_err(translate)
}

/// Binds by number: SQLite takes `$2` for a *name*, whose index depends on where it first stands.
fn bind(statement: &mut rusqlite::Statement<'_>, params: &[Value]) -> Result<()> {
    let count = statement.parameter_count();
    if count != params.len() {
        let text = format!("the statement has {count} parameters, {} were given", params.len());
        return Err(Error::internal(text));
    }
    for slot in 1..=count {
        let name = statement.parameter_name(slot).unwrap_or_default();
        let number = name.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok());
        let value = number.and_then(|number| params.get(number.wrapping_sub(1)));
        let Some(value) = value else {
            return Err(Error::internal(format!("the statement has no value for {name:?}")));
        };
        statement.raw_bind_parameter(slot, value).map_err(translate)?;
    }
    Ok(())
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(value) => ValueRef::Integer(*value),
            Self::Real(value) => ValueRef::Real(*value),
            Self::Text(value) => ValueRef::Text(value.as_bytes()),
            Self::Blob(value) => ValueRef::Blob(value),
        }))
    }
}

fn read(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Int(value),
        ValueRef::Real(value) => Value::Real(value),
        ValueRef::Text(value) => Value::Text(String::from_utf8_lossy(value).into_owned()),
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
