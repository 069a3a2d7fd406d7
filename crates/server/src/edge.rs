//! Models from a folder, without a database: the listener and TLS of the platform around the edge's
//! own router.

use std::net::SocketAddr;
use std::path::Path;

use falaj_base::Result;
use falaj_base::quantity::ByteSize;
use falaj_serving::edge::{Edge, EdgeConfig, Found, MAX_BODY};

use crate::http::{
    Drain, LimitsConfig, Listener, ServerConfig, TlsConfig, Transport, with_whole_bodies,
};

/// A folder of models that listens, and has not yet begun to answer.
#[derive(Debug)]
pub struct EdgeServer {
    edge: Edge,
    listener: Listener,
    grace: std::time::Duration,
}

impl EdgeServer {
    /// Loads every model and binds the port. A certificate that is made is kept in `folder`.
    pub async fn start(
        config: EdgeConfig,
        server: &ServerConfig,
        tls: &TlsConfig,
        folder: &Path,
    ) -> Result<Self> {
        let transport = Transport::prepare(server, tls, folder)?;
        let edge = Edge::open(config).await?;
        let listener = Listener::bind(server, &LimitsConfig::default(), transport).await?;
        Ok(Self { edge, listener, grace: server.drain_grace.get() })
    }

    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// `http` or `https`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        self.listener.transport().scheme()
    }

    /// What answers.
    #[must_use]
    pub fn models(&self) -> &[Found] {
        self.edge.models()
    }

    /// Answers until `shutdown` resolves, then lets running requests finish.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let drain = Drain::new();
        let stop = async {
            shutdown.await;
            drain.announce(self.grace).await;
        };
        let size = ByteSize::from_bytes(MAX_BODY as u64);
        let limits = LimitsConfig {
            max_body_size: size,
            max_decompressed_size: size,
            ..LimitsConfig::default()
        };
        let router = self.edge.router(|calls| with_whole_bodies(calls, &limits));
        tokio::join!(self.listener.serve(router, drain.clone()), stop);
    }
}
