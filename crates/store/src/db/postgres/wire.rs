//! The socket of a connection, and the thread that waits at it.
//!
//! The driver is written for a runtime, which asks the system what it may do next before it does it. Here one
//! thread has one connection and nothing else to do: it sends, and sleeps in the call that receives. That is
//! two calls of the system for a round trip, where a runtime makes five; a third asks beforehand whether the
//! server has gone.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use futures::future::BoxFuture;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::time::Timespec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much is received at once.
const PIECE: usize = 32 * 1024;

type Driven<T> = Result<T, tokio_postgres::Error>;

/// A socket that never waits by itself. Cheap to clone.
#[derive(Clone)]
pub(super) struct Socket(Arc<Shared>);

struct Shared {
    stream: Stream,
    came: Mutex<Came>,
    /// Whether what was to be sent did not fit.
    stuck: AtomicBool,
}

pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// What was received and not read yet, and how it ended.
struct Came {
    bytes: Box<[u8]>,
    from: usize,
    to: usize,
    end: Option<io::Result<()>>,
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Socket {
    pub(super) fn new(stream: Stream) -> Self {
        let came = Came { bytes: vec![0; PIECE].into(), from: 0, to: 0, end: None };
        Self(Arc::new(Shared { stream, came: Mutex::new(came), stuck: AtomicBool::new(false) }))
    }

    /// Sleeps until something came, or until what did not fit can be sent; no longer than until then.
    fn wait(&self, until: Option<Instant>) {
        if until.is_none() && !self.0.stuck.load(Ordering::Relaxed) {
            self.receive(RecvFlags::empty());
            return;
        }
        let fd = self.0.stream.as_fd();
        let mut asked = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        if self.0.stuck.swap(false, Ordering::Relaxed) {
            asked = [PollFd::from_borrowed_fd(fd, PollFlags::IN | PollFlags::OUT)];
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut asked, left.as_ref()) {
            Ok(0) => self.came().end = Some(Err(io::ErrorKind::TimedOut.into())),
            Ok(_) => {
                self.receive(RecvFlags::DONTWAIT);
            }
            Err(Errno::INTR) => {}
            Err(error) => self.came().end = Some(Err(error.into())),
        }
    }

    /// Takes what is there; with no flags, waits for it. Tells whether that was anything new.
    fn receive(&self, flags: RecvFlags) -> bool {
        let mut came = self.came();
        if came.from < came.to || came.end.is_some() {
            return false;
        }
        match recv(self.0.stream.as_fd(), &mut *came.bytes, flags) {
            Ok((0, _)) => came.end = Some(Ok(())),
            Ok((count, _)) => (came.from, came.to) = (0, count),
            Err(Errno::AGAIN | Errno::INTR) => return false,
            Err(error) => came.end = Some(Err(error.into())),
        }
        true
    }

    fn came(&self) -> MutexGuard<'_, Came> {
        self.0.came.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut came = self.came();
        let count = buf.remaining().min(came.to - came.from);
        if count > 0 {
            buf.put_slice(&came.bytes[came.from..came.from + count]);
            came.from += count;
            return Poll::Ready(Ok(()));
        }
        match &mut came.end {
            None => Poll::Pending,
            // Whoever asks again is told that nothing more comes.
            Some(end) => Poll::Ready(std::mem::replace(end, Ok(()))),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            return match send(self.0.stream.as_fd(), buf, flags) {
                Ok(sent) => Poll::Ready(Ok(sent)),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {
                    self.0.stuck.store(true, Ordering::Relaxed);
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(error.into())),
            };
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match &self.0.stream {
            Stream::Tcp(stream) => stream.shutdown(std::net::Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(std::net::Shutdown::Write),
        })
    }
}

/// Whether anything that is waited for has come on.
#[derive(Default)]
struct News(AtomicBool);

impl Wake for News {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs what has nothing to wait for but this socket, until then at most.
pub(super) fn block_on<T>(
    socket: &Socket,
    until: Option<Instant>,
    work: impl Future<Output = T>,
) -> T {
    let news = Arc::new(News::default());
    let waker = Waker::from(news.clone());
    let mut work = pin!(work);
    loop {
        news.0.store(false, Ordering::Relaxed);
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        if !news.0.load(Ordering::Relaxed) {
            socket.wait(until);
        }
    }
}

/// The socket's side of a connection; the driver's part of it is gone once it is closed, and whoever waits
/// is told so.
pub(super) struct Wire {
    socket: Socket,
    moves: Option<BoxFuture<'static, Driven<()>>>,
}

impl Wire {
    pub(super) fn new(socket: Socket, moves: BoxFuture<'static, Driven<()>>) -> Self {
        Self { socket, moves: Some(moves) }
    }

    /// Waits for `work`, and moves bytes meanwhile.
    pub(super) fn drive<T>(&mut self, work: impl Future<Output = T>) -> T {
        self.drive_until(None, work)
    }

    /// The same, until then at most: who waits longer is told that the connection is gone.
    pub(super) fn drive_until<T>(
        &mut self,
        until: Option<Instant>,
        work: impl Future<Output = T>,
    ) -> T {
        let Self { socket, moves } = self;
        let mut work = pin!(work);
        let both = std::future::poll_fn(|cx| {
            let done = work.as_mut().poll(cx);
            if done.is_pending() {
                advance(moves, cx);
            }
            done
        });
        block_on(socket, until, both)
    }

    /// Moves what can be moved without waiting.
    pub(super) fn push(&mut self) {
        advance(&mut self.moves, &mut Context::from_waker(Waker::noop()));
    }

    /// Reads what the server said while nobody listened; tells whether it is still open.
    pub(super) fn listen(&mut self) -> bool {
        while self.moves.is_some() && self.socket.receive(RecvFlags::DONTWAIT) {
            self.push();
        }
        self.moves.is_some()
    }
}

fn advance(moves: &mut Option<BoxFuture<'static, Driven<()>>>, cx: &mut Context<'_>) {
    if let Some(wire) = moves
        && wire.as_mut().poll(cx).is_ready()
    {
        *moves = None;
    }
}
