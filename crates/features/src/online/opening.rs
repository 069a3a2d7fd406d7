//! Opening something once, for everybody who waits for it.
//!
//! Must hold: whoever asks waits for one attempt at most, and no longer than it is patient; an
//! attempt goes on although those who began it went away.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use falaj_base::{Code, Error, Result, code};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

/// Why an attempt failed, for each of those who waited.
#[derive(Clone, Debug)]
struct Failed {
    code: &'static Code,
    text: String,
}

type Attempt = Shared<BoxFuture<'static, Result<(), Failed>>>;

/// The attempt under way, or the last one.
#[derive(Default)]
pub(super) struct Opening(Mutex<Option<Attempt>>);

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening").finish_non_exhaustive()
    }
}

impl Opening {
    /// Waits for the attempt under way, or for a new one.
    pub(super) async fn wait<F>(&self, patience: Duration, work: impl FnOnce() -> F) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let attempt = self.attempt(work);
        match tokio::time::timeout(patience, attempt).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Failed { code, text })) => {
                let error = Error::new(code, text);
                Err(if error.kind().is_ours() { error.retry_after(AGAIN) } else { error })
            }
            Err(_) => {
                let text = "the online store is being opened and filled: ask again in a while";
                Err(Error::new(&code::UNAVAILABLE, text).retry_after(AGAIN))
            }
        }
    }

    fn attempt<F>(&self, work: impl FnOnce() -> F) -> Attempt
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(attempt) = &*current
            && attempt.peek().is_none()
        {
            return attempt.clone();
        }
        let work = tokio::spawn(work());
        let attempt = async move {
            let done = work.await.map_err(Error::internal).and_then(|done| done);
            done.map_err(|error| {
                tracing::warn!(error = error.chain(), "the online store was not opened");
                Failed { code: error.code(), text: error.message().to_owned() }
            })
        };
        current.insert(attempt.boxed().shared()).clone()
    }
}

/// When to ask again.
const AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_wait_for_one_attempt_and_not_for_each_other() {
        let (opening, tries) = (Opening::default(), Arc::new(AtomicUsize::new(0)));
        let work = || {
            let tries = tries.clone();
            async move {
                tries.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(2)).await;
                Err(Error::new(&code::UNAVAILABLE, "away"))
            }
        };
        let start = tokio::time::Instant::now();
        let waits = (0..100).map(|_| opening.wait(Duration::from_secs(5), work));
        let all = futures::future::join_all(waits).await;
        assert!(all.iter().all(|one| one.as_ref().unwrap_err().message() == "away"));
        assert_eq!(start.elapsed(), Duration::from_secs(2));
        assert_eq!(tries.load(Ordering::Relaxed), 1);
        // The next is a new attempt, and nobody waits for longer than it wants to.
        let refused = opening.wait(Duration::from_secs(1), work).await.unwrap_err();
        assert_eq!(refused.code().id, "unavailable");
        assert_eq!(start.elapsed(), Duration::from_secs(3));
        assert_eq!(tries.load(Ordering::Relaxed), 2);
    }
}
