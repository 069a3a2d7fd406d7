//! What the process asks of the kernel: no core dumps, as many descriptors as allowed, and the
//! signal to stop.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

/// A core dump would hold every key and token in memory; none is written. Connections need
/// descriptors, and the soft limit is often far below what the system grants.
pub(crate) fn harden() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::warn!(%error, "core dumps could not be switched off");
    }
    let files = getrlimit(Resource::Nofile);
    let most = Rlimit { current: files.maximum, maximum: files.maximum };
    if files.current != files.maximum
        && let Err(error) = setrlimit(Resource::Nofile, most)
    {
        tracing::warn!(%error, "the limit on open files could not be raised");
    }
}

/// Resolves when the process is asked to stop: SIGTERM, or Ctrl-C.
pub async fn stop_signal() {
    let waiting = |kind| async move {
        match signal(kind) {
            Ok(mut signals) => drop(signals.recv().await),
            Err(error) => {
                tracing::error!(%error, "signals cannot be received");
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = waiting(SignalKind::terminate()) => {}
        () = waiting(SignalKind::interrupt()) => {}
    }
}
