//! Loading a model once, however many wait for it.

use std::error::Error as StdError;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use falaj_base::{Error, ErrorKind, Result};
use futures::FutureExt;
use tokio::sync::watch;
use tracing::Instrument;

use super::super::key::ModelKey;
use super::super::model::Model;
use super::super::run::told;
use super::{Shared, Slot, load, memory};

/// The longest that a failure is remembered that is likely to pass by itself.
const PASSING: Duration = Duration::from_millis(500);

type Outcome = Result<Arc<Model>, Arc<Error>>;

/// A load under way. All clones wait for the same one; it goes on if all of them give up.
#[derive(Clone, Debug)]
pub(super) struct Flight(watch::Receiver<Option<Outcome>>);

impl Flight {
    pub(super) fn landed(model: Arc<Model>) -> Self {
        Self(watch::channel(Some(Ok(model))).1)
    }

    pub(super) fn start(shared: &Arc<Shared>, key: &ModelKey) -> Self {
        let (done, flight) = watch::channel(None);
        let flight = Self(flight);
        let (shared, key, this) = (Arc::clone(shared), key.clone(), flight.clone());
        let span = tracing::info_span!("load", model = %key);
        let fly = async move {
            memory::sweep(&shared);
            let loaded = AssertUnwindSafe(load::load(&shared, &key)).catch_unwind().await;
            let loaded = loaded.unwrap_or_else(|panic| {
                Err(Error::internal(format!("loading panicked: {}", told(&*panic))))
            });
            let outcome = loaded.map_err(Arc::new);
            this.settle(&shared, &key, &outcome);
            let _ = done.send(Some(outcome));
        };
        tokio::spawn(fly.instrument(span));
        flight
    }

    /// Puts the outcome where the flight stood, unless it was unloaded meanwhile.
    fn settle(&self, shared: &Shared, key: &ModelKey, outcome: &Outcome) {
        let slot = match outcome {
            Ok(model) => {
                let (engine, bytes) = (model.engine(), model.bytes());
                tracing::info!(engine, bytes, "a model is loaded");
                Slot::Ready(Arc::clone(model))
            }
            Err(error) => {
                tracing::warn!(error = error.chain(), "a model could not be loaded");
                let until = Instant::now() + remembered(error, shared.config.failed_for);
                Slot::Failed { error: Arc::clone(error), until }
            }
        };
        let mut models = shared.write();
        if matches!(models.get(key), Some(Slot::Loading(flight)) if flight.same(self)) {
            models.insert(key.clone(), slot);
        }
    }

    fn same(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }

    /// Waits for the model.
    pub(super) async fn land(mut self) -> Result<Arc<Model>> {
        let outcome = self.0.wait_for(Option::is_some).await;
        let outcome = outcome.map_err(|_| Error::internal("loading was given up"))?;
        match &*outcome {
            Some(Ok(model)) => Ok(Arc::clone(model)),
            Some(Err(error)) => Err(again(error)),
            None => Err(Error::internal("loading ended without a result")),
        }
    }
}

/// How long a failure is remembered. A model that is at fault stays so; what is overloaded or not
/// answering comes back.
fn remembered(error: &Error, failed_for: Duration) -> Duration {
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::RateLimited => {
            failed_for.min(PASSING)
        }
        _ => failed_for,
    }
}

/// The same error for one more who hears of it.
pub(super) fn again(error: &Error) -> Error {
    let mut same = Error::new(error.code(), error.message());
    if let Some(field) = error.field() {
        same = same.at(field);
    }
    if let Some(wait) = error.wait() {
        same = same.retry_after(wait);
    }
    let mut causes = Vec::new();
    let mut cause = StdError::source(error);
    while let Some(error) = cause {
        causes.push(error.to_string());
        cause = error.source();
    }
    if causes.is_empty() { same } else { same.caused_by(causes.join(": ")) }
}
