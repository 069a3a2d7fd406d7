//! The local executor: what it adds to a job, and how many short jobs it brings to their end.

use std::collections::{BTreeMap, HashSet};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use falaj_executors::{
    AttemptId, End, Executor, Launch, Limits, LocalExecutor, Phase, RankPlace, SlurmExecutor,
    SlurmSettings,
};

use crate::report::{Goal, Report, median, p99};

/// Jobs that are run one after the other.
const SINGLE: usize = 60;
/// Jobs that are run at once, and how many of them.
const MANY: usize = 1500;
const AT_ONCE: usize = 64;
/// Slurm is slow enough with fewer.
const SLURM: usize = 60;

pub(crate) fn measure(report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = falaj_testkit::sandbox::binary()?;
    let executor = LocalExecutor::new(folder.path().join("local"), program)?;
    let mut bare = (0..SINGLE).map(|_| alone()).collect::<Result<Vec<_>>>()?;
    let bare = median(&mut bare);
    report.note("executor: `true` as a plain process", bare, "ms");
    for (what, limits) in [
        ("executor: added to a job", Limits::default()),
        (
            "executor: added to a job with limits",
            Limits { cpu_millis: 1000, memory_mib: 256, time: None },
        ),
    ] {
        let mut times = (0..SINGLE)
            .map(|number| through(&executor, &launch(&format!("single-{number}"), &limits)?))
            .collect::<Result<Vec<_>>>()?;
        report.note(&format!("{what}, p99"), p99(&mut times) - bare, "ms");
        report.goal(what, median(&mut times) - bare, "ms", Goal::AtMost(20.0));
    }
    let rate = rate(&executor, MANY, AT_ONCE)?;
    report.goal("executor: short jobs from launch to end", rate, "/s", Goal::AtLeast(300.0));
    if let Some(conf) = std::env::var_os("FALAJ_TEST_SLURM_CONF") {
        let settings = SlurmSettings { conf: Some(conf.into()), ..Default::default() };
        let slurm = SlurmExecutor::new(folder.path().join("slurm"), settings)?;
        report.note("executor: the same through Slurm", self::rate(&slurm, SLURM, SLURM)?, "/s");
    }
    Ok(())
}

/// Milliseconds of a process that nobody watches.
fn alone() -> Result<f64> {
    let began = Instant::now();
    let mut child = Command::new("true").stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    child.wait()?;
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

fn launch(name: &str, limits: &Limits) -> Result<Launch> {
    let rank = RankPlace { node: "here".to_owned(), gpus: Vec::new(), env: BTreeMap::new() };
    Ok(Launch {
        attempt: AttemptId::new(name).context("no name of an attempt")?,
        name: name.to_owned(),
        command: vec!["true".to_owned()],
        image: None,
        slice: None,
        folder: None,
        env: BTreeMap::new(),
        secrets: BTreeMap::new(),
        ranks: vec![rank],
        shares_gpus: false,
        limits: limits.clone(),
        grace: Duration::from_secs(1),
        gang_grace: Duration::from_secs(1),
    })
}

/// Milliseconds from launching a job to knowing its end.
fn through(executor: &dyn Executor, launch: &Launch) -> Result<f64> {
    let began = Instant::now();
    executor.launch(launch)?;
    let mut ended = HashSet::new();
    while ended.is_empty() {
        executor.wait(Duration::from_secs(1));
        ended = take_ended(executor)?;
    }
    let took = began.elapsed().as_secs_f64() * 1e3;
    ensure!(ended.contains(&launch.attempt), "another one ended");
    executor.forget(&launch.attempt)?;
    Ok(took)
}

fn take_ended(executor: &dyn Executor) -> Result<HashSet<AttemptId>> {
    let mut ended = HashSet::new();
    for observed in executor.observe()? {
        if let Phase::Ended(end) = observed.phase {
            ensure!(end == End::Succeeded, "{}: {end:?}", observed.attempt);
            ended.insert(observed.attempt);
        }
    }
    Ok(ended)
}

/// Jobs for each second, from the first launch to the last end, each forgotten when it has ended.
fn rate(executor: &dyn Executor, jobs: usize, at_once: usize) -> Result<f64> {
    let began = Instant::now();
    let (mut launched, mut done) = (0, 0);
    while done < jobs {
        while launched < jobs && launched - done < at_once {
            executor.launch(&launch(&format!("many-{launched}"), &Limits::default())?)?;
            launched += 1;
        }
        executor.wait(Duration::from_secs(1));
        for attempt in take_ended(executor)? {
            executor.forget(&attempt)?;
            done += 1;
        }
    }
    #[allow(clippy::cast_precision_loss, reason = "a few thousand")]
    Ok(jobs as f64 / began.elapsed().as_secs_f64())
}
