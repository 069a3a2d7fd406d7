//! From a key to a model that answers.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use falaj_base::{Error, Result};
use falaj_inference::golden::Golden;
use falaj_inference::{Metadata, Session};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;

use super::super::instances::{self, Instances};
use super::super::key::ModelKey;
use super::super::meter::Meter;
use super::super::model::{self, Model, Runner};
use super::super::remote::{Remote, RemoteConfig};
use super::super::repair::Reload;
use super::super::settings::{MAX_INSTANCES, Settings};
use super::super::source::{Content, Fetched};
use super::prepare::{Prepared, Recipe, again, prepare};
use super::{Shared, memory};

/// What a model takes beside its weights.
const OVERHEAD: usize = 64 << 10;

/// Who computes a model, what it takes and gives, and the name of its engine.
type Ready = (Runner, Metadata, &'static str);

pub(super) async fn load(shared: &Arc<Shared>, key: &ModelKey) -> Result<Arc<Model>> {
    let _permit = shared.loads.acquire().await.map_err(Error::internal)?;
    let Fetched { model, golden, batch_invariant, settings } = shared.source.fetch(key).await?;
    settings.check()?;
    let meter = Arc::new(Meter::default());
    let (runner, metadata, engine) = match model {
        Content::File(file) => {
            let instances = instances_of(&settings);
            let limits = shared.config.limits.clone();
            let settings = settings.clone();
            let recipe = Recipe { limits, golden, batch_invariant, instances, settings };
            here(shared, key, file, recipe, &meter).await?
        }
        Content::Remote(config) => {
            there(shared, &config, &settings, golden.as_ref(), &meter).await?
        }
    };
    let cache = settings.cache.then(|| Arc::clone(&shared.cache));
    let key = key.clone();
    Ok(Model::new(model::Parts { key, metadata, engine, settings, meter, cache, runner }))
}

async fn here(
    shared: &Arc<Shared>,
    key: &ModelKey,
    file: Bytes,
    recipe: Recipe,
    meter: &Arc<Meter>,
) -> Result<Ready> {
    let (size, count, settings) = (file.len(), recipe.instances, recipe.settings.clone());
    let may_share = recipe.batch_invariant && settings.batching.max_rows > 1;
    // Until its engine says better: the weights, and the file while it is read.
    let mut room = memory::make_room(shared, size.saturating_mul(2) + OVERHEAD).await?;
    let engine = Arc::clone(&shared.engine);
    let prepared = blocking(move || prepare(&*engine, file, &recipe)).await?;
    let Prepared { sessions, metadata, engine, costs, bytes, by_row } = prepared;
    let weights = if bytes > 0 { bytes } else { size.saturating_mul(count) };
    memory::settle(shared, &mut room, weights.saturating_add(OVERHEAD)).await?;
    let instances = Instances::new(instances::Parts {
        key: key.clone(),
        sessions,
        settings,
        shared_runs: may_share && by_row,
        costs,
        meter: Arc::clone(meter),
        queue_room: Arc::clone(&shared.queue_room),
        reload: reload(shared, key),
        memory: room,
    });
    Ok((Runner::Here(instances), metadata, engine))
}

async fn there(
    shared: &Shared,
    config: &RemoteConfig,
    settings: &Settings,
    golden: Option<&Golden>,
    meter: &Arc<Meter>,
) -> Result<Ready> {
    let room = Arc::clone(&shared.queue_room);
    let remote = Remote::connect(config, settings, golden, room, Arc::clone(meter)).await?;
    let metadata = remote.metadata().clone();
    Ok((Runner::There(Box::new(remote)), metadata, "remote"))
}

fn instances_of(settings: &Settings) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let count = if settings.instances > 0 { settings.instances } else { processors() };
    count.min(MAX_INSTANCES)
}

/// Work that takes long, away from the threads that answer. Loads are limited in number, and so is
/// this.
async fn blocking<T: Send + 'static>(
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
    let Content::File(file) = shared.source.fetch(&key).await?.model else {
        return Err(Error::internal("a model became one of another server"));
    };
    let (engine, limits) = (Arc::clone(&shared.engine), shared.config.limits.clone());
    blocking(move || again(&*engine, file, &limits)).await
}
