//! From a key to a model that answers.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use falaj_base::{Error, Result};
use falaj_inference::Session;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;

use super::super::instances::{self, Instances};
use super::super::key::ModelKey;
use super::super::meter::Meter;
use super::super::model::{self, Model, Runner};
use super::super::repair::Reload;
use super::super::settings::{MAX_INSTANCES, Settings};
use super::super::source::{Content, Fetched};
use super::prepare::{Prepared, Recipe, another, prepare};
use super::{Shared, memory};

/// Instances that nobody asked for hold no more than these bytes of weights, if they share none.
const UNASKED_BYTES: usize = 256 << 20;
/// What a model takes beside its weights.
const OVERHEAD: usize = 64 << 10;

pub(super) async fn load(shared: &Arc<Shared>, key: &ModelKey) -> Result<Arc<Model>> {
    let permit = shared.loads.acquire().await.map_err(Error::internal)?;
    let fetched = shared.source.fetch(key).await?;
    fetched.settings.check()?;
    let file = match &fetched.model {
        Content::File(file) => file.clone(),
        Content::Remote(_) => return Err(Error::invalid("model", "remote", "a file")),
    };
    let Fetched { golden, batch_invariant, settings, model } = fetched;
    drop(model);
    let instances = instances_of(&settings, file.len());
    // Until its engine says better: the weights, and the file while it is read.
    let size = file.len();
    let mut room = memory::make_room(shared, size.saturating_mul(2) + OVERHEAD).await?;
    let engine = Arc::clone(&shared.engine);
    let recipe = Recipe {
        limits: shared.config.limits.clone(),
        golden,
        batch_invariant,
        instances,
        settings: settings.clone(),
    };
    let prepared = blocking(move || prepare(&*engine, file, &recipe)).await?;
    drop(permit);
    let Prepared { sessions, metadata, engine, costs, bytes, by_row } = prepared;
    let weights = if bytes > 0 { bytes } else { size.saturating_mul(instances) };
    room.correct(weights + OVERHEAD);
    let meter = Arc::new(Meter::default());
    let instances = Instances::new(instances::Parts {
        key: key.clone(),
        sessions,
        settings: settings.clone(),
        shared_runs: by_row && batch_invariant && settings.batching.max_rows > 1,
        costs,
        meter: Arc::clone(&meter),
        queue_room: Arc::clone(&shared.queue_room),
        reload: reload(shared, key),
        memory: room,
    });
    let cache = settings.cache.then(|| Arc::clone(&shared.cache));
    let runner = Runner::Here(instances);
    Ok(Model::new(model::Parts {
        key: key.clone(),
        metadata,
        engine,
        settings,
        meter,
        cache,
        runner,
    }))
}

fn instances_of(settings: &Settings, file_bytes: usize) -> usize {
    if settings.instances > 0 {
        return settings.instances.min(MAX_INSTANCES);
    }
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    processors.min(UNASKED_BYTES / file_bytes.max(1)).clamp(1, MAX_INSTANCES)
}

/// Work that takes long, away from the threads that answer. Loads are limited in number, and so is
/// this.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
}

/// Another session of the model, in place of one that panicked.
fn reload(shared: &Arc<Shared>, key: &ModelKey) -> Reload {
    let (shared, key) = (Arc::downgrade(shared), key.clone());
    let load = move || -> BoxFuture<'static, Result<Box<dyn Session>>> {
        session(Weak::clone(&shared), key.clone()).boxed()
    };
    Reload { runtime: Handle::current(), load: Arc::new(load) }
}

async fn session(shared: Weak<Shared>, key: ModelKey) -> Result<Box<dyn Session>> {
    let shared = shared.upgrade().ok_or_else(|| Error::internal("the fleet is gone"))?;
    let _permit = shared.loads.acquire().await.map_err(Error::internal)?;
    let fetched = shared.source.fetch(&key).await?;
    let file: Bytes = match fetched.model {
        Content::File(file) => file,
        Content::Remote(_) => return Err(Error::internal("a model became a remote one")),
    };
    let (engine, limits) = (Arc::clone(&shared.engine), shared.config.limits.clone());
    blocking(move || another(&*engine, file, &limits)).await
}
