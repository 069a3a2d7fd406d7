//! `falaj run log`: the console output of a run.

use std::io::{self, IsTerminal, Write};

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use super::follow::Stream;
use crate::client::{Client, bounded};
use crate::commands::InProject;
use crate::context::Context;
use crate::exit::{Failure, Result};
use crate::output::printable;

/// More than the server gives at once.
const MAX_PIECE: usize = 64 << 20;

#[derive(Debug, Args)]
pub(super) struct Log {
    /// Its id.
    run: String,
    #[command(flatten)]
    place: InProject,
    /// Stay until the run has ended, and print what it writes.
    #[arg(long, short)]
    follow: bool,
    /// Only the last so many bytes.
    #[arg(long, value_name = "BYTES")]
    tail: Option<u64>,
    /// The bytes as they are, also those that a terminal would obey.
    #[arg(long)]
    raw: bool,
}

impl Log {
    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        let mut from = match self.tail {
            Some(tail) => {
                let piece = self.piece(client, ("tail", tail)).await?;
                self.print(ctx, piece.start, &piece.bytes)?;
                piece.start + piece.bytes.len() as u64
            }
            None => 0,
        };
        loop {
            let piece = self.piece(client, ("offset", from)).await?;
            self.print(ctx, piece.start, &piece.bytes)?;
            from = piece.start + piece.bytes.len() as u64;
            if from >= piece.size || piece.bytes.is_empty() {
                break;
            }
        }
        if !self.follow {
            return Ok(());
        }
        let stream = Stream { place: &self.place, run: &self.run, what: "log", from };
        stream
            .read(ctx, client, |kind, data| match kind {
                "log" => {
                    let start = data["offset"].as_u64().unwrap_or_default();
                    self.print(ctx, start, &bytes(data)?)
                }
                _ => Ok(()),
            })
            .await
    }

    async fn piece(&self, client: &Client, (name, value): (&str, u64)) -> Result<Piece> {
        let call = client
            .call(Method::GET, &self.place.path(&["runs", &self.run, "log"]))?
            .query(name, Some(&value.to_string()));
        let response = client.send(call).await?;
        let number = |name: &str| {
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            value.and_then(|text| text.parse::<u64>().ok()).unwrap_or_default()
        };
        let (start, size) = (number("x-falaj-log-start"), number("x-falaj-log-size"));
        Ok(Piece { start, size, bytes: bounded(response, MAX_PIECE).await? })
    }

    fn print(&self, ctx: &Context, start: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if ctx.output.is_json() {
            let text = String::from_utf8_lossy(bytes);
            return ctx.output.entry(&json!({ "offset": start, "text": text }), |_| String::new());
        }
        let mut out = io::stdout().lock();
        if self.raw || !io::stdout().is_terminal() {
            out.write_all(bytes)?;
        } else {
            // Progress bars return to the beginning of their line; here they begin a new one.
            let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n").replace('\r', "\n");
            out.write_all(printable(&text.replace('\t', "    "), true).as_bytes())?;
        }
        out.flush().map_err(Failure::from)
    }
}

struct Piece {
    start: u64,
    size: u64,
    bytes: Vec<u8>,
}

/// The bytes of an event: text, or what is no text.
fn bytes(data: &Value) -> Result<Vec<u8>> {
    if let Some(text) = data["text"].as_str() {
        return Ok(text.as_bytes().to_vec());
    }
    let encoded = data["base64"].as_str().unwrap_or_default();
    decode(encoded).ok_or_else(|| Failure::failed("an event of the log cannot be read"))
}

/// Base64 with padding, as the server writes it.
fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut held, mut bits) = (0_u32, 0_u32);
    for byte in text.trim_end_matches('=').bytes() {
        held = held << 6 | u32::from(digit(byte)?);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push(u8::try_from(held >> bits & 0xff).ok()?);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_the_log_are_read() {
        assert_eq!(bytes(&json!({ "text": "aé" })).unwrap(), "aé".as_bytes());
        assert_eq!(bytes(&json!({ "base64": "//4AYQ==" })).unwrap(), [0xff, 0xfe, 0, b'a']);
        assert!(bytes(&json!({ "base64": "?" })).is_err());
    }
}
