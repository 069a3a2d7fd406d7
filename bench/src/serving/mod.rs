//! Model serving beside other servers, and beside the engine without a server: the same client, the
//! same models, the same questions, one server after the other in every round.
//!
//! Must hold: before anything is measured, every server was seen to answer as the engine does; a
//! reply that is not the answer ends the measurement, except where refusals are what is measured.
//!
//! Not here: correctness of the protocol (`tests/serving`), and how fast the engines are by
//! themselves (`crates/inference/examples/speed.rs`).

mod engine;
mod falaj;
mod load;
mod measure;
mod models;
mod paced;
mod peer;
mod reply;
mod target;
mod wires;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::report::Report;
use measure::World;

/// What is measured of serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Measure {
    /// A model of some milliseconds over REST, beside its engine alone.
    Throughput,
    /// Small models over REST, beside other servers.
    Peers,
    /// How long an answer takes at half load.
    Latency,
    /// What it brings to compute requests together.
    Batching,
    /// What it costs to share requests out and to keep them.
    Traffic,
    /// Five times as many requests as can be answered.
    Overload,
    /// Memory over a million requests.
    Memory,
}

#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Options {
    /// The environments that `bench/serving/setup` makes; by default $CACHE/bench-serving.
    #[arg(long, env = "FALAJ_BENCH_SERVING")]
    environments: Option<PathBuf>,
    /// What to measure, separated by commas; everything if nothing is named.
    #[arg(long = "of", value_delimiter = ',')]
    of: Vec<Measure>,
    /// How often each server gets its turn; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How many requests memory is watched over.
    #[arg(long, default_value_t = 1_000_000)]
    requests: usize,
    /// How long each rate is measured, in seconds.
    #[arg(skip = 3_u64)]
    pub(crate) seconds: u64,
}

impl Options {
    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn environments(&self) -> Result<PathBuf> {
        if let Some(path) = &self.environments {
            return Ok(path.clone());
        }
        let cache = std::env::var_os("CACHE").context("name a folder with --environments")?;
        Ok(PathBuf::from(cache).join("bench-serving"))
    }
}

pub(crate) async fn measure(report: &mut Report, options: &Options) -> Result<()> {
    let world = World::new(options).await?;
    let wanted = match options.of.as_slice() {
        [] => Measure::value_variants(),
        some => some,
    };
    for measure in wanted {
        match measure {
            Measure::Throughput => world.throughput(report).await?,
            Measure::Peers => world.peers(report).await?,
            Measure::Latency => world.latency(report).await?,
            Measure::Batching => world.batching(report).await?,
            Measure::Traffic => world.traffic(report).await?,
            Measure::Overload => world.overload(report).await?,
            Measure::Memory => world.memory(report).await?,
        }
    }
    Ok(())
}
