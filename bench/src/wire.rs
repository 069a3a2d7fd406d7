//! The cheapest HTTP/1.1 client that is still correct: it sends the same bytes again and again and
//! reads whole answers, so that the client's own work does not drown the server's.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::lanes::drive;

/// A connection over which one request follows the other.
pub(crate) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(8192) })
    }

    /// The status and the body of the answer.
    pub(crate) async fn ask(&mut self, request: &str) -> Result<(u16, &[u8])> {
        self.stream.write_all(request.as_bytes()).await?;
        let status = answer(&mut self.stream, &mut self.buffer).await?;
        let head = self.buffer.windows(4).position(|four| four == b"\r\n\r\n");
        Ok((status, &self.buffer[head.context("no head")? + 4..]))
    }
}

/// Sends `request` over `connections` connections for as long as `run`; every answer must have
/// the given status. Returns how many were answered.
pub(crate) fn load(
    address: SocketAddr,
    request: &str,
    status: u16,
    connections: usize,
    run: Duration,
) -> Result<usize> {
    let until = Instant::now() + run;
    let lanes = || (0..connections).map(|_| one(address, request, status, until));
    Ok(drive(lanes)?.into_iter().sum())
}

/// Sends `request` over one connection for as long as `run`; tells how long each answer took, in
/// seconds.
pub(crate) async fn timed(
    address: SocketAddr,
    request: &str,
    status: u16,
    run: Duration,
) -> Result<Vec<f64>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut buffer, mut took) = (Vec::with_capacity(8192), Vec::new());
    let until = Instant::now() + run;
    while Instant::now() < until {
        let began = Instant::now();
        stream.write_all(request.as_bytes()).await?;
        let got = answer(&mut stream, &mut buffer).await?;
        took.push(began.elapsed().as_secs_f64());
        if got != status {
            bail!("expected {status}, got {got}: {}", String::from_utf8_lossy(&buffer));
        }
    }
    Ok(took)
}

async fn one(address: SocketAddr, request: &str, status: u16, until: Instant) -> Result<usize> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(8192);
    let mut count = 0;
    while Instant::now() < until {
        stream.write_all(request.as_bytes()).await?;
        let got = answer(&mut stream, &mut buffer).await?;
        if got != status {
            bail!("expected {status}, got {got}: {}", String::from_utf8_lossy(&buffer));
        }
        count += 1;
    }
    Ok(count)
}

/// Reads one answer with a Content-Length, or without a body.
async fn answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<u16> {
    buffer.clear();
    loop {
        if stream.read_buf(buffer).await? == 0 {
            bail!("the server closed the connection");
        }
        let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = std::str::from_utf8(&buffer[..end])?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        let length = head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .map_or(Ok(0), |(_, value)| value.trim().parse::<usize>())?;
        while buffer.len() < end + 4 + length {
            if stream.read_buf(buffer).await? == 0 {
                bail!("the server closed the connection");
            }
        }
        return Ok(status);
    }
}
