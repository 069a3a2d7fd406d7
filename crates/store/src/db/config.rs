//! What an operator may set about the metadata database.

use std::path::PathBuf;

use falaj_base::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The metadata database: embedded SQLite unless a PostgreSQL URL is given.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DatabaseConfig {
    /// A `postgres://user:password@host/database` URL. Empty means SQLite in the data directory.
    pub url: Secret,
    /// PEM file with the certificate authorities trusted for PostgreSQL; empty means the
    /// system's. TLS is demanded unless the server is on this machine or the URL says
    /// otherwise with `sslmode`.
    pub ca_file: String,
    /// How many PostgreSQL connections to keep at most.
    #[schemars(range(min = 2, max = 1000))]
    pub connections: usize,
    /// How many reads run at once on SQLite.
    #[schemars(range(min = 1, max = 64))]
    pub readers: usize,
    /// How many writes may wait for the SQLite writer before new ones are refused.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub write_queue: usize,
    /// How many waiting writes share one transaction and one fsync at most.
    #[schemars(range(min = 1, max = 10000))]
    pub write_batch: usize,
    /// `full` keeps the promise that acknowledged means durable. `unsafe-off` skips every fsync
    /// and loses data when the power fails: for throw-away experiments only.
    pub durability: Durability,
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        Self {
            url: Secret::default(),
            ca_file: String::new(),
            connections: 16,
            readers: 4,
            write_queue: 4096,
            write_batch: 512,
            durability: Durability::Full,
        }
    }
}

/// Whether an acknowledged write is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    Full,
    UnsafeOff,
}

/// Which engine to open, decided from the configuration and the data directory.
#[derive(Clone, Debug)]
pub enum Location {
    Sqlite(PathBuf),
    Postgres(Secret),
}

impl DatabaseConfig {
    /// SQLite lies in the data directory; a URL means PostgreSQL.
    #[must_use]
    pub fn location(&self, data_dir: &std::path::Path) -> Location {
        if self.url.is_empty() {
            Location::Sqlite(data_dir.join("falaj.db"))
        } else {
            Location::Postgres(self.url.clone())
        }
    }
}
