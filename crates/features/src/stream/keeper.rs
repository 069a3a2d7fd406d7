//! Which partitions there are, and that somebody reads them.
//!
//! Every server looks at all stream sources and asks for the lease of each of their partitions; the
//! one that gets it reads.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use falaj_base::{Ctx, Error, Name, ProjectId, Result, code};
use falaj_governance::residency::Residency;
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::lease::Leases;
use falaj_store::worker::Worker;
use falaj_streams::{Broker, StreamConfig};
use tokio::sync::{Mutex as AsyncMutex, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::config::stream_of;
use super::metrics::{Gauge, Labels};
use super::quarantine;
use super::reader::{NAME, PartitionReader, comes_from, judged, note, stopped, stream_form};
use super::spec::StreamForm;
use super::status::State;
use super::store::{self, Key, WHOLE};
use crate::Features;
use crate::definition::form::Noun;
use crate::name::FeatureName;

/// How often all sources are looked at.
const EVERY: Duration = Duration::from_secs(1);
/// How often a topic is looked at for partitions that were added.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// The same of one that was not found.
const ASK_AGAIN: Duration = Duration::from_secs(3);
const TRIM_EVERY: Duration = Duration::from_mins(10);
/// How long readers may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// The readers of this server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Streams(Arc<Inner>);

struct Inner {
    leases: OnceLock<Leases>,
    /// How many partitions this server reads at most.
    room: Arc<Semaphore>,
    brokers: Mutex<BTreeMap<BrokerKey, Broker>>,
    watched: AsyncMutex<Watched>,
    gauges: Mutex<BTreeMap<Labels, Arc<Gauge>>>,
}

#[derive(Default)]
struct Watched {
    /// The definitions that were looked at last.
    epoch: Option<u64>,
    tasks: HashMap<SourceKey, Task>,
    trimmed: Option<Instant>,
}

/// The tenant, the project and the name of a configured stream.
type BrokerKey = (Name, Option<Name>, Name);
type SourceKey = (ProjectId, FeatureName, String);

/// The readers of one source; they end when the sender goes.
struct Task {
    handle: JoinHandle<()>,
    stop: watch::Sender<()>,
}

impl Streams {
    pub(crate) fn new(max_partitions: usize) -> Self {
        Self(Arc::new(Inner {
            leases: OnceLock::new(),
            room: Arc::new(Semaphore::new(max_partitions.min(Semaphore::MAX_PERMITS))),
            brokers: Mutex::default(),
            watched: AsyncMutex::default(),
            gauges: Mutex::default(),
        }))
    }

    /// Tells who this server is to the others; nothing is read before.
    pub(crate) fn lead(&self, leases: Leases) {
        drop(self.0.leases.set(leases));
    }

    pub(super) fn gauges(&self) -> Vec<(Labels, Arc<Gauge>)> {
        let gauges = self.0.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        gauges.iter().map(|(labels, gauge)| (labels.clone(), gauge.clone())).collect()
    }

    fn gauge(&self, labels: Labels) -> Arc<Gauge> {
        let mut gauges = self.0.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        gauges.entry(labels).or_default().clone()
    }

    /// The servers of a configured stream: one connection for all that read it, where there is one.
    fn broker(&self, config: &StreamConfig) -> Result<Broker> {
        let key = (config.tenant.clone(), config.project.clone(), config.name.clone());
        let mut brokers = self.0.brokers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = brokers.get(&key) {
            return Ok(known.clone());
        }
        let broker = Broker::new(config)?;
        brokers.insert(key, broker.clone());
        Ok(broker)
    }

    /// Ends all readers and gives their leases back.
    pub(crate) async fn stop(&self) {
        let tasks = std::mem::take(&mut self.0.watched.lock().await.tasks);
        let handles = tasks.into_values().map(|task| {
            drop(task.stop);
            task.handle
        });
        let all = futures::future::join_all(handles.collect::<Vec<_>>());
        if tokio::time::timeout(PATIENCE, all).await.is_err() {
            tracing::warn!("left streams unfinished; their leases will run out");
        }
    }
}

/// Sees to it that every stream source has readers.
pub(crate) fn worker(features: &Features) -> Worker {
    let features = features.clone();
    Worker::new("feature-streams", EVERY, move || {
        let features = features.clone();
        async move { features.watch_streams().await }
    })
    .on_every_server()
}

/// A source that is to be read.
struct Wanted {
    project: Project,
    source: FeatureName,
    form: StreamForm,
}

impl Features {
    /// Begins to read what is new, and ends what is no longer there.
    pub async fn watch_streams(&self) -> Result<()> {
        let streams = self.streams();
        let Some(leases) = streams.0.leases.get() else { return Ok(()) };
        let mut watched = streams.0.watched.lock().await;
        if watched.trimmed.is_none_or(|last| last.elapsed() > TRIM_EVERY) {
            let before = self.db().now() - self.config().quarantine.keep.get();
            self.db().write(move |tx| quarantine::trim(tx, before)).await?;
            watched.trimmed = Some(Instant::now());
        }
        let epoch = self.catalogs().epoch().current();
        // A task that ended by itself is begun again.
        let ended = watched.tasks.values().any(|task| task.handle.is_finished());
        if watched.epoch == Some(epoch) && !ended {
            return Ok(());
        }
        let wanted = self.stream_sources().await?;
        watched.tasks.retain(|key, task| wanted.contains_key(key) && !task.handle.is_finished());
        for (key, wanted) in wanted {
            watched.tasks.entry(key).or_insert_with(|| {
                let (stop, stopping) = watch::channel(());
                let watch = Watch {
                    features: self.clone(),
                    wanted,
                    leases: leases.clone(),
                    stopping,
                    readers: BTreeSet::new(),
                };
                Task { handle: tokio::spawn(watch.run()), stop }
            });
        }
        watched.epoch = Some(epoch);
        Ok(())
    }

    /// Refuses a stream that sources of the project may not read, by configuration or residency.
    pub(crate) async fn stream_allowed(&self, project: &Project, name: &Name) -> Result<()> {
        let config = stream_of(&self.config().streams, project, name)?;
        let Some(zone) = config.zone.clone() else { return Ok(()) };
        let here = project.zone.clone();
        let check = move |tx: &mut Tx<'_>| Residency::require(tx, &zone, &here);
        self.db().read(check).await.map(drop)
    }

    /// All stream sources that a view comes from.
    async fn stream_sources(&self) -> Result<HashMap<SourceKey, Wanted>> {
        let ctx = Ctx::system(NAME);
        let mut wanted = HashMap::new();
        for (id, source) in self.db().read(store::sources).await? {
            let catalog = self.catalog(id).await?;
            let Some(definition) = catalog.get(Noun::Source, &source) else { continue };
            let Some(form) = stream_form(definition).cloned() else { continue };
            if !catalog.views().any(|view| comes_from(&view, &source)) {
                continue;
            }
            let project = match self.tenancy()?.project_by_id(&ctx, id).await {
                Ok(project) => project,
                Err(error) if error.code() == &code::NOT_FOUND => continue,
                Err(error) => return Err(error),
            };
            let key = (id, source.clone(), form.place());
            wanted.insert(key, Wanted { project, source, form });
        }
        Ok(wanted)
    }
}

/// Watches one source: how many partitions its topic has, and a reader for each.
struct Watch {
    features: Features,
    wanted: Wanted,
    leases: Leases,
    stopping: watch::Receiver<()>,
    readers: BTreeSet<i32>,
}

impl Watch {
    async fn run(mut self) {
        let mut tasks = JoinSet::new();
        let mut stopping = self.stopping.clone();
        loop {
            let wait = tokio::select! {
                looked = self.look(&mut tasks) => match looked {
                    Ok(true) => LOOK_EVERY,
                    Ok(false) => ASK_AGAIN,
                    Err(error) => {
                        tracing::warn!(
                            source = %self.wanted.source,
                            error = error.chain(),
                            "a stream cannot be looked at"
                        );
                        ASK_AGAIN
                    }
                },
                () = stopped(&mut stopping) => break,
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stopped(&mut stopping) => break,
            }
        }
        // Readers end by the same signal, each with its lease given back.
        while tasks.join_next().await.is_some() {}
    }

    fn key(&self, part: i64) -> Key {
        Key {
            project: self.wanted.project.id,
            source: self.wanted.source.clone(),
            place: self.wanted.form.place(),
            part,
        }
    }

    /// Begins to read partitions that are new; false if the topic was not found.
    async fn look(&mut self, tasks: &mut JoinSet<()>) -> Result<bool> {
        let Wanted { project, form, .. } = &self.wanted;
        let features = self.features.clone();
        let config = match stream_of(&features.config().streams, project, &form.stream) {
            Ok(config) => config,
            Err(error) => return self.not_found(State::Refused, error).await,
        };
        let broker = match features.streams().broker(config) {
            Ok(broker) => broker,
            Err(error) => return self.not_found(State::Refused, error).await,
        };
        let topic = form.as_topic();
        let count = match broker.partitions(&topic).await {
            Ok(count) => count,
            Err(failure) => {
                let error = Error::new(&code::UNAVAILABLE, failure.to_string());
                return self.not_found(judged(&failure), error).await;
            }
        };
        let whole = self.key(WHOLE);
        let find = whole.clone();
        if self.features.db().read(move |tx| store::find(tx, &find)).await?.is_some() {
            self.features.db().write(move |tx| store::found(tx, &whole)).await?;
        }
        let config = Arc::new(config.clone());
        for part in 0..count {
            if !self.readers.insert(part) {
                continue;
            }
            let labels = Labels {
                project: format!("{}/{}", self.wanted.project.tenant, self.wanted.project.name),
                source: self.wanted.source.to_string(),
                partition: part,
            };
            let reader = PartitionReader {
                features: self.features.clone(),
                project: self.wanted.project.clone(),
                key: self.key(i64::from(part)),
                config: config.clone(),
                broker: broker.clone(),
                topic: topic.clone(),
                leases: self.leases.clone(),
                gauge: self.features.streams().gauge(labels),
                room: self.features.streams().0.room.clone(),
                stopping: self.stopping.clone(),
            };
            tasks.spawn(reader.run());
        }
        Ok(true)
    }

    /// Notes that the topic cannot be read at all, unless partitions of it already are.
    async fn not_found(&self, state: State, error: Error) -> Result<bool> {
        if self.readers.is_empty() {
            let reason = Some(error.message().to_owned());
            note(&self.features, &self.wanted.project, &self.key(WHOLE), state, reason).await?;
        }
        Ok(false)
    }
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").finish_non_exhaustive()
    }
}
