//! From an empty folder to ready, and what an idle server holds in memory.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use falaj_testkit::Sandbox;

use crate::report::{Goal, Report, median};

const ROUNDS: usize = 5;
/// Long enough for the start's own work to be over and the workers to have run.
const IDLE: Duration = Duration::from_secs(5);

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let mut starts = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let _server = Sandbox::start().await?;
        starts.push(began.elapsed().as_secs_f64());
    }
    report.goal("start: empty store to ready", median(&mut starts), "s", Goal::AtMost(1.0));
    let server = Sandbox::start().await?;
    tokio::time::sleep(IDLE).await;
    report.goal("start: resident memory when idle", resident(&server)?, "MB", Goal::AtMost(60.0));
    Ok(())
}

fn resident(server: &Sandbox) -> Result<f64> {
    let pid = server.pid().context("the server is not running")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    let kilobytes: f64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
    Ok(kilobytes * 1024.0 / 1e6)
}
