//! One way to ask either database, which is only read. A whole store is read in one snapshot, so that
//! what goes on meanwhile is not half seen. Of one that grows every statement is one of its own:
//! a snapshot of SQLite would keep whoever logs waiting.

use std::path::Path;
use std::sync::Arc;

use futures::{StreamExt, pin_mut};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls};

use crate::error::{Error, Result};
use crate::source::Reading;

#[derive(Debug)]
pub(super) enum Engine {
    Sqlite(Box<Connection>),
    Postgres(Box<Client>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Null,
    Int(i64),
    Real(f64),
    Text(String),
}

/// Values by position. What has another type than was expected reads as nothing.
#[derive(Debug)]
pub(super) struct Row(Vec<Cell>);

impl Row {
    /// A text, or a number as one.
    pub(super) fn text(&self, at: usize) -> String {
        self.opt_text(at).unwrap_or_default()
    }

    pub(super) fn opt_text(&self, at: usize) -> Option<String> {
        match self.0.get(at)? {
            Cell::Null => None,
            Cell::Int(number) => Some(number.to_string()),
            Cell::Real(number) => Some(number.to_string()),
            Cell::Text(text) => Some(text.clone()),
        }
    }

    pub(super) fn int(&self, at: usize) -> Option<i64> {
        match self.0.get(at)? {
            Cell::Int(number) => Some(*number),
            Cell::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "a whole number in a column of reals")]
    pub(super) fn real(&self, at: usize) -> Option<f64> {
        match self.0.get(at)? {
            Cell::Real(number) => Some(*number),
            Cell::Int(number) => Some(*number as f64),
            _ => None,
        }
    }
}

impl Engine {
    pub(super) fn sqlite(path: &Path, reading: Reading) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || {
            let connection = Connection::open_with_flags(path, flags)?;
            connection.busy_timeout(std::time::Duration::from_secs(10))?;
            let begin = if reading == Reading::Whole { "BEGIN; " } else { "" };
            connection.execute_batch(&format!("{begin}SELECT 1 FROM sqlite_master LIMIT 1;"))?;
            Ok(connection)
        };
        open().map(Box::new).map(Self::Sqlite).map_err(|cause: rusqlite::Error| Error::Read {
            what: path.display().to_string(),
            cause: cause.to_string(),
        })
    }

    pub(super) async fn postgres(url: &str, reading: Reading) -> Result<Self> {
        let unreadable = || Error::Unsupported("this is not a postgresql:// URL".to_owned());
        let mut config: tokio_postgres::Config = url.parse().map_err(|_| unreadable())?;
        config.application_name("falaj import");
        let local = config.get_hosts().iter().all(|host| match host {
            Host::Unix(_) => true,
            Host::Tcp(name) => {
                let address = name.parse::<std::net::IpAddr>();
                name == "localhost" || address.is_ok_and(|address| address.is_loopback())
            }
        });
        // A password does not travel in the clear unless that was asked for.
        if !url.contains("sslmode=") && !local {
            config.ssl_mode(SslMode::Require);
        }
        let client = if config.get_ssl_mode() == SslMode::Disable {
            let (client, connection) = config.connect(NoTls).await.map_err(connecting)?;
            tokio::spawn(connection);
            client
        } else {
            let tls = tokio_postgres_rustls::MakeRustlsConnect::new(trust()?);
            let (client, connection) = config.connect(tls).await.map_err(connecting)?;
            tokio::spawn(connection);
            client
        };
        let begin = match reading {
            Reading::Whole => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            Reading::Growing => "SET default_transaction_read_only = on",
        };
        client.batch_execute(begin).await.map_err(Error::database)?;
        Ok(Self::Postgres(Box::new(client)))
    }

    /// Lists tables with their columns.
    pub(super) fn columns_sql(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => {
                "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c
                 WHERE m.type = 'table'"
            }
            Self::Postgres(_) => {
                "SELECT table_name::text, column_name::text FROM information_schema.columns
                 WHERE table_schema = ANY (current_schemas(false))"
            }
        }
    }

    pub(super) async fn query(&self, sql: &str, values: &[&str]) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        self.each(sql, values, |row| {
            rows.push(row);
            Ok(())
        })
        .await?;
        Ok(rows)
    }

    /// Hands over row by row. Values are texts, `$1` first, each named once and in order.
    pub(super) async fn each(
        &self,
        sql: &str,
        values: &[&str],
        mut each: impl FnMut(Row) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Sqlite(connection) => {
                let mut statement = connection.prepare_cached(sql).map_err(Error::database)?;
                let columns = statement.column_count();
                let mut rows =
                    statement.query(rusqlite::params_from_iter(values)).map_err(Error::database)?;
                while let Some(row) = rows.next().map_err(Error::database)? {
                    let cell = |at| row.get_ref(at).map(sqlite_cell).map_err(Error::database);
                    each(Row((0..columns).map(cell).collect::<Result<_>>()?))?;
                }
                Ok(())
            }
            Self::Postgres(client) => {
                let statement = client.prepare(sql).await.map_err(Error::database)?;
                let rows = client.query_raw(&statement, values).await.map_err(Error::database)?;
                pin_mut!(rows);
                while let Some(row) = rows.next().await {
                    each(postgres_row(&row.map_err(Error::database)?)?)?;
                }
                Ok(())
            }
        }
    }
}

fn connecting(cause: tokio_postgres::Error) -> Error {
    // The outer error says only where it happened.
    let why = std::error::Error::source(&cause).map_or(cause.to_string(), ToString::to_string);
    Error::Read { what: "the database".to_owned(), cause: why }
}

fn trust() -> Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Error::database)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

fn sqlite_cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::Int(number),
        ValueRef::Real(number) => Cell::Real(number),
        ValueRef::Text(text) | ValueRef::Blob(text) => {
            Cell::Text(String::from_utf8_lossy(text).into_owned())
        }
    }
}

fn postgres_row(row: &tokio_postgres::Row) -> Result<Row> {
    let mut cells = Vec::with_capacity(row.len());
    for (at, column) in row.columns().iter().enumerate() {
        let cell = match *column.type_() {
            Type::INT2 => {
                row.try_get::<_, Option<i16>>(at).map(|n| n.map(i64::from).map(Cell::Int))
            }
            Type::INT4 => {
                row.try_get::<_, Option<i32>>(at).map(|n| n.map(i64::from).map(Cell::Int))
            }
            Type::INT8 => row.try_get::<_, Option<i64>>(at).map(|n| n.map(Cell::Int)),
            Type::BOOL => {
                row.try_get::<_, Option<bool>>(at).map(|b| b.map(i64::from).map(Cell::Int))
            }
            Type::FLOAT4 => {
                row.try_get::<_, Option<f32>>(at).map(|n| n.map(f64::from).map(Cell::Real))
            }
            Type::FLOAT8 => row.try_get::<_, Option<f64>>(at).map(|n| n.map(Cell::Real)),
            _ => row.try_get::<_, Option<String>>(at).map(|text| text.map(Cell::Text)),
        };
        cells.push(cell.map_err(Error::database)?.unwrap_or(Cell::Null));
    }
    Ok(Row(cells))
}
