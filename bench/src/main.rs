//! `falaj-bench`: speed as ratios within one run. What is measured and why: `bench/README.md`.

#![allow(clippy::print_stdout, reason = "the numbers are the product of this program")]

mod commit;
mod decision;
mod executor;
mod features;
mod lanes;
mod object;
mod process;
mod report;
mod request;
mod scheduler;
mod serving;
mod start;
mod tracking;
mod training;
mod ungoverned;
mod wire;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use report::Report;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Commit,
    Request,
    Decision,
    Object,
    Start,
    Tracking,
    Scale,
    Serving,
    Features,
    Scheduler,
    Executor,
    Training,
}

/// Measures speed, as ratios within one run.
#[derive(Debug, Parser)]
struct Arguments {
    /// What to measure; everything if nothing is named.
    parts: Vec<Part>,
    /// How long each rate is measured, in seconds [default: 10, for `serving` 3, for
    /// `features` 5].
    #[arg(long)]
    seconds: Option<u64>,
    /// Measures Falaj alone, where `tracking` and `features` compare it with others.
    #[arg(long)]
    without_peers: bool,
    #[command(flatten, next_help_heading = "For `tracking` and `scale`")]
    tracking: tracking::Options,
    #[command(flatten, next_help_heading = "For `serving`")]
    serving: serving::Options,
    #[command(flatten, next_help_heading = "For `features`")]
    features: features::Options,
    #[command(flatten, next_help_heading = "For `training`")]
    training: training::Options,
}

/// As the platform's own binary has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    // Started by itself, as the server of `request`.
    let outcome = if std::env::args().nth(1).as_deref() == Some("serve") {
        let arguments = ungoverned::Arguments::parse_from(std::env::args().skip(1));
        Box::pin(ungoverned::serve(arguments)).await.map(|()| 0)
    } else {
        measure(Arguments::parse()).await
    };
    match outcome {
        Ok(0) => ExitCode::SUCCESS,
        Ok(missed) => {
            println!("{missed} goals were missed");
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("could not measure: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns how many goals were missed.
async fn measure(arguments: Arguments) -> Result<usize> {
    let Arguments { mut parts, seconds, without_peers, .. } = arguments;
    let Arguments { mut tracking, mut serving, mut features, mut training, .. } = arguments;
    (tracking.without_peers, features.without_peers) = (without_peers, without_peers);
    if let Some(seconds) = seconds {
        (tracking.seconds, serving.seconds, features.seconds) = (seconds, seconds, seconds);
        training.seconds = seconds;
    }
    if parts.is_empty() {
        parts = Part::value_variants().to_vec();
    }
    let mut report = Report::default();
    for part in parts {
        match part {
            Part::Commit => commit::measure(&mut report).await?,
            Part::Request => request::measure(&mut report).await?,
            Part::Decision => decision::measure(&mut report).await?,
            Part::Object => object::measure(&mut report).await?,
            Part::Start => start::measure(&mut report).await?,
            Part::Tracking => tracking::measure(&mut report, &tracking).await?,
            Part::Scale => tracking::scale(&mut report, &tracking).await?,
            Part::Serving => serving::measure(&mut report, &serving).await?,
            Part::Scheduler => scheduler::measure(&mut report)?,
            Part::Executor => executor::measure(&mut report)?,
            Part::Training => training::measure(&mut report, &training).await?,
            Part::Features => features::measure(&mut report, &features).await?,
        }
    }
    Ok(report.missed())
}
