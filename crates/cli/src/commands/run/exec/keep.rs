//! Keeping console output: gathered here, sent in pieces, each until it has arrived.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::client::{Client, bounded};
use crate::exit::{Exit, Failure, Result};

/// How much waits here at most while the server does not answer; what comes then is lost.
const MAX_WAITING: usize = 8 << 20;
/// How much one request carries, and how long output is gathered for it.
const PIECE: usize = 256 << 10;
const GATHER: Duration = Duration::from_secs(1);
/// The wait after a piece that did not arrive, which doubles, and its limit.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How long the last pieces may take once the command has ended.
const LAST_PIECES: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
struct Waiting {
    bytes: VecDeque<u8>,
    /// How many bytes found no room.
    lost: u64,
    over: bool,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    news: Notify,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where output goes in.
#[derive(Clone, Debug)]
pub(super) struct Sink(Arc<Shared>);

impl Sink {
    pub(super) fn add(&self, bytes: &[u8]) {
        let mut waiting = self.0.waiting();
        let room = MAX_WAITING.saturating_sub(waiting.bytes.len()).min(bytes.len());
        waiting.bytes.extend(&bytes[..room]);
        waiting.lost += (bytes.len() - room) as u64;
        drop(waiting);
        self.0.news.notify_one();
    }
}

/// The sending side.
pub(super) struct Keep {
    shared: Arc<Shared>,
    sending: JoinHandle<Result<()>>,
}

impl Keep {
    pub(super) fn start(client: Client, path: Vec<&str>) -> Self {
        let shared: Arc<Shared> = Arc::default();
        let path = path.into_iter().map(str::to_owned).collect();
        let sending = tokio::spawn(send(client, path, shared.clone()));
        Self { shared, sending }
    }

    pub(super) fn sink(&self) -> Sink {
        Sink(self.shared.clone())
    }

    /// Sends the rest; says what was not kept.
    pub(super) async fn finish(self) -> Option<String> {
        self.shared.waiting().over = true;
        self.shared.news.notify_one();
        let stop = self.sending.abort_handle();
        let sent = tokio::time::timeout(LAST_PIECES, self.sending).await;
        stop.abort();
        let lost = self.shared.waiting().lost;
        match sent {
            Ok(Ok(Err(failure))) => {
                Some(format!("the console output was not kept to its end: {}", failure.message()))
            }
            Ok(Ok(Ok(()))) if lost == 0 => None,
            Ok(_) => Some(format!("{lost} bytes of console output were not kept")),
            Err(_) => Some("the last console output was not kept: no answer in time".to_owned()),
        }
    }
}

async fn send(client: Client, path: Vec<String>, shared: Arc<Shared>) -> Result<()> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let mut offset = 0_u64;
    loop {
        let (piece, over) = {
            let mut waiting = shared.waiting();
            let count = waiting.bytes.len().min(PIECE);
            (waiting.bytes.drain(..count).collect::<Vec<u8>>(), waiting.over)
        };
        if piece.is_empty() {
            if over {
                return Ok(());
            }
            shared.news.notified().await;
            let gathered = tokio::time::sleep(GATHER);
            if !shared.waiting().over {
                gathered.await;
            }
            continue;
        }
        offset = arrived(&client, &path, offset, piece).await?;
    }
}

/// Sends one piece until it has arrived: the server knows it by its offset. Gives where the log
/// ends then.
async fn arrived(client: &Client, path: &[&str], offset: u64, piece: Vec<u8>) -> Result<u64> {
    let (at, mut wait) = (offset.to_string(), FIRST_WAIT);
    loop {
        let call = client
            .call(Method::POST, path)?
            .query("offset", Some(&at))
            .header(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        match client.upload(call, reqwest::Body::from(piece.clone())).await {
            Ok(response) => {
                let reply = bounded(response, 64 << 10).await?;
                let reply: serde_json::Value = serde_json::from_slice(&reply)
                    .map_err(|error| Failure::failed(error.to_string()))?;
                return Ok(reply["size"].as_u64().unwrap_or(offset + piece.len() as u64));
            }
            Err(failure) if failure.exit() == Exit::Unavailable => {
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
            Err(failure) => return Err(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_counted() {
        let sink = Sink(Arc::default());
        sink.add(&vec![b'x'; MAX_WAITING - 1]);
        sink.add(b"yz");
        let waiting = sink.0.waiting();
        assert_eq!((waiting.bytes.len(), waiting.lost), (MAX_WAITING, 1));
    }
}
