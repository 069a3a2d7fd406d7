//! The accept loop: one port for HTTP/1.1, HTTP/2 and gRPC.
//!
//! Must hold:
//! - A connection costs a permit before it is accepted, so their number is bounded.
//! - Nothing a client does, or leaves undone, keeps a connection open without end: the handshake,
//!   the head of a request, silence and a refusal to read each have a timeout. (The body's is in
//!   `middleware::slow_body`.)
//! - A stopping server accepts nothing more and lets running requests finish, up to a limit.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use falaj_base::{Error, Result, code};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::config::{LimitsConfig, ServerConfig};
use super::connection::{Connection, Peer, Timeouts, protocol};
use super::drain::Drain;
use super::express::Doors;
use super::loops::Loops;
use super::sources::{SourceGuard, Sources};
use super::tls::Transport;

/// How long to wait after the system could not accept, for instance for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound port, ready to serve.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    transport: Transport,
    connection: Connection,
    permits: Arc<Semaphore>,
    sources: Sources,
    loops: Arc<Loops>,
    drain_timeout: Duration,
}

impl Listener {
    pub async fn bind(
        server: &ServerConfig,
        limits: &LimitsConfig,
        transport: Transport,
    ) -> Result<Self> {
        limits.check()?;
        let socket = TcpListener::bind(server.listen).await.map_err(|cause| {
            let message = format!("cannot listen on {}: {cause}", server.listen);
            Error::new(&code::UNAVAILABLE, message).caused_by(cause)
        })?;
        Ok(Self {
            socket,
            transport,
            connection: Connection::new(protocol(server, limits), Timeouts::of(server)),
            permits: Arc::new(Semaphore::new(server.max_connections)),
            sources: Sources::new(server.max_connections_per_source),
            loops: Arc::default(),
            drain_timeout: server.drain_timeout.get(),
        })
    }

    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.socket.local_addr().map_err(Error::internal)
    }

    #[must_use]
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Serves until `drain` starts, then lets running requests finish.
    pub async fn serve(self, doors: impl Into<Doors>, drain: Drain) {
        let doors = doors.into();
        let (tasks, cut) = (TaskTracker::new(), CancellationToken::new());
        while let Some((stream, peer, slot)) = drain.unless_started(self.accept()).await.flatten() {
            let work = self.life_of(stream, peer, doors.clone(), drain.clone());
            let cut = cut.clone();
            tasks.spawn(async move {
                cut.run_until_cancelled(work).await;
                drop(slot);
            });
        }
        drop(self.socket);
        tasks.close();
        if tokio::time::timeout(self.drain_timeout, tasks.wait()).await.is_err() {
            tracing::warn!(connections = tasks.len(), "cut connections that did not finish");
            cut.cancel();
            tasks.wait().await;
        }
        self.loops.ended().await;
    }

    /// The next connection, with the permits it holds while it lives; none only if the permits
    /// were withdrawn, which nobody does.
    async fn accept(&self) -> Option<(TcpStream, SocketAddr, Slot)> {
        loop {
            let permit = Arc::clone(&self.permits).acquire_owned().await.ok()?;
            match self.socket.accept().await {
                Ok((stream, peer)) => {
                    if let Some(source) = self.sources.enter(peer.ip()) {
                        return Some((stream, peer, Slot { _permit: permit, _source: source }));
                    }
                    tracing::debug!(%peer, "refused: too many connections from there");
                }
                Err(error) if is_of_the_connection(&error) => {}
                Err(error) => {
                    tracing::error!(%error, "cannot accept connections");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// The life of one connection, owning all it needs.
    fn life_of(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        doors: Doors,
        drain: Drain,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (transport, connection) = (self.transport.clone(), self.connection.clone());
        let loops = self.loops.clone();
        async move {
            // Small replies must not wait for more bytes; failing to say so costs only speed.
            let _ = stream.set_nodelay(true);
            let Ok(local) = stream.local_addr() else { return };
            let peer = Peer { address: peer, local, tls: transport.is_tls() };
            match transport {
                Transport::Plain => connection.run(stream, peer, (doors, loops), drain).await,
                Transport::Tls { acceptor, .. } => {
                    let hello = acceptor.accept(stream);
                    match tokio::time::timeout(connection.timeouts.handshake, hello).await {
                        Ok(Ok(stream)) => connection.run(stream, peer, (doors, loops), drain).await,
                        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                        Err(_) => tracing::debug!("TLS handshake took too long"),
                    }
                }
            }
        }
    }
}

/// Whether only the one connection failed, not the listener.
fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// What a live connection occupies.
struct Slot {
    _permit: OwnedSemaphorePermit,
    _source: SourceGuard,
}
