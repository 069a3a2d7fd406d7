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
}

impl Options {
    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
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
    let python = options.python()?;
    let falaj = Peer::falaj(None).await?;
    let mlflow = Peer::mlflow(&python, None).await?;
    measure::pair(report, options, "SQLite", &falaj, &mlflow).await?;
    drop((falaj, mlflow));
    let Some((ours, theirs)) = postgres().await?.zip(postgres().await?) else { return Ok(()) };
    let falaj = Peer::falaj(Some(ours.url())).await?;
    let mlflow = Peer::mlflow(&python, Some(theirs.url())).await?;
    measure::pair(report, options, "PostgreSQL", &falaj, &mlflow).await
}

/// Falaj alone, as it grows.
pub(crate) async fn scale(report: &mut Report, options: &Options) -> Result<()> {
    scale::measure(report, options, "SQLite", &Peer::falaj(None).await?).await?;
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
