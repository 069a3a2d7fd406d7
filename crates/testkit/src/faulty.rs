//! A TCP proxy that misbehaves on purpose: slow, cut, silent. It stands between a client and a
//! server that both are real.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What happens to the bytes that pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: bytes pass as they come.
    None,
    /// Each chunk waits this long.
    Delay(Duration),
    /// One byte at a time, with this pause between.
    Trickle(Duration),
    /// Connections stay open and nothing passes any more.
    Silence,
    /// Open connections are cut, and new ones too.
    Cut,
    /// Connections are cut after this many more bytes, in either direction.
    CutAfter(u64),
}

/// A running proxy; dropping it ends it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    fault: watch::Sender<Fault>,
    passed: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub async fn start(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (fault, seen) = watch::channel(Fault::None);
        let passed = Arc::new(AtomicU64::new(0));
        let task = tokio::spawn(accept(listener, target, seen, Arc::clone(&passed)));
        Ok(Self { address, fault, passed, task })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what happens from now on, also to open connections.
    pub fn set(&self, fault: Fault) {
        self.passed.store(0, Ordering::Release);
        self.fault.send_replace(fault);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    fault: watch::Receiver<Fault>,
    passed: Arc<AtomicU64>,
) {
    // The set ends its tasks when this task is aborted.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(connect(client, target, fault.clone(), Arc::clone(&passed)));
    }
}

async fn connect(
    client: TcpStream,
    target: SocketAddr,
    fault: watch::Receiver<Fault>,
    passed: Arc<AtomicU64>,
) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // Whichever direction ends first takes the other with it: dropping the halves closes both.
    tokio::select! {
        () = pass(from_client, to_server, fault.clone(), &passed) => {}
        () = pass(from_server, to_client, fault, &passed) => {}
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut fault: watch::Receiver<Fault>,
    passed: &AtomicU64,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let current = *fault.borrow_and_update();
        if current == Fault::Cut {
            return;
        }
        if current == Fault::Silence {
            if fault.changed().await.is_err() {
                return;
            }
            continue;
        }
        let length = tokio::select! {
            read = from.read(&mut buffer) => match read {
                Ok(length) if length > 0 => length,
                _ => return,
            },
            changed = fault.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        let current = *fault.borrow();
        if !forward(&buffer[..length], &mut to, current, passed).await {
            return;
        }
    }
}

/// Sends one chunk as the fault would have it; `false` ends the connection.
async fn forward(bytes: &[u8], to: &mut OwnedWriteHalf, fault: Fault, passed: &AtomicU64) -> bool {
    match fault {
        Fault::Cut => return false,
        Fault::Delay(wait) => tokio::time::sleep(wait).await,
        Fault::Trickle(wait) => {
            for byte in bytes {
                tokio::time::sleep(wait).await;
                if to.write_all(&[*byte]).await.is_err() {
                    return false;
                }
            }
            return true;
        }
        Fault::CutAfter(limit) => {
            let before = passed.fetch_add(bytes.len() as u64, Ordering::AcqRel);
            let left = usize::try_from(limit.saturating_sub(before)).unwrap_or(usize::MAX);
            let kept = &bytes[..left.min(bytes.len())];
            return to.write_all(kept).await.is_ok() && kept.len() == bytes.len();
        }
        Fault::None | Fault::Silence => {}
    }
    to.write_all(bytes).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers every byte with itself.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        address
    }

    #[tokio::test]
    async fn bytes_pass_until_the_cut() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        let mut answer = [0; 5];
        stream.write_all(b"hello").await.unwrap();
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"hello");
        proxy.set(Fault::Cut);
        assert_eq!(stream.read(&mut answer).await.unwrap_or(0), 0, "the connection is closed");
    }

    #[tokio::test]
    async fn a_limited_connection_passes_exactly_so_much() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        proxy.set(Fault::CutAfter(3));
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.len() <= 3, "{answer:?}");
    }
}
