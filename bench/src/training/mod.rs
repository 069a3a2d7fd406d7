//! Training jobs through the API of a real server: taking them in, running them, telling why they wait; and
//! what Slurm does of that on the same machine.
//!
//! Must hold: every submission is durable before it is answered, as always; whatever is counted as run has
//! succeeded, and was looked up.
//!
//! Not here: the scheduler's core alone (`scheduler`), the executor alone (`executor`).

mod queued;
mod short;
mod site;
mod slurm;

use std::time::Duration;

use anyhow::Result;
use falaj_testkit::database::{POSTGRES_URL, PostgresDatabase};

use crate::report::Report;

/// How much is measured.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Options {
    /// Clients that submit at the same time.
    #[arg(long, default_value_t = 64)]
    submitters: usize,
    /// Tasks of an array.
    #[arg(long, default_value_t = 100_000)]
    array_tasks: usize,
    /// Short jobs that are run to their end.
    #[arg(long, default_value_t = 2000)]
    short_jobs: usize,
    /// How long each rate is measured, in seconds.
    #[arg(skip = 10_u64)]
    pub(crate) seconds: u64,
}

impl Options {
    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

pub(crate) async fn measure(report: &mut Report, options: &Options) -> Result<()> {
    one(report, options, "SQLite", None).await?;
    if std::env::var_os(POSTGRES_URL).is_none() {
        println!("  PostgreSQL: not measured, {POSTGRES_URL} is not set");
    } else if let (Some(first), Some(second)) =
        (PostgresDatabase::create().await?, PostgresDatabase::create().await?)
    {
        one(report, options, "PostgreSQL", Some((first.url(), second.url()))).await?;
    }
    slurm::measure(report)
}

/// All of it on one engine. Jobs that only wait and jobs that run are on servers of their own.
async fn one(
    report: &mut Report,
    options: &Options,
    engine: &str,
    databases: Option<(String, String)>,
) -> Result<()> {
    let (first, second) = databases.unzip();
    queued::measure(report, options, engine, first).await?;
    short::measure(report, options, engine, second).await
}
