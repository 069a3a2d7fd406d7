//! Memory for models: what one takes, and which ones go when there is too little.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use falaj_base::{Error, Result, code};

use super::super::key::ModelKey;
use super::super::model::Model;
use super::super::room::Taken;
use super::{Shared, Slot};

/// How often it is looked whether a model in use has become idle.
const LOOK: Duration = Duration::from_millis(20);

/// Takes memory for a model that is to be loaded.
pub(super) async fn make_room(shared: &Shared, bytes: usize) -> Result<Taken> {
    until_it_fits(shared, bytes, || shared.memory.take(bytes)).await
}

/// Counts a model that is loaded with what it takes. If that is more than was thought, others go
/// for it, or it goes itself.
pub(super) async fn settle(shared: &Shared, room: &mut Taken, bytes: usize) -> Result<()> {
    room.correct(bytes);
    let fits = || (shared.memory.used() <= shared.memory.limit()).then_some(());
    until_it_fits(shared, bytes, fits).await
}

/// Unloads models that nobody uses, the one not asked for the longest first, until it fits. While
/// all are in use it waits a little.
async fn until_it_fits<T>(
    shared: &Shared,
    bytes: usize,
    fits: impl Fn() -> Option<T>,
) -> Result<T> {
    let limit = shared.memory.limit();
    if bytes > limit {
        let text = format!(
            "the model needs about {bytes} bytes of memory; all models together may take {limit}"
        );
        return Err(Error::new(&code::TOO_LARGE, text).at("model"));
    }
    let latest = Instant::now() + shared.config.room_within;
    loop {
        if let Some(fitting) = fits() {
            return Ok(fitting);
        }
        if let Some((key, model)) = oldest_idle(shared) {
            tracing::info!(%key, bytes = model.bytes(), "a model is unloaded to make room");
            let mut gone = model.gone();
            let_go(vec![model]).await;
            let _ = tokio::time::timeout(shared.config.room_within, gone.changed()).await;
        } else if Instant::now() < latest {
            tokio::time::sleep(LOOK).await;
        } else {
            let text = "the models in use leave no memory for another";
            return Err(Error::new(&code::OVERLOADED, text).retry_after(Duration::from_secs(1)));
        }
    }
}

/// Takes out the model not asked for the longest that nobody holds. Whoever asks for it from now on
/// loads it again.
fn oldest_idle(shared: &Shared) -> Option<(ModelKey, Arc<Model>)> {
    let mut models = shared.write();
    let idle = models.iter().filter_map(|(key, slot)| Some((key, idle(slot)?)));
    let oldest = idle.min_by_key(|(_, model)| model.last_used())?.0.clone();
    match models.remove(&oldest) {
        Some(Slot::Ready(model)) => Some((oldest, model)),
        _ => None,
    }
}

/// A model that only the fleet holds: it is handed out under the lock that the caller has.
fn idle(slot: &Slot) -> Option<&Arc<Model>> {
    match slot {
        Slot::Ready(model) if Arc::strong_count(model) == 1 => Some(model),
        _ => None,
    }
}

/// Drops models where it may take a while.
pub(super) async fn let_go(models: Vec<Arc<Model>>) {
    let _ = tokio::task::spawn_blocking(move || drop(models)).await;
}

/// Unloads models that nobody asked for in a while, for as long as the fleet lives.
pub(super) fn sweep(shared: &Arc<Shared>) {
    let Some(limit) = shared.config.idle else { return };
    if shared.swept.swap(true, Ordering::Relaxed) {
        return;
    }
    let pause = (limit / 4).clamp(Duration::from_millis(5), Duration::from_secs(10));
    let weak = Arc::downgrade(shared);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(pause).await;
            let Some(models) = rested(&weak, limit) else { return };
            if !models.is_empty() {
                let_go(models).await;
            }
        }
    });
}

fn rested(shared: &Weak<Shared>, limit: Duration) -> Option<Vec<Arc<Model>>> {
    let shared = shared.upgrade()?;
    let mut models = shared.write();
    let out = models
        .extract_if(|_, slot| idle(slot).is_some_and(|model| model.last_used().elapsed() >= limit));
    let ready = out.filter_map(|(key, slot)| match slot {
        Slot::Ready(model) => Some((key, model)),
        _ => None,
    });
    let ready = ready.map(|(key, model)| {
        tracing::info!(%key, "a model is unloaded that nobody asked for");
        model
    });
    Some(ready.collect())
}
