//! A small HTTP/1.1 client whose requests may differ from each other, over one kept connection.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Room for a reply of a million points in one piece would be reserved over and over otherwise.
const READ_AT_ONCE: usize = 256 * 1024;

pub(crate) struct Connection {
    stream: TcpStream,
    head: String,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr, token: Option<&str>) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let token =
            token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let head = format!("Host: {address}\r\n{token}Content-Type: application/json\r\n");
        Ok(Self { stream, head, buffer: Vec::new() })
    }

    pub(crate) async fn post(&mut self, path: &str, body: &str) -> Result<&[u8]> {
        self.send("POST", path, body).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<&[u8]> {
        self.send("GET", path, "").await
    }

    /// Sends one request and returns the body of its reply, which must be a 200.
    async fn send(&mut self, method: &str, path: &str, body: &str) -> Result<&[u8]> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{}Content-Length: {}\r\n\r\n{body}",
            self.head,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.buffer.clear();
        let (status, start) = self.receive().await?;
        let reply = &self.buffer[start..];
        ensure!(status == 200, "{method} {path}: {status} {}", String::from_utf8_lossy(reply));
        Ok(reply)
    }

    /// Reads one reply; returns its status and where the body begins in the buffer.
    async fn receive(&mut self) -> Result<(u16, usize)> {
        let end = loop {
            self.read().await?;
            if let Some(end) = head_end(&self.buffer) {
                break end;
            }
        };
        let head = std::str::from_utf8(&self.buffer[..end])?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        // From the end, where both servers say how long it is.
        let field = |name: &str| {
            let mut lines = head.trim_end().rsplit("\r\n").filter_map(|line| line.split_once(':'));
            lines.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
        };
        if let Some(length) = field("content-length") {
            let length: usize = length.parse()?;
            while self.buffer.len() - end < length {
                self.read().await?;
            }
        } else if field("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
            self.join_chunks(end).await?;
        }
        Ok((status, end))
    }

    /// Takes the lengths out of a chunked body, in place.
    async fn join_chunks(&mut self, start: usize) -> Result<()> {
        let (mut read, mut written) = (start, start);
        loop {
            let line = loop {
                let rest = &self.buffer[read..];
                match rest.windows(2).position(|two| two == b"\r\n") {
                    Some(end) => break read + end,
                    None => self.read().await?,
                }
            };
            let length = usize::from_str_radix(std::str::from_utf8(&self.buffer[read..line])?, 16)?;
            read = line + 2;
            while self.buffer.len() < read + length + 2 {
                self.read().await?;
            }
            self.buffer.copy_within(read..read + length, written);
            written += length;
            read += length + 2;
            if length == 0 {
                self.buffer.truncate(written);
                return Ok(());
            }
        }
    }

    async fn read(&mut self) -> Result<()> {
        self.buffer.reserve(READ_AT_ONCE);
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            bail!("the server closed the connection");
        }
        Ok(())
    }
}

/// Where the body begins.
fn head_end(reply: &[u8]) -> Option<usize> {
    reply.windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|at| at + 4)
}

/// The value of the first field of that name in a reply: enough for ids and tokens.
pub(crate) fn text_field(reply: &[u8], name: &str) -> Result<String> {
    let reply = std::str::from_utf8(reply)?;
    let after = reply.split_once(&format!("\"{name}\"")).map(|(_, after)| after);
    let value = after.and_then(|after| after.split('"').nth(1));
    Ok(value.with_context(|| format!("no {name} in {reply}"))?.to_owned())
}

/// How often a field of that name occurs.
pub(crate) fn occurrences(reply: &[u8], name: &str) -> Result<usize> {
    Ok(std::str::from_utf8(reply)?.matches(&format!("\"{name}\"")).count())
}
