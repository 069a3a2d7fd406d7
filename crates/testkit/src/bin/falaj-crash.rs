//! `falaj-crash`: kills the server and cuts its power until something breaks or the cycles end.

#![allow(clippy::print_stderr, reason = "progress is what a person running this looks at")]

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use falaj_testkit::crash::power::Verdict;
use falaj_testkit::crash::{Tally, full, kill, mounted, power};
use falaj_testkit::{Random, Setup};

/// Crashes a real server, many times, and checks that nothing it acknowledged is lost.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many times to `kill -9` the server.
    #[arg(long, default_value_t = 20)]
    kill_cycles: usize,
    /// How many times to cut the power (needs root).
    #[arg(long, default_value_t = 4)]
    power_cycles: usize,
    /// How many power cuts to try with durability off; at least one must be noticed, and at least
    /// one by the comparison with the acknowledgements alone.
    #[arg(long, default_value_t = 4)]
    control_cycles: usize,
    /// Also fill the disk (needs root).
    #[arg(long)]
    disk_full: bool,
    /// Repeats an earlier run.
    #[arg(long)]
    seed: Option<u64>,
    /// Fails, instead of skipping, where mounting is not possible.
    #[arg(long)]
    require_mount: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(Random::fresh_seed);
    eprintln!("crash: seed {seed}");
    match run(&arguments, &mut Random::new(seed)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crash: FAULT (--seed {seed}): {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments, random: &mut Random) -> Result<()> {
    kills(arguments.kill_cycles, random).await?;
    if arguments.power_cycles + arguments.control_cycles == 0 && !arguments.disk_full {
        return Ok(());
    }
    if let Err(reason) = mounted::possible() {
        ensure!(!arguments.require_mount, "mounting is not possible: {reason}");
        eprintln!("crash: SKIPPED power cuts and disk full: mounting is not possible ({reason})");
        return Ok(());
    }
    cuts(arguments.power_cycles, random).await?;
    control(arguments.control_cycles, random).await?;
    if arguments.disk_full {
        let began = Instant::now();
        full::disk_full(setup()).await.context("with a full disk")?;
        eprintln!("crash: disk full: refused, read, recovered ({} s)", began.elapsed().as_secs());
    }
    Ok(())
}

/// The workload makes more tokens than one person would.
fn setup() -> Setup {
    Setup::default().env("FALAJ_IDENTITY_TOKEN_MAX_PER_OWNER", "1000000")
}

async fn kills(cycles: usize, random: &mut Random) -> Result<()> {
    let (began, mut total, mut done) = (Instant::now(), Tally::default(), 0);
    while done < cycles {
        total.add(kill::world(setup(), cycles - done, random).await?);
        done = (done + kill::CYCLES_PER_WORLD).min(cycles);
        eprintln!("crash: {done}/{cycles} kills, {} s: {total}", began.elapsed().as_secs());
    }
    Ok(())
}

async fn cuts(cycles: usize, random: &mut Random) -> Result<()> {
    let (began, mut total) = (Instant::now(), Tally::default());
    for cycle in 1..=cycles {
        match power::cycle(setup(), random).await? {
            Verdict::Kept(tally) => total.add(tally),
            lost => bail!("power cut {cycle}: {}", lost.fault().unwrap_or_default()),
        }
        if cycle % 20 == 0 || cycle == cycles {
            let seconds = began.elapsed().as_secs();
            eprintln!("crash: {cycle}/{cycles} power cuts, {seconds} s: {total}");
        }
    }
    Ok(())
}

/// A harness that finds nothing with durability off would find nothing with it on. That goes for
/// the comparison with the acknowledgements by itself, too: the server's own guard at the start is
/// another thing, and would hide that the comparison is blind.
async fn control(cycles: usize, random: &mut Random) -> Result<()> {
    if cycles == 0 {
        return Ok(());
    }
    let (mut guarded, mut refused) = (Vec::new(), 0);
    let (mut compared, mut trained) = (Vec::new(), Vec::new());
    for _ in 0..cycles {
        let control = power::control(setup(), random).await?;
        guarded.extend(control.guarded.fault().map(last_line));
        refused += usize::from(matches!(control.guarded, Verdict::Refused(_)));
        if let Verdict::Lost(writes, training) = control.compared {
            compared.extend(writes.as_deref().map(last_line));
            trained.extend(training.as_deref().map(last_line));
        }
    }
    let (by_all, by_comparison, by_training) = (guarded.len(), compared.len(), trained.len());
    for (what, found) in [
        ("as it is", guarded),
        ("comparing acknowledgements", compared),
        ("comparing what trainers were told", trained),
    ] {
        let example = found.last().with_context(|| {
            format!("durability was off and {cycles} power cuts found nothing ({what}): blind")
        })?;
        eprintln!("crash: control, durability off, {what}: {example}");
    }
    eprintln!(
        "crash: control, durability off: {by_all}/{cycles} noticed, {refused} of them by a server \
         that did not start; {by_comparison}/{cycles} by comparing acknowledgements alone, \
         {by_training}/{cycles} by comparing what trainers were told"
    );
    Ok(())
}

/// Where the server did not even start, the last line of its log is the reason.
fn last_line(reason: &str) -> String {
    reason.lines().last().unwrap_or_default().to_owned()
}
