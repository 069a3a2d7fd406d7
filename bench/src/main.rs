//! `falaj-bench`: speed as ratios within one run. What is measured and why: `bench/README.md`.

#![allow(clippy::print_stdout, reason = "the numbers are the product of this program")]

mod commit;
mod decision;
mod object;
mod report;
mod request;
mod start;
mod wire;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use report::Report;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Commit,
    Request,
    Decision,
    Object,
    Start,
}

/// Measures speed, as ratios within one run.
#[derive(Debug, Parser)]
struct Arguments {
    /// What to measure; everything if nothing is named.
    parts: Vec<Part>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut parts = Arguments::parse().parts;
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
        }
    }
    ensure!(report.missed() == 0, "{} goals were missed", report.missed());
    Ok(())
}
