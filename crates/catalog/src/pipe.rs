//! From a thread that writes to a task that stores: bytes in pieces, a few of them at a time.

use std::io::{self, Write};

use bytes::{Bytes, BytesMut};
use falaj_base::{Error, Result};
use futures::{Stream, StreamExt, stream};
use tokio::sync::mpsc;

const PIECE: usize = 256 << 10;
const PIECES: usize = 8;

/// Where the thread writes.
#[derive(Debug)]
pub struct Pipe {
    to: mpsc::Sender<Result<Bytes>>,
    waiting: BytesMut,
}

/// A pipe and what comes out of it. What was written last comes with [`Write::flush`].
pub fn pipe() -> (Pipe, impl Stream<Item = Result<Bytes>> + Send) {
    let (to, from) = mpsc::channel(PIECES);
    let next = |mut from: mpsc::Receiver<Result<Bytes>>| async move {
        from.recv().await.map(|piece| (piece, from))
    };
    // Asked once more after its end, it has still ended.
    let pieces = stream::unfold(from, next).fuse();
    (Pipe { to, waiting: BytesMut::new() }, pieces)
}

impl Pipe {
    /// Tells the other side why nothing more comes: without it, what came would pass for all.
    pub fn failing(&self) -> impl Fn(Error) + Send + 'static {
        let to = self.to.clone();
        move |error| drop(to.blocking_send(Err(error)))
    }

    fn send(&mut self) -> io::Result<()> {
        let piece = self.waiting.split().freeze();
        let sent = self.to.blocking_send(Ok(piece));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= PIECE {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() { Ok(()) } else { self.send() }
    }
}
