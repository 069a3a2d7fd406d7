//! `falaj-bench`: speed as ratios within one run. What is measured and why: `bench/README.md`.

#![allow(clippy::print_stdout, reason = "the numbers are the product of this program")]

mod commit;
mod decision;
mod object;
mod report;
mod request;
mod start;
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
}

/// Measures speed, as ratios within one run.
#[derive(Debug, Parser)]
struct Arguments {
    /// What to measure; everything if nothing is named.
    parts: Vec<Part>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match measure(Arguments::parse().parts).await {
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
async fn measure(mut parts: Vec<Part>) -> Result<usize> {
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
    Ok(report.missed())
}
