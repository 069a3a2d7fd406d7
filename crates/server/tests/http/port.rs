//! A listener on a free loopback port, with the routes a test gives it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use axum::Router;
use falaj_base::quantity::HumanDuration;
use falaj_server::http::{Drain, LimitsConfig, Listener, ServerConfig, TlsConfig, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Long enough for a busy machine, short enough to notice a connection that never ends.
pub(crate) const AT_MOST: Duration = Duration::from_secs(20);

pub(crate) struct Port {
    pub(crate) address: SocketAddr,
    pub(crate) drain: Drain,
    pub(crate) serving: JoinHandle<()>,
}

/// Timeouts short enough to wait for.
pub(crate) fn impatient() -> ServerConfig {
    let short = HumanDuration::from_millis(300);
    ServerConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        header_timeout: short,
        handshake_timeout: short,
        idle_timeout: short,
        write_timeout: short,
        ..ServerConfig::default()
    }
}

impl Port {
    pub(crate) async fn open(server: &ServerConfig, router: Router) -> Self {
        Self::with(server, &LimitsConfig::default(), Transport::Plain, router).await
    }

    pub(crate) async fn open_tls(server: &ServerConfig, tls: &TlsConfig, dir: &Path) -> Self {
        let transport = Transport::prepare(server, tls, dir).unwrap();
        let router = Router::new().fallback(|| async { "hello" });
        Self::with(server, &LimitsConfig::default(), transport, router).await
    }

    pub(crate) async fn with(
        server: &ServerConfig,
        limits: &LimitsConfig,
        transport: Transport,
        router: Router,
    ) -> Self {
        let listener = Listener::bind(server, limits, transport).await.unwrap();
        let (address, drain) = (listener.local_addr().unwrap(), Drain::new());
        let serving = tokio::spawn(listener.serve(router, drain.clone()));
        Self { address, drain, serving }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

/// Everything the server sends until it closes; fails if it does not close in time.
pub(crate) async fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    // A reset is a close too: the server need not read what it will not answer.
    let _ = tokio::time::timeout(AT_MOST, read).await.expect("the server closes");
    bytes
}

/// Sends `bytes` and reads the answer to its end.
pub(crate) async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(bytes).await;
    String::from_utf8_lossy(&until_closed(&mut stream).await).into_owned()
}
