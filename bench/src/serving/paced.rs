//! As many requests as are wanted, however fast they are answered: they come at times that were
//! drawn before, as those of many callers who know nothing of each other do.
//!
//! Each connection has a thread, which takes the next request that nobody took and sleeps until it
//! is due. The latency of an answer counts from when its request was due, so one that found no
//! connection free waited too; that of a refusal from when its request was sent.

use std::sync::atomic::{AtomicUsize, Ordering};
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
    let arrivals = Arrivals { due: arrivals(rate, time), taken: AtomicUsize::new(0) };
    let began = Instant::now();
    let lanes = thread::scope(|scope| {
        let lanes = (0..connections).map(|_| scope.spawn(|| one(target, &arrivals, began, time)));
        let lanes: Vec<_> = lanes.collect();
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

/// When requests are due, and how many of them are taken.
struct Arrivals {
    due: Vec<Duration>,
    taken: AtomicUsize,
}

impl Arrivals {
    fn next(&self) -> Option<(usize, Duration)> {
        let place = self.taken.fetch_add(1, Ordering::Relaxed);
        self.due.get(place).map(|due| (place, *due))
    }
}

/// The times between requests are drawn from an exponential distribution.
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

fn one(target: &Target, arrivals: &Arrivals, began: Instant, time: Duration) -> Result<Paced> {
    let (mut stream, mut buffer) = (target.connect()?, Vec::new());
    let mut paced = Paced::default();
    while let Some((place, due)) = arrivals.next() {
        thread::sleep(due.saturating_sub(began.elapsed()));
        let sent = began.elapsed();
        if sent >= time {
            break;
        }
        let request = &target.requests[place % target.requests.len()];
        let reply = ask(&mut stream, request, &mut buffer)?;
        let done = began.elapsed();
        match reply.status {
            200 => paced.answered.push(done.saturating_sub(due).as_secs_f64()),
            429 | 503 => {
                ensure!(reply.says_when, "a refusal that does not say when to come again");
                paced.refused.push(done.saturating_sub(sent).as_secs_f64());
            }
            other => {
                let shown = String::from_utf8_lossy(&buffer[reply.body.0..reply.body.1]);
                anyhow::bail!("{}: {other} {shown}", target.server);
            }
        }
    }
    Ok(paced)
}
