//! One connection: its protocol, its timeouts, its end.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use falaj_governance::identity::LastCredential;
use falaj_web::{Lifeline, Stopping};
use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};

use super::activity::Activity;
use super::config::{LimitsConfig, ServerConfig};
use super::drain::Drain;
use super::express::{Doors, End, Express, Stay, Wire};
use super::held::Held;
use super::loops::{Home, Loops, Movable};
use super::middleware::host::LastHost;
use super::rewound::Rewound;
use super::stall::StallGuard;
use super::untaken::Untaken;
use super::words::Words;

/// How long a connection that was asked to close may take over it.
const CLOSE_GRACE: Duration = Duration::from_secs(2);
/// HTTP/2 pings find a peer that vanished without a word.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of one HTTP/2 response held for a slow reader.
const HTTP2_SEND_BUFFER: usize = 64 * 1024;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub address: SocketAddr,
    pub local: SocketAddr,
    pub tls: bool,
}

/// What requests of one connection have in common; beside each of them.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) peer: Peer,
    pub(super) drain: Drain,
    pub(super) stopping: Stopping,
    pub(super) lifeline: Lifeline,
    /// The credential that came last.
    pub(super) last: LastCredential,
    /// The host that was named last.
    pub(super) hosts: LastHost,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) header: Duration,
    pub(super) handshake: Duration,
    pub(super) idle: Duration,
    pub(super) write: Duration,
}

impl Timeouts {
    pub(super) fn of(server: &ServerConfig) -> Self {
        Self {
            header: server.header_timeout.get(),
            handshake: server.handshake_timeout.get(),
            idle: server.idle_timeout.get(),
            write: server.write_timeout.get(),
        }
    }
}

/// The protocol settings every connection starts from.
pub(super) fn protocol(
    server: &ServerConfig,
    limits: &LimitsConfig,
) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // A head that does not come is silence, which `Activity` measures for both protocols: a timer
        // for each request besides would tell nothing new.
        .header_read_timeout(None)
        .max_headers(limits.max_headers)
        .max_buf_size(limits.max_header_size.as_usize());
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(server.max_http2_streams)
        .max_header_list_size(u32::try_from(limits.max_header_size.bytes()).unwrap_or(u32::MAX))
        .max_send_buf_size(HTTP2_SEND_BUFFER)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_PATIENCE);
    builder
}

/// How connections are run; shared by all of them.
#[derive(Clone)]
pub(super) struct Connection {
    protocol: auto::Builder<TokioExecutor>,
    pub(super) timeouts: Timeouts,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("timeouts", &self.timeouts).finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) fn new(protocol: auto::Builder<TokioExecutor>, timeouts: Timeouts) -> Self {
        Self { protocol, timeouts }
    }

    /// Serves `stream` to its end: the client's, silence, an error, or the server's own.
    pub(super) async fn run<S>(
        self,
        stream: S,
        peer: Peer,
        (doors, loops): (Doors, Arc<Loops>),
        drain: Drain,
    ) where
        S: AsyncRead + AsyncWrite + Movable + Unpin + Send + 'static,
    {
        let activity = Activity::new();
        let stopping = drain.stopping();
        let (lifeline, last, hosts) = Default::default();
        let line = Line { peer, drain, stopping, lifeline, last, hosts };
        let mut wire = Wire {
            stream: StallGuard::new(stream, self.timeouts.write),
            line,
            activity,
            timeouts: self.timeouts,
            came: Vec::new(),
            room: None,
        };
        if let Some(express) = doors.express() {
            // Apart, so that its room is given back where the ordinary way goes on.
            let mut end = Box::pin(wire.serve(express, Stay::ForOne)).await;
            if matches!(end, End::Again) {
                end = match loops.free() {
                    Some(free) => {
                        let calls = Box::pin(elsewhere(wire, express.clone(), Home::here()));
                        let Some((back, end)) = free.run(calls).await else { return };
                        wire = back;
                        if matches!(end, End::Ordinary) {
                            // If it cannot, that thread goes on telling what it has to say.
                            let _ = wire.stream.settle();
                        }
                        end
                    }
                    None => Box::pin(wire.serve(express, Stay::Here)).await,
                };
            }
            if matches!(end, End::Closed) {
                return;
            }
        }
        // Apart, so that connections that never come here carry no room for it.
        Box::pin(self.ordinary(wire, doors)).await;
    }

    /// The same for any request there can be.
    async fn ordinary<S>(self, wire: Wire<S>, doors: Doors)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Wire { stream, line, activity, came, room, .. } = wire;
        let stream = Rewound::new(came, room, stream);
        let Timeouts { header, idle, write, .. } = self.timeouts;
        let (peer, drain) = (line.peer, line.drain.clone());
        let service = service(doors, Arc::new(line), activity.clone(), write);
        let mut connection = pin!(self.protocol.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            // First what came before, which the end of the server or of patience must not forestall.
            biased;
            result = connection.as_mut() => return note_end(result, peer),
            () = activity.silence(header, idle) => {}
            () = drain.started() => {}
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            result = connection.as_mut() => note_end(result, peer),
            // Requests in flight keep a closing connection open, and nothing else does.
            () = activity.silence(CLOSE_GRACE, CLOSE_GRACE) => {}
        }
    }
}

/// Answers calls on the short way on the thread that this runs on, until one of another kind comes.
async fn elsewhere<S>(mut wire: Wire<S>, express: Arc<Express>, home: Home) -> (Wire<S>, End)
where
    S: AsyncRead + AsyncWrite + Movable + Unpin + Send + 'static,
{
    // If it cannot, for want of descriptors, it is told by those who were before what the stream has to say.
    let _ = wire.stream.settle();
    let end = wire.serve(&express, Stay::At(home)).await;
    (wire, end)
}

/// A client that leaves in the middle is its own affair: worth a line only when looked for.
fn note_end(result: Result<(), Box<dyn Error + Send + Sync>>, peer: Peer) {
    if let Err(error) = result {
        tracing::debug!(%error, peer = %peer.address, "connection ended early");
    }
}

/// The doors as hyper calls them: with the line beside each request, and each one counted.
fn service(
    doors: Doors,
    line: Arc<Line>,
    activity: Activity,
    patience: Duration,
) -> impl hyper::service::Service<
    Request<Incoming>,
    Response = Response<Body>,
    Error = Infallible,
    Future: Send + 'static,
> + Send
+ 'static {
    hyper::service::service_fn(move |request: Request<Incoming>| {
        let busy = activity.begin();
        let mut request = request.map(Body::new);
        // A path is rewritten before it is matched, so this lies around the router, not in it.
        let words = Words::hear(&mut request);
        let multiplexed = request.version() == Version::HTTP_2;
        let answer = doors.answer(request, line.clone());
        async move {
            Ok(words.answer(answer.await).map(|body| {
                let body = Held::wrap(body, busy);
                if multiplexed { Untaken::wrap(body, patience) } else { body }
            }))
        }
    })
}
