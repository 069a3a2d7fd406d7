//! The feature store beside others: the historical join, and the latest values.
//!
//! Must hold: whatever is compared answers the same, value by value, or nothing is told of it.
//!
//! Not here: which answers are right (`crates/features`, `tests/feast`).

mod falaj;
mod join;
mod materialize;
mod online;
mod pace;
mod push;
mod python;
mod store;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::report::Report;
use python::Environments;

/// What is measured of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Measure {
    /// A row, and 100, of a million in the embedded online store.
    Store,
    /// The latest values over HTTP, beside `feast serve`.
    Online,
    /// From a push until its rows are read.
    Push,
    /// A million rows brought online, beside Feast.
    Materialize,
    /// The historical join, beside Polars, `DuckDB` and Feast.
    Join,
    /// The same with less memory than data.
    Memory,
    /// Reading among 1, 10 and 50 million keys.
    Keys,
}

#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Options {
    /// What `bench/features/setup` makes, and the data; by default $CACHE/bench-features.
    #[arg(long, env = "FALAJ_BENCH_FEATURES")]
    folder: Option<PathBuf>,
    /// What to measure of features, separated by commas; everything if nothing is named.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Measure>,
    #[arg(skip)]
    pub(crate) without_peers: bool,
    /// Keys at most, for `keys`.
    #[arg(long, default_value_t = 50_000_000)]
    keys: i64,
    /// How long each rate is measured, in seconds.
    #[arg(skip = 5_u64)]
    pub(crate) seconds: u64,
}

pub(crate) async fn measure(report: &mut Report, options: &Options) -> Result<()> {
    println!("features");
    let run = Duration::from_secs(options.seconds);
    let peers = !options.without_peers;
    let folder = options.folder.clone().map_or_else(
        || {
            let cache = std::env::var_os("CACHE").context("name a folder with --folder")?;
            anyhow::Ok(PathBuf::from(cache).join("bench-features"))
        },
        Ok,
    )?;
    std::fs::create_dir_all(&folder)?;
    let environments = Environments(folder);
    let wanted = match options.only.as_slice() {
        [] => Measure::value_variants(),
        some => some,
    };
    for measure in wanted {
        match measure {
            Measure::Store => tokio::task::block_in_place(|| store::one_and_many(report))?,
            Measure::Online => online::online(report, &environments, run, peers).await?,
            Measure::Push => push::push(report, run).await?,
            Measure::Materialize => {
                materialize::materialize(report, &environments, peers).await?;
            }
            Measure::Join => join::join(report, &environments, peers).await?,
            Measure::Memory => join::memory(report, &environments).await?,
            Measure::Keys => {
                tokio::task::block_in_place(|| store::keys(report, options.keys, &environments.0))?;
            }
        }
    }
    Ok(())
}

/// Numbers that jump about, the same in every run.
struct Jumps(u64);

impl Jumps {
    fn below(&mut self, limit: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        i64::try_from(self.0 >> 33).unwrap_or(0) % limit
    }
}
