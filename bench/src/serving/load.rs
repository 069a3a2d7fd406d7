//! As much as a server answers: every connection sends its next request when it has its answer.
//!
//! One thread drives all connections. The client shares the processors with the server, so what it
//! takes itself is told beside what the server takes.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use tokio::task::block_in_place;

use super::target::Target;
use super::wires::Wires;
use crate::commit::per_second;
use crate::process;
use crate::report::{median, p99};

const WARM_UP: Duration = Duration::from_millis(300);

/// What came of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) per_second: f64,
    /// What a request took of the processors, in microseconds.
    pub(super) server_cpu: f64,
    pub(super) client_cpu: f64,
    /// In milliseconds.
    pub(super) median: f64,
    pub(super) p99: f64,
}

/// When a load ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    Time(Duration),
    Requests(usize),
}

/// Loads a server over so many connections.
pub(super) fn load(target: &Target, connections: usize, until: Until) -> Result<Load> {
    drive(target, connections, Until::Time(WARM_UP))?;
    let before = process::cpu_seconds(&process::tree(target.pid)?)?;
    let mut driven = drive(target, connections, until)?;
    let used = process::cpu_seconds(&process::tree(target.pid)?)? - before;
    let rate = per_second(driven.latencies.len(), driven.took);
    let requests = rate * driven.took.as_secs_f64();
    Ok(Load {
        per_second: rate,
        server_cpu: used * 1e6 / requests,
        client_cpu: driven.client_cpu * 1e6 / requests,
        median: median(&mut driven.latencies) * 1e3,
        p99: p99(&mut driven.latencies) * 1e3,
    })
}

struct Driven {
    took: Duration,
    client_cpu: f64,
    latencies: Vec<f64>,
}

/// On a thread of its own, so that its time is counted alone.
fn drive(target: &Target, connections: usize, until: Until) -> Result<Driven> {
    let driver = || -> Result<Driven> {
        let wires = Wires::connect(target, connections)?;
        let (took, latencies) = all(wires, target, until)?;
        Ok(Driven { took, latencies, client_cpu: on_cpu() })
    };
    // Other work of the program goes on meanwhile.
    let joined = block_in_place(|| thread::scope(|scope| scope.spawn(driver).join()));
    joined.ok().context("the client ended")?
}

/// Seconds that this thread has been on a processor.
#[allow(clippy::cast_precision_loss, reason = "seconds of a run")]
fn on_cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// What a connection asks next, and since when it waits for an answer.
struct Asking {
    next: usize,
    since: Instant,
}

fn all(mut wires: Wires<'_>, target: &Target, until: Until) -> Result<(Duration, Vec<f64>)> {
    let began = Instant::now();
    let mut ends = Ends::new(until, began);
    let mut latencies = Vec::new();
    let mut asking = Vec::with_capacity(wires.len());
    for place in 0..wires.len() {
        // Connections begin at different questions.
        asking.push(Asking { next: place * 7 + 1, since: began });
        if ends.goes_on(began) {
            wires.send(place, place * 7)?;
        }
    }
    while ends.under_way > 0 {
        for number in 0..wires.wait(None)? {
            let place = wires.heard(number)?;
            let Some(reply) = wires.receive(place)? else { continue };
            let shown = || wires.body(place, reply);
            ensure!(reply.status == 200, "{}: {} {}", target.server, reply.status, shown());
            let (now, asking) = (Instant::now(), &mut asking[place]);
            latencies.push((now - asking.since).as_secs_f64());
            ends.under_way -= 1;
            if ends.goes_on(now) {
                wires.send(place, asking.next)?;
                (asking.next, asking.since) = (asking.next + 1, now);
            }
        }
    }
    Ok((began.elapsed(), latencies))
}

/// Whether there is another request to send, and how many have no answer yet.
struct Ends {
    at: Option<Instant>,
    left: usize,
    under_way: usize,
}

impl Ends {
    fn new(until: Until, began: Instant) -> Self {
        match until {
            Until::Time(time) => Self { at: Some(began + time), left: usize::MAX, under_way: 0 },
            Until::Requests(left) => Self { at: None, left, under_way: 0 },
        }
    }

    /// Counts one more, unless that was all.
    fn goes_on(&mut self, now: Instant) -> bool {
        let goes_on = self.left > 0 && self.at.is_none_or(|end| now < end);
        self.left -= usize::from(goes_on);
        self.under_way += usize::from(goes_on);
        goes_on
    }
}
