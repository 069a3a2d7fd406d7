//! Requests that come when they are due, however fast they are answered: at times that were drawn
//! before, as those of many callers who know nothing of each other.
//!
//! Each connection has a thread, which takes the next request that nobody took and sleeps until it
//! is due. An answer's time counts from when its request was due, so one that found no connection
//! free waited too.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Jumps;

/// Sends requests at a rate, over a connection for each of them in turn; tells how long each answer
/// took, in seconds.
pub(super) fn paced(
    address: SocketAddr,
    requests: &[String],
    rate: f64,
    time: Duration,
) -> Result<Vec<f64>> {
    let (due, taken) = (arrivals(rate, time), AtomicUsize::new(0));
    let began = Instant::now();
    thread::scope(|scope| {
        let (due, taken) = (&due, &taken);
        let lanes = requests
            .iter()
            .map(|request| scope.spawn(move || one(address, request, due, taken, began)));
        let lanes: Vec<_> = lanes.collect();
        let mut took = Vec::with_capacity(due.len());
        for lane in lanes {
            took.extend(lane.join().ok().context("a client ended")??);
        }
        Ok(took)
    })
}

/// The times between requests are drawn from an exponential distribution.
fn arrivals(rate: f64, time: Duration) -> Vec<Duration> {
    const PARTS: i64 = 1 << 30;
    let mut jumps = Jumps(3);
    // Room for the connections to be made.
    let mut at = 0.05;
    let mut due = Vec::new();
    while at < time.as_secs_f64() {
        due.push(Duration::from_secs_f64(at));
        #[allow(clippy::cast_precision_loss, reason = "both are small")]
        let share = (jumps.below(PARTS) + 1) as f64 / PARTS as f64;
        at += -share.ln() / rate;
    }
    due
}

fn one(
    address: SocketAddr,
    request: &str,
    due: &[Duration],
    taken: &AtomicUsize,
    began: Instant,
) -> Result<Vec<f64>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let (mut buffer, mut took) = (vec![0; 1 << 20], Vec::new());
    while let Some(due) = due.get(taken.fetch_add(1, Ordering::Relaxed)) {
        thread::sleep(due.saturating_sub(began.elapsed()));
        stream.write_all(request.as_bytes())?;
        whole(&mut stream, &mut buffer)?;
        took.push(began.elapsed().saturating_sub(*due).as_secs_f64());
    }
    Ok(took)
}

/// Reads one answer, which must be good.
fn whole(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<()> {
    let (mut read, mut length) = (0, None);
    while length.is_none_or(|length| read < length) {
        if read == buffer.len() {
            buffer.resize(2 * read, 0);
        }
        let count = stream.read(&mut buffer[read..])?;
        ensure!(count > 0, "the server closed the connection");
        read += count;
        if length.is_none() {
            length = ends(&buffer[..read])?;
        }
    }
    Ok(())
}

/// Where an answer ends, once its head is there.
fn ends(read: &[u8]) -> Result<Option<usize>> {
    let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&read[..end])?.to_ascii_lowercase();
    ensure!(head.starts_with("http/1.1 200"), "{}", String::from_utf8_lossy(read));
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.context("no length")?.trim().parse()?;
    Ok(Some(end + 4 + length))
}
