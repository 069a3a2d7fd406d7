//! As many requests as are wanted, however fast they are answered: they come at times that were
//! drawn before, as those of many callers who know nothing of each other do.
//!
//! Each connection has a thread, which sleeps until a request is due. A latency counts from when
//! the request was due, so one that had to wait for its connection waited for its answer.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::models::Random;
use super::target::{Target, ask};

/// What came of requests at a pace. Times are in seconds.
#[derive(Debug, Default)]
pub(super) struct Paced {
    pub(super) answered: Vec<f64>,
    pub(super) refused: Vec<f64>,
    /// How long it took.
    pub(super) took: Duration,
}

/// Sends requests at a rate, over so many connections in turn.
pub(super) fn paced(
    target: &Target,
    connections: usize,
    rate: f64,
    time: Duration,
) -> Result<Paced> {
    let due = arrivals(rate, time);
    let began = Instant::now();
    let lanes = thread::scope(|scope| {
        let lane = |lane: usize| {
            let due = &due;
            scope
                .spawn(move || one(target, due.iter().skip(lane).step_by(connections), began, time))
        };
        let lanes: Vec<_> = (0..connections).map(lane).collect();
        let joined = lanes.into_iter().map(|lane| lane.join().ok().context("a client ended")?);
        joined.collect::<Result<Vec<Paced>>>()
    })?;
    let mut all = Paced { took: time, ..Paced::default() };
    for lane in lanes {
        all.answered.extend(lane.answered);
        all.refused.extend(lane.refused);
    }
    Ok(all)
}

/// When requests are due: the times between them are drawn from an exponential distribution.
fn arrivals(rate: f64, time: Duration) -> Vec<Duration> {
    let mut random = Random(3);
    // Room for the connections to be made.
    let mut at = 0.05;
    let mut due = Vec::new();
    while at < time.as_secs_f64() {
        due.push(Duration::from_secs_f64(at));
        at += -(1.0 - random.share()).ln() / rate;
    }
    due
}

fn one<'a>(
    target: &Target,
    due: impl Iterator<Item = &'a Duration>,
    began: Instant,
    time: Duration,
) -> Result<Paced> {
    let (mut stream, mut buffer) = (target.connect()?, Vec::new());
    let mut paced = Paced::default();
    for (due, request) in due.zip(target.requests.iter().cycle()) {
        thread::sleep(due.saturating_sub(began.elapsed()));
        if began.elapsed() >= time {
            break;
        }
        let reply = ask(&mut stream, request, &mut buffer)?;
        let latency = (began.elapsed().saturating_sub(*due)).as_secs_f64();
        match reply.status {
            200 => paced.answered.push(latency),
            429 | 503 => {
                ensure!(reply.says_when, "a refusal that does not say when to come again");
                paced.refused.push(latency);
            }
            other => {
                let shown = String::from_utf8_lossy(&buffer[reply.body.0..reply.body.1]);
                anyhow::bail!("{}: {other} {shown}", target.server);
            }
        }
    }
    Ok(paced)
}
