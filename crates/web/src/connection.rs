//! Whether the connection that a request came on is still there, and whether the server is.

use std::fmt;
use std::sync::{Arc, Weak};

use futures::future::BoxFuture;

/// Held by a connection for as long as it lives.
#[derive(Debug, Default)]
pub struct Lifeline(Arc<()>);

impl Lifeline {
    /// What goes beside each request of the connection.
    #[must_use]
    pub fn watch(&self) -> ConnectionLife {
        ConnectionLife(Arc::downgrade(&self.0))
    }
}

/// Tells whether a connection is still there; keeps nothing alive.
#[derive(Clone, Debug)]
pub struct ConnectionLife(Weak<()>);

impl ConnectionLife {
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// Tells an endless response that the server begins to stop; an extension of every request. One
/// that nobody made never tells anything.
#[derive(Clone, Default)]
pub struct Stopping(Option<Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>>);

impl Stopping {
    /// `begun` gives a future that resolves when the server begins to stop.
    pub fn new(begun: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(begun)))
    }

    /// Resolves when the server begins to stop.
    pub async fn begun(&self) {
        match &self.0 {
            Some(begun) => begun().await,
            None => std::future::pending().await,
        }
    }
}

impl fmt::Debug for Stopping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopping").finish_non_exhaustive()
    }
}
