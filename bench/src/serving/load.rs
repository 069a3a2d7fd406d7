//! As much as a server answers: every connection sends its next request when it has its answer.
//!
//! One thread drives all connections. The client shares the processors with the server, so what it
//! takes itself is told beside what the server takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::reply::parse;
use super::target::Target;
use crate::commit::per_second;
use crate::lanes::alone;
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

fn drive(target: &Target, connections: usize, until: Until) -> Result<Driven> {
    // On a thread of its own, its time is counted alone.
    alone(|| async {
        let (took, latencies) = all(target, connections, until).await?;
        Ok(Driven { took, latencies, client_cpu: on_cpu() })
    })
}

/// Seconds that this thread has been on a processor.
#[allow(clippy::cast_precision_loss, reason = "seconds of a run")]
fn on_cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

async fn all(target: &Target, connections: usize, until: Until) -> Result<(Duration, Vec<f64>)> {
    let mut streams = Vec::new();
    for _ in 0..connections {
        let stream = TcpStream::connect(target.address).await?;
        stream.set_nodelay(true)?;
        streams.push(stream);
    }
    let ends = Arc::new(Ends::new(until));
    let began = Instant::now();
    let lanes: Vec<_> = streams
        .into_iter()
        .enumerate()
        .map(|(lane, stream)| tokio::spawn(one(stream, target.clone(), lane, ends.clone())))
        .collect();
    let mut latencies = Vec::new();
    for lane in lanes {
        latencies.extend(lane.await??);
    }
    Ok((began.elapsed(), latencies))
}

struct Ends {
    at: Option<Instant>,
    left: AtomicUsize,
}

impl Ends {
    fn new(until: Until) -> Self {
        match until {
            Until::Time(time) => {
                Self { at: Some(Instant::now() + time), left: AtomicUsize::new(0) }
            }
            Until::Requests(count) => Self { at: None, left: AtomicUsize::new(count) },
        }
    }

    fn goes_on(&self, now: Instant) -> bool {
        if let Some(end) = self.at {
            return now < end;
        }
        let less = |left: usize| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

async fn one(
    mut stream: TcpStream,
    target: Target,
    lane: usize,
    ends: Arc<Ends>,
) -> Result<Vec<f64>> {
    let mut latencies = Vec::new();
    let mut buffer = Vec::with_capacity(16 * 1024);
    // Connections begin at different questions.
    for request in target.requests.iter().cycle().skip(lane * 7) {
        let began = Instant::now();
        if !ends.goes_on(began) {
            break;
        }
        stream.write_all(request).await?;
        buffer.clear();
        let reply = loop {
            ensure!(stream.read_buf(&mut buffer).await? > 0, "the server closed the connection");
            if let Some(reply) = parse(&buffer)? {
                break reply;
            }
        };
        let shown = || String::from_utf8_lossy(&buffer).into_owned();
        ensure!(reply.status == 200, "{}: {}", target.server, shown());
        latencies.push(began.elapsed().as_secs_f64());
    }
    Ok(latencies)
}
