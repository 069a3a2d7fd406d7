//! Connections side by side, driven by one thread that does nothing else.
//!
//! The client shares the processors with the server it measures, so it should take as little of them as it
//! can: each lane is woken for itself, by the thread that drives it, and never by another.

use std::thread;

use anyhow::{Context, Result};
use futures::TryStreamExt;
use futures::stream::FuturesUnordered;

/// Runs all lanes to their ends, in no order. They are made on the thread that drives them.
pub(crate) fn drive<L, T>(lanes: impl FnOnce() -> L + Send) -> Result<Vec<T>>
where
    L: IntoIterator<Item: Future<Output = Result<T>>>,
    T: Send,
{
    alone(|| lanes().into_iter().collect::<FuturesUnordered<_>>().try_collect())
}

/// Runs what is made there on a thread of its own: a runtime does not run within another, and the other
/// goes on meanwhile.
fn alone<F, T>(work: impl FnOnce() -> F + Send) -> Result<T>
where
    F: Future<Output = Result<T>>,
    T: Send,
{
    let driver = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(work())
    };
    tokio::task::block_in_place(|| {
        thread::scope(|scope| scope.spawn(driver).join().ok().context("the client ended")?)
    })
}
