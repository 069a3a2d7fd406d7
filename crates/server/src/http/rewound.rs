//! A stream of which somebody has read the beginning, which is read again.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::middleware::budget::Reservation;

pub(super) struct Rewound<S> {
    /// What is read first, and how much of it was.
    beginning: Vec<u8>,
    read: usize,
    /// What holds the beginning, if it is large.
    room: Option<Reservation>,
    stream: S,
}

impl<S> Rewound<S> {
    pub(super) fn new(beginning: Vec<u8>, room: Option<Reservation>, stream: S) -> Self {
        Self { beginning, read: 0, room, stream }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.beginning.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let rest = &self.beginning[self.read..];
        let count = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..count]);
        self.read += count;
        if self.read == self.beginning.len() {
            (self.beginning, self.room) = (Vec::new(), None);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn what_was_read_comes_first() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut rewound = Rewound::new(b"begun ".to_vec(), None, ours);
        theirs.write_all(b"and done").await.unwrap();
        drop(theirs);
        let (mut first, mut rest) = ([0; 2], String::new());
        rewound.read_exact(&mut first).await.unwrap();
        rewound.read_to_string(&mut rest).await.unwrap();
        assert_eq!((&first, rest.as_str()), (b"be", "gun and done"));
    }
}
