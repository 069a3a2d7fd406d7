//! `falaj simulate`: yesterday's jobs under other policies, by the scheduler's own core.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use falaj_scheduler::order::{self, NAMES};
use falaj_scheduler::simulate::{Outcome, Setup, Trace, run, svg};
use flate2::read::MultiGzDecoder;
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit::{Exit, Failure, Result};
use crate::output::Column;
use crate::output::progress::Ticker;

/// The most that is read of a trace, unpacked.
const LARGEST: u64 = 1 << 30;
const DAY: f64 = 86_400_000.0;

/// Try scheduling policies on a trace of jobs
///
/// The trace is a CSV file, gzipped or not, with the columns `submit_s`, `duration_s`, `gpus` and `vc`
/// (the tenant), and `priority` and `time_limit_s` if there are any. Jobs of up to a node's GPUs are placed on
/// one node, larger ones on whole nodes. The policies: fifo, fifo-backfill (knows durations), srtf
/// (an oracle), tiresias (placing all anew at rounds), tiresias-calm (the same order with our exchange of jobs),
/// las, drf, themis (an oracle), falaj (the default).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  falaj simulate jobs.csv.gz --policy all --plot jobs.svg
  falaj simulate jobs.csv --policy tiresias --policy falaj --nodes 16 --from-day 14
  falaj simulate jobs.csv --half-life 7d")]
pub(crate) struct Simulate {
    /// The trace.
    #[arg(value_name = "FILE")]
    trace: PathBuf,
    /// Nodes of the cluster.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    nodes: u32,
    /// GPUs of each node.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=16))]
    gpus_per_node: u8,
    /// The policy; several times for several, `all` for all.
    #[arg(long, value_name = "NAME", default_value = "falaj")]
    policy: Vec<String>,
    /// Seconds between the rounds at which running jobs may be displaced.
    #[arg(long, value_name = "SECONDS", default_value_t = 300,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    round: u64,
    /// Seconds of work that a job loses each time it is stopped or moved.
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(0..=86_400))]
    lost: u64,
    /// What a GPU costs for an hour.
    #[arg(long, value_name = "PRICE", default_value_t = 2.0)]
    gpu_hour: f64,
    /// Let tenants share everything by what they have and have had, of which half is forgotten in this time.
    #[arg(long, value_name = "DURATION")]
    half_life: Option<falaj_base::HumanDuration>,
    /// Only jobs submitted from this day of the trace on.
    #[arg(long, value_name = "DAY", default_value_t = 0.0)]
    from_day: f64,
    /// Only jobs submitted before this day.
    #[arg(long, value_name = "DAY")]
    to_day: Option<f64>,
    /// Draw completion times into an SVG file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

const COLUMNS: &[Column] = &[
    ("policy", "policy"),
    ("avg JCT h", "shown.average_jct"),
    ("median", "shown.median_jct"),
    ("p99", "shown.p99_jct"),
    ("queueing h", "shown.average_queueing"),
    ("util %", "shown.utilisation"),
    ("preemptions", "preemptions"),
    ("rho>1 %", "shown.unfair"),
    ("GPU-hours", "shown.gpu_hours"),
    ("cost", "shown.cost"),
    ("jobs", "jobs"),
    ("refused", "refused"),
];

impl Simulate {
    pub(crate) fn run(self, ctx: &Context) -> Result<()> {
        let policies = self.policies()?;
        let trace = self.read()?;
        let setup = Setup {
            nodes: self.nodes,
            gpus_per_node: self.gpus_per_node,
            round: self.round * 1000,
            lost: self.lost * 1000,
            price: self.gpu_hour,
            half_life: self
                .half_life
                .map_or(0, |it| u64::try_from(it.get().as_millis()).unwrap_or(u64::MAX)),
        };
        ctx.output.say(&format!(
            "{} jobs of {} tenants on {} nodes of {} GPUs",
            trace.jobs.len(),
            trace.tenants.len(),
            setup.nodes,
            setup.gpus_per_node
        ));
        let mut ticker = Ticker::new(ctx.output);
        let mut outcomes = Vec::new();
        for name in policies {
            let Some(policy) = order::by_name(name) else { continue };
            let outcome = run(&trace, &setup, policy, &mut |done, total| {
                ticker.tick(|| format!("{name}: {done} of {total} jobs done"));
            });
            outcomes.push(outcome);
        }
        if let Some(path) = &self.plot {
            std::fs::write(path, svg(&outcomes)).map_err(|error| unusable(path, &error))?;
        }
        let rows: Vec<Value> = outcomes.iter().map(row).collect();
        if ctx.output.is_json() {
            return ctx.output.json(&Value::Array(rows.into_iter().map(without_texts).collect()));
        }
        ctx.output.list(&rows, COLUMNS)
    }

    fn policies(&self) -> Result<Vec<&'static str>> {
        let mut chosen = Vec::new();
        for name in &self.policy {
            if name == "all" {
                return Ok(NAMES.to_vec());
            }
            let known = NAMES.into_iter().find(|known| known == name).ok_or_else(|| {
                let names = NAMES.join(", ");
                Failure::new(Exit::Usage, format!("--policy: `{name}` is none of {names}, all"))
            })?;
            chosen.push(known);
        }
        Ok(chosen)
    }

    fn read(&self) -> Result<Trace> {
        let file = File::open(&self.trace).map_err(|error| unusable(&self.trace, &error))?;
        let file = BufReader::new(file);
        let packed = self.trace.extension().is_some_and(|ending| ending == "gz");
        let reader: Box<dyn Read> =
            if packed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
        let mut text = String::new();
        let read = reader.take(LARGEST + 1).read_to_string(&mut text);
        let size = read.map_err(|error| unusable(&self.trace, &error))?;
        if size as u64 > LARGEST {
            let what = format!("{}: larger than {LARGEST} bytes", self.trace.display());
            return Err(Failure::new(Exit::Usage, what));
        }
        let trace = Trace::parse(&text).map_err(|error| {
            Failure::new(Exit::Usage, format!("{}: {error}", self.trace.display()))
        })?;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "days of a trace, and not negative"
        )]
        let within = |day: f64| (day.max(0.0) * DAY) as u64;
        Ok(trace.between(within(self.from_day), self.to_day.map_or(u64::MAX, within)))
    }
}

fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{}: {error}", path.display()))
}

fn row(outcome: &Outcome) -> Value {
    let number = |value: f64, digits: usize| format!("{value:.digits$}");
    json!({
        "policy": outcome.policy,
        "jobs": outcome.jobs,
        "refused": outcome.refused,
        "average_jct_hours": outcome.average_jct,
        "median_jct_hours": outcome.median_jct,
        "p99_jct_hours": outcome.p99_jct,
        "average_queueing_hours": outcome.average_queueing,
        "utilisation_percent": outcome.utilisation,
        "preemptions": outcome.preemptions,
        "rho_over_1_percent": outcome.unfair,
        "gpu_hours": outcome.gpu_hours,
        "cost": outcome.cost,
        "makespan_hours": outcome.makespan,
        "shown": {
            "average_jct": number(outcome.average_jct, 2),
            "median_jct": number(outcome.median_jct, 2),
            "p99_jct": number(outcome.p99_jct, 1),
            "average_queueing": number(outcome.average_queueing, 2),
            "utilisation": number(outcome.utilisation, 1),
            "unfair": number(outcome.unfair, 2),
            "gpu_hours": number(outcome.gpu_hours, 0),
            "cost": number(outcome.cost, 0),
        },
    })
}

fn without_texts(mut row: Value) -> Value {
    if let Some(fields) = row.as_object_mut() {
        fields.remove("shown");
    }
    row
}
