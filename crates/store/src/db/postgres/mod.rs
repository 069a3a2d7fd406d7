//! The scale-out engine: a pool of connections, one transaction each.
//!
//! The contract is the one SQLite keeps: `Ok` means committed with `synchronous_commit` on, `Err`
//! means rolled back. Transactions run side by side at READ COMMITTED; a rule that spans rows
//! takes [`super::Tx::lock`].

mod bundle;
mod connect;
mod connection;
mod dial;
mod group;
mod memory;
mod merge;
mod pool;
mod value;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use falaj_base::{Error, Result, code};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;

use super::config::{DatabaseConfig, Durability};

pub(super) use connection::Connection;
pub use dial::dial;
pub(super) use group::Shared;
pub(super) use pool::Pool;

/// Where to connect, and how.
struct Target {
    config: tokio_postgres::Config,
    /// Without it, in the clear.
    tls: Option<tokio_postgres_rustls::MakeRustlsConnect>,
}

impl Target {
    fn new(url: &str, config: &DatabaseConfig) -> Result<Self> {
        let (mut parsed, tls) = target(url, &config.ca_file, "database")?;
        parsed.application_name("falaj").connect_timeout(pool::WAIT);
        // The server's own default may be weaker, and would break the promise silently.
        let synchronous = match config.durability {
            Durability::Full => "on",
            Durability::UnsafeOff => "off",
        };
        parsed.options(format!(
            "-c synchronous_commit={synchronous} -c idle_in_transaction_session_timeout=60000"
        ));
        Ok(Self { config: parsed, tls })
    }
}

/// What a URL says, and how to encrypt; not at all if nothing is. Both stand in a section of the
/// settings.
fn target(
    url: &str,
    ca_file: &str,
    section: &str,
) -> Result<(tokio_postgres::Config, Option<tokio_postgres_rustls::MakeRustlsConnect>)> {
    let mut parsed: tokio_postgres::Config = url.parse().map_err(|_| {
        let field = format!("{section}.url");
        Error::new(&code::INVALID_CONFIG, format!("`{field}` is not a postgres:// URL")).at(field)
    })?;
    // Left to itself the driver would send the password in the clear to a server that says it
    // has no TLS. On this machine that is acceptable; across a network it is not.
    if !url.contains("sslmode=") && !is_local(&parsed) {
        parsed.ssl_mode(SslMode::Require);
    }
    let tls = match parsed.get_ssl_mode() {
        SslMode::Disable => None,
        _ => Some(tokio_postgres_rustls::MakeRustlsConnect::new(tls_config(ca_file, section)?)),
    };
    Ok((parsed, tls))
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

fn tls_config(ca_file: &str, section: &str) -> Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    let bad_file = |cause: &dyn std::fmt::Display| {
        let field = format!("{section}.ca_file");
        Error::new(&code::INVALID_CONFIG, format!("`{field}`: {cause}")).at(field)
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
