//! Experiment tracking beside the real MLflow: both servers in one run, the same client, the same
//! data. Each measurement is taken on one and then on the other.
//!
//! Must hold: what is compared was checked to be the same work; a reply that is not a 200, or holds
//! less than was asked for, ends the measurement.
//!
//! Not here: correctness (`tests/mlflow`), and the time of artifact uploads, which is the disk's.

mod client;
mod measure;
mod original;
mod peer;
mod population;
mod scale;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use falaj_testkit::database::{POSTGRES_URL, PostgresDatabase};

use crate::report::Report;
use peer::Peer;

/// What is measured, and how much of it.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Options {
    /// The Python that has MLflow; by default $CACHE/mlflow-venv/bin/python, which `make` sets up.
    #[arg(long, env = "FALAJ_MLFLOW_PYTHON")]
    mlflow_python: Option<PathBuf>,
    /// Runs to search among.
    #[arg(long, default_value_t = 100_000)]
    runs: usize,
    /// Points of one metric to read back.
    #[arg(long, default_value_t = 1_000_000)]
    points: usize,
    /// Points to take in, for `scale`; a thousand for each run.
    #[arg(long, default_value_t = 10_000_000)]
    stored_points: usize,
    /// How long each rate is measured, in seconds.
    #[arg(skip = 10_u64)]
    pub(crate) seconds: u64,
    /// Connections that log at the same time.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// The databases to measure on, separated by commas; both if none is named.
    #[arg(long, value_delimiter = ',')]
    databases: Vec<Database>,
    #[arg(skip)]
    pub(crate) without_peers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Database {
    Sqlite,
    Postgres,
}

impl Options {
    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn is_for(&self, database: Database) -> bool {
        self.databases.is_empty() || self.databases.contains(&database)
    }

    fn python(&self) -> Result<PathBuf> {
        if let Some(path) = &self.mlflow_python {
            return Ok(path.clone());
        }
        let cache = std::env::var_os("CACHE").context("name a Python with --mlflow-python")?;
        Ok(PathBuf::from(cache).join("mlflow-venv/bin/python"))
    }
}

/// Both servers, on SQLite and then on PostgreSQL.
pub(crate) async fn measure(report: &mut Report, options: &Options) -> Result<()> {
    if options.is_for(Database::Sqlite) {
        let falaj = Peer::falaj(None).await?;
        let mlflow = original(options, None).await?;
        measure::pair(report, options, "SQLite", &falaj, mlflow.as_ref()).await?;
    }
    if !options.is_for(Database::Postgres) {
        return Ok(());
    }
    let Some((ours, theirs)) = postgres().await?.zip(postgres().await?) else { return Ok(()) };
    let falaj = Peer::falaj(Some(ours.url())).await?;
    let mlflow = original(options, Some(theirs.url())).await?;
    measure::pair(report, options, "PostgreSQL", &falaj, mlflow.as_ref()).await
}

/// The real MLflow, unless Falaj is measured alone.
async fn original(options: &Options, database: Option<String>) -> Result<Option<Peer>> {
    if options.without_peers {
        return Ok(None);
    }
    Peer::mlflow(&options.python()?, database).await.map(Some)
}

/// Falaj alone, as it grows.
pub(crate) async fn scale(report: &mut Report, options: &Options) -> Result<()> {
    if options.is_for(Database::Sqlite) {
        scale::measure(report, options, "SQLite", &Peer::falaj(None).await?).await?;
    }
    if !options.is_for(Database::Postgres) {
        return Ok(());
    }
    let Some(database) = postgres().await? else { return Ok(()) };
    let falaj = Peer::falaj(Some(database.url())).await?;
    scale::measure(report, options, "PostgreSQL", &falaj).await
}

/// A new database, if there is a server for it.
async fn postgres() -> Result<Option<PostgresDatabase>> {
    if std::env::var_os(POSTGRES_URL).is_none() {
        println!("  PostgreSQL: not measured, {POSTGRES_URL} is not set");
        return Ok(None);
    }
    PostgresDatabase::create().await
}
