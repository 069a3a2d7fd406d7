//! What Slurm does of the same on this machine, where there is one.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::commit::per_second;
use crate::report::Report;

/// The configuration of a Slurm to measure.
const CONF: &str = "FALAJ_TEST_SLURM_CONF";
const JOBS: usize = 100;
const TASKS: usize = 200;
const OVER_WITHIN: Duration = Duration::from_mins(5);

pub(super) fn measure(report: &mut Report) -> Result<()> {
    let Some(conf) = std::env::var_os(CONF) else {
        println!("  Slurm: not measured, {CONF} is not set");
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let run = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        command.args(words).env("SLURM_CONF", &conf).current_dir(folder.path());
        let done = command.stdin(Stdio::null()).output().with_context(|| program.to_owned())?;
        ensure!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
        Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
    };
    let job = ["--parsable", "--output=/dev/null", "--ntasks=1", "--mem=16", "--wrap=true"];
    let until_empty = |began: Instant| -> Result<Duration> {
        while !run("squeue", &["--noheader"])?.is_empty() {
            ensure!(began.elapsed() < OVER_WITHIN, "Slurm has not finished its jobs");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(began.elapsed())
    };
    let began = Instant::now();
    for _ in 0..JOBS {
        run("sbatch", &job)?;
    }
    report.note("Slurm: submissions, one `sbatch` each", per_second(JOBS, began.elapsed()), "/s");
    report.note("Slurm: short jobs, end to end", per_second(JOBS, until_empty(began)?), "/s");
    let range = format!("--array=0-{}", TASKS - 1);
    let mut array = vec![range.as_str()];
    array.extend(job);
    let began = Instant::now();
    run("sbatch", &array)?;
    report.note("Slurm: tasks of an array, submitted", per_second(TASKS, began.elapsed()), "/s");
    report.note("Slurm: the same, end to end", per_second(TASKS, until_empty(began)?), "/s");
    Ok(())
}
