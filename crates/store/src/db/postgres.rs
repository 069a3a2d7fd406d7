//! The scale-out engine: a pool of connections, one transaction each.
//!
//! The contract is the one SQLite keeps: `Ok` means committed with `synchronous_commit` on, `Err`
//! means rolled back. Transactions run side by side at READ COMMITTED; a rule that spans rows
//! takes [`super::Tx::lock`].

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Client, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime, Timeouts};
use falaj_base::{Error, Result, code};
use futures::{StreamExt, TryStreamExt, stream};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::runtime::Handle;
use tokio_postgres::NoTls;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::config::{DatabaseConfig, Durability};
use super::dialect;
use super::value::{Row, Value};

/// How many statements of one call are under way at once.
const PIPELINE: usize = 64;
/// How long a request may wait for a pooled connection, and a connection for its server.
const POOL_WAIT: Duration = Duration::from_secs(10);

pub(super) async fn connect(url: &str, config: &DatabaseConfig) -> Result<Pool> {
    let mut parsed: tokio_postgres::Config = url.parse().map_err(|_| {
        Error::new(&code::INVALID_CONFIG, "`database.url` is not a postgres:// URL")
            .at("database.url")
    })?;
    parsed.application_name("falaj").connect_timeout(POOL_WAIT);
    // The server's own default may be weaker, and would break the promise silently.
    let synchronous = match config.durability {
        Durability::Full => "on",
        Durability::UnsafeOff => "off",
    };
    parsed.options(format!(
        "-c synchronous_commit={synchronous} -c idle_in_transaction_session_timeout=60000"
    ));
    // Left to itself the driver would send the password in the clear to a server that says it has
    // no TLS. On this machine that is acceptable; across a network it is not.
    if !url.contains("sslmode=") && !is_local(&parsed) {
        parsed.ssl_mode(SslMode::Require);
    }
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = if parsed.get_ssl_mode() == SslMode::Disable {
        Manager::from_config(parsed, NoTls, recycling)
    } else {
        let tls = tokio_postgres_rustls::MakeRustlsConnect::new(tls_config(&config.ca_file)?);
        Manager::from_config(parsed, tls, recycling)
    };
    let waits = Timeouts {
        wait: Some(POOL_WAIT),
        create: Some(POOL_WAIT),
        recycle: Some(Duration::from_secs(5)),
    };
    let pool = Pool::builder(manager)
        .max_size(config.connections)
        .runtime(Runtime::Tokio1)
        .timeouts(waits)
        .build()
        .map_err(Error::internal)?;
    client(&pool).await.map(drop)?;
    Ok(pool)
}

fn is_local(config: &tokio_postgres::Config) -> bool {
    config.get_hosts().iter().all(|host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            let address = name.parse::<std::net::IpAddr>();
            name == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
    })
}

fn tls_config(ca_file: &str) -> Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    let bad_file = |cause: &dyn std::fmt::Display| {
        Error::new(&code::INVALID_CONFIG, format!("`database.ca_file`: {cause}"))
            .at("database.ca_file")
    };
    if ca_file.is_empty() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    } else {
        let certificates = CertificateDer::pem_file_iter(ca_file).map_err(|e| bad_file(&e))?;
        for certificate in certificates {
            roots.add(certificate.map_err(|e| bad_file(&e))?).map_err(|e| bad_file(&e))?;
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Error::internal)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

pub(super) async fn client(pool: &Pool) -> Result<Client> {
    pool.get().await.map_err(|error| {
        Error::new(&code::UNAVAILABLE, "the metadata database does not answer")
            .retry_after(Duration::from_secs(2))
            .caused_by(error)
    })
}

/// A connection inside a transaction, driven from synchronous code on a blocking thread.
pub(super) struct PgSession<'a> {
    client: &'a Client,
    runtime: Handle,
}

impl<'a> PgSession<'a> {
    pub(super) fn new(client: &'a Client, runtime: Handle) -> Self {
        Self { client, runtime }
    }

    pub(super) fn execute(&self, sql: &str, params: &[Value]) -> Result<u64> {
        self.runtime.block_on(async {
            let statement = self.client.prepare_cached(sql).await.map_err(translate)?;
            let params = params.iter().map(|value| value as &(dyn ToSql + Sync));
            self.client.execute_raw(&statement, params).await.map_err(translate)
        })
    }

    pub(super) fn execute_many(
        &self,
        sql: &str,
        rows: impl Iterator<Item = impl AsRef<[Value]>>,
    ) -> Result<u64> {
        self.runtime.block_on(async {
            let statement = self.client.prepare_cached(sql).await.map_err(translate)?;
            let execute = async |row: &[Value]| {
                let params = row.iter().map(|value| value as &(dyn ToSql + Sync));
                self.client.execute_raw(&statement, params).await.map_err(translate)
            };
            // The connection sends them as they come and answers in order; after a failure the
            // server refuses what follows, so the first error is the true one.
            stream::iter(rows)
                .map(async |row| execute(row.as_ref()).await)
                .buffered(PIPELINE)
                .try_fold(0, async |sum, changed| Ok(sum + changed))
                .await
        })
    }

    pub(super) fn query(&self, sql: &str, params: &[Value]) -> Result<Vec<Row>> {
        let mut found = Vec::new();
        self.scan(sql, params, &mut |row| {
            found.push(row);
            Ok(())
        })?;
        Ok(found)
    }

    pub(super) fn scan(
        &self,
        sql: &str,
        params: &[Value],
        each: &mut dyn FnMut(Row) -> Result<()>,
    ) -> Result<()> {
        let (columns, rows) = self.runtime.block_on(async {
            let statement = self.client.prepare_cached(sql).await.map_err(translate)?;
            let columns: Arc<[String]> =
                statement.columns().iter().map(|column| column.name().to_owned()).collect();
            let params = params.iter().map(|value| value as &(dyn ToSql + Sync));
            let rows = self.client.query_raw(&statement, params).await.map_err(translate)?;
            Ok((columns, rows))
        })?;
        // The caller's code runs outside the runtime: it may block.
        let mut rows = std::pin::pin!(rows);
        while let Some(row) = self.runtime.block_on(rows.next()) {
            let row = row.map_err(translate)?;
            let values = (0..columns.len())
                .map(|index| row.try_get::<_, Value>(index).map_err(translate))
                .collect::<Result<_>>()?;
            each(Row { columns: columns.clone(), values })?;
        }
        Ok(())
    }

    pub(super) fn execute_ddl(&self, sql: &str) -> Result<()> {
        self.batch(&dialect::postgres_ddl(sql))
    }

    /// Runs transaction control, which takes no parameters.
    pub(super) fn batch(&self, sql: &str) -> Result<()> {
        self.runtime.block_on(self.client.batch_execute(sql)).map_err(translate)
    }
}

type BoxedError = Box<dyn std::error::Error + Sync + Send>;

impl ToSql for Value {
    fn to_sql(&self, kind: &Type, out: &mut bytes::BytesMut) -> Result<IsNull, BoxedError> {
        match (self, kind) {
            (Self::Null, _) => Ok(IsNull::Yes),
            (Self::Int(value), &Type::INT8) => value.to_sql(kind, out),
            (Self::Int(value), &Type::INT4) => i32::try_from(*value)?.to_sql(kind, out),
            (Self::Int(value), &Type::BOOL) => (*value != 0).to_sql(kind, out),
            #[allow(clippy::cast_precision_loss, reason = "the column asked for a float")]
            (Self::Int(value), &Type::FLOAT8) => (*value as f64).to_sql(kind, out),
            (Self::Real(value), &Type::FLOAT8) => value.to_sql(kind, out),
            (Self::Text(value), _) => value.to_sql(kind, out),
            (Self::Blob(value), &Type::BYTEA) => value.to_sql(kind, out),
            (value, kind) => Err(format!("{value:?} cannot be bound as {kind}").into()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, BoxedError> {
        Ok(match *kind {
            Type::INT8 => Self::Int(i64::from_sql(kind, raw)?),
            Type::INT4 => Self::Int(i32::from_sql(kind, raw)?.into()),
            Type::BOOL => Self::Int(bool::from_sql(kind, raw)?.into()),
            Type::FLOAT8 => Self::Real(f64::from_sql(kind, raw)?),
            Type::BYTEA => Self::Blob(Vec::from_sql(kind, raw)?),
            _ => Self::Text(FromSql::from_sql(kind, raw)?),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, BoxedError> {
        Ok(Self::Null)
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::INT8 | Type::INT4 | Type::BOOL | Type::FLOAT8 | Type::BYTEA)
            || <String as FromSql>::accepts(kind)
    }
}

/// The engine's error in our terms.
fn translate(error: tokio_postgres::Error) -> Error {
    let unavailable = || {
        Error::new(&code::UNAVAILABLE, "the metadata database stopped answering")
            .retry_after(Duration::from_secs(2))
    };
    let translated = match error.code() {
        None if error.is_closed() => unavailable(),
        Some(state) if *state == SqlState::UNIQUE_VIOLATION => {
            Error::new(&code::ALREADY_EXISTS, "it already exists")
        }
        Some(state) if *state == SqlState::FOREIGN_KEY_VIOLATION => {
            Error::new(&code::IN_USE, "something still depends on it")
        }
        Some(state) if *state == SqlState::DISK_FULL => {
            Error::new(&code::STORAGE_FULL, "the metadata database's disk is full")
        }
        // A NUL character is a valid text here and in SQLite, but not in PostgreSQL.
        Some(state) if *state == SqlState::CHARACTER_NOT_IN_REPERTOIRE => {
            Error::new(&code::INVALID_INPUT, "a text holds a NUL character, which cannot be kept")
        }
        // 08: connection, 57P: shut down by the operator, 53300: too many connections,
        // 40: deadlock or serialisation failure, which a repeat may well survive.
        Some(state) if ["08", "57P", "53300", "40"].iter().any(|p| state.code().starts_with(p)) => {
            unavailable()
        }
        _ => return Error::internal(error),
    };
    translated.caused_by(error)
}
