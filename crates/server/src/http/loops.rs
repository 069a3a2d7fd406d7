//! Threads that each answer the calls of their own connections, from the first byte to the last.
//!
//! The runtime shares all that is to be done out among its threads: whoever has nothing to do wakes up and
//! takes from the others. For work that is worth a hundred microseconds that is as it should be. A call on
//! the short way takes ten, and waking a thread for it takes as long. Here a connection stays with one
//! thread, which finds out by one question which of its connections have brought something.
//!
//! Must hold: only calls on the short way are answered here, which compute nothing where they arrive that
//! takes longer than a millisecond: the thread's other connections wait for it. What they start besides runs where it would run otherwise ([`Home`]): nothing that outlives
//! a call depends on these threads.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::OnceLock;
use std::thread::{self, available_parallelism};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// How long a thread rests that mostly had to refuse what it was brought: those who come meanwhile are
/// refused together. Each that wakes it interrupts a computation, just when all processors compute.
const REST: Duration = Duration::from_millis(1);

thread_local! {
    /// How many calls this thread refused for want of room since it waited last, and how many others it
    /// answered.
    static ROUND: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// Notes that this thread answered a call, or refused it for want of room.
pub(super) fn note_answered(refused: bool) {
    let (refusals, others) = ROUND.get();
    ROUND.set(if refused { (refusals + 1, others) } else { (refusals, others + 1) });
}

/// What a thread does before it waits.
fn rest() {
    let (refusals, others) = ROUND.take();
    if refusals > others {
        thread::sleep(REST);
    }
}

/// The threads, one for each processor; started when the first connection comes to stay. They end when
/// this is dropped.
#[derive(Debug, Default)]
pub(super) struct Loops(OnceLock<Vec<Loop>>);

/// One of them.
#[derive(Debug)]
pub(super) struct Loop {
    runtime: Handle,
    connections: TaskTracker,
    _ends: DropGuard,
}

impl Loops {
    /// The thread that has fewest connections; none if none could be started.
    pub(super) fn free(&self) -> Option<&Loop> {
        self.0.get_or_init(start).iter().min_by_key(|each| each.connections.len())
    }

    /// Waits until no connection is left; more must not come by then.
    pub(super) async fn ended(&self) {
        for each in self.0.get().into_iter().flatten() {
            each.connections.close();
            each.connections.wait().await;
        }
    }
}

fn start() -> Vec<Loop> {
    let count = available_parallelism().map_or(1, usize::from);
    let started: io::Result<Vec<Loop>> = (0..count).map(|_| Loop::start()).collect();
    started.unwrap_or_else(|error| {
        tracing::warn!(%error, "no threads for short calls alone: they share those of all requests");
        Vec::new()
    })
}

impl Loop {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().on_thread_park(rest).enable_all().build()?;
        let (handle, end) = (runtime.handle().clone(), CancellationToken::new());
        let ends = end.clone().drop_guard();
        thread::Builder::new().name("falaj-loop".to_owned()).spawn(move || {
            runtime.block_on(end.cancelled());
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, connections: TaskTracker::new(), _ends: ends })
    }

    /// Runs the work of a connection. It ends early if whoever waits for it leaves; nothing comes back if it
    /// panicked.
    pub(super) fn run<T, W>(&self, work: W) -> impl Future<Output = Option<T>> + use<T, W>
    where
        T: Send + 'static,
        W: Future<Output = T> + Send + 'static,
    {
        let done = AbortOnDropHandle::new(self.connections.spawn_on(work, &self.runtime));
        async move { done.await.ok() }
    }
}

/// Where all that calls start belongs, whichever thread answers them.
#[derive(Clone, Debug)]
pub(super) struct Home(Handle);

impl Home {
    /// The runtime of whoever asks.
    pub(super) fn here() -> Self {
        Self(Handle::current())
    }

    /// Does some work on this thread whose tasks, timers and blocking calls are at home.
    pub(super) async fn of<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            let _home = self.0.enter();
            work.as_mut().poll(cx)
        })
        .await
    }
}

/// A stream that another runtime than the one it came from can drive.
pub(super) trait Movable {
    /// From now on the runtime of whoever calls this tells what the stream has to say.
    fn settle(&mut self) -> io::Result<()>;
}

impl Movable for TcpStream {
    fn settle(&mut self) -> io::Result<()> {
        // A second descriptor of the same socket: the first stays with its runtime, and ends here.
        let socket = self.as_fd().try_clone_to_owned()?;
        *self = Self::from_std(socket.into())?;
        Ok(())
    }
}

impl<S: Movable> Movable for TlsStream<S> {
    fn settle(&mut self) -> io::Result<()> {
        self.get_mut().0.settle()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;

    use super::*;

    fn name() -> String {
        thread::current().name().unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn connections_are_shared_out_and_what_they_start_is_at_home() {
        let loops = Loops::default();
        let (home, here) = (Home::here(), name());
        let answer = loops.free().unwrap().run(async move {
            home.of(async {
                let started = tokio::spawn(async { name() }).await.unwrap();
                (name(), started)
            })
            .await
        });
        assert_eq!(answer.await, Some(("falaj-loop".to_owned(), here)));

        let count = loops.0.get().unwrap().len();
        let (ends, _kept): (Vec<_>, Vec<_>) = (0..2 * count)
            .map(|_| {
                let (end, ended) = oneshot::channel::<()>();
                (loops.free().unwrap().run(async { drop(ended.await) }), end)
            })
            .unzip();
        let all = tokio::time::timeout(Duration::from_millis(100), futures::future::join_all(ends));
        let looked = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let each = loops.0.get().unwrap().iter();
            each.map(|each| each.connections.len()).collect::<Vec<_>>()
        };
        let (waited, looked) = tokio::join!(all, looked);
        assert!(waited.is_err(), "they wait for what never comes");
        assert_eq!(looked, vec![2; count]);
        // Nobody waits for them any more, and so they have ended.
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let mut each = loops.0.get().unwrap().iter();
            if each.all(|each| each.connections.is_empty()) {
                return;
            }
        }
        panic!("a connection outlived whoever waited for it");
    }

    #[tokio::test]
    async fn a_panic_ends_its_connection_alone() {
        let loops = Loops::default();
        assert_eq!(loops.free().unwrap().run(async { panic!("on purpose") }).await, None::<()>);
        assert_eq!(loops.free().unwrap().run(async { 1 }).await, Some(1));
    }

    #[tokio::test]
    async fn a_stream_goes_on_elsewhere_and_comes_back() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let loops = Loops::default();
        for turn in [1, 2, 3_u8] {
            client.write_u8(turn).await.unwrap();
            let moved = loops.free().unwrap().run(async move {
                server.settle().unwrap();
                let heard = server.read_u8().await.unwrap();
                server.write_u8(heard + 10).await.unwrap();
                server
            });
            server = moved.await.unwrap();
            assert_eq!(client.read_u8().await.unwrap(), turn + 10);
            server.settle().unwrap();
            client.write_u8(turn).await.unwrap();
            assert_eq!(server.read_u8().await.unwrap(), turn);
        }
        loops.ended().await;
        drop((loops, server));
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    }
}
