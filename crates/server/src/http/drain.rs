//! The one signal that the server is stopping.
//!
//! Must hold: once draining, always draining. Everything that can wait for long (the accept loop,
//! an idle connection, an event stream, a worker) listens to it.

use tokio_util::sync::CancellationToken;

/// Tells whether the server is stopping. Cheap to clone; also an extension of every request, so
/// that an endless response can end itself.
#[derive(Clone, Debug, Default)]
pub struct Drain(CancellationToken);

impl Drain {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins to stop.
    pub fn start(&self) {
        self.0.cancel();
    }

    #[must_use]
    pub fn has_started(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Resolves when the server begins to stop.
    pub async fn started(&self) {
        self.0.cancelled().await;
    }

    /// Runs `work` unless and until the server begins to stop.
    pub async fn unless_started<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.0.run_until_cancelled(work).await
    }
}
