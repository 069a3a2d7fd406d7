//! One partition: read, keep, again; for as long as its lease is ours.

use std::sync::Arc;
use std::time::{Duration, Instant};

use falaj_base::{Ctx, Error, Result, code};
use falaj_governance::residency::Residency;
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::lease::{Lease, Leases};
use falaj_store::record::Change;
use falaj_streams::{Bounds, Broker, Chunk, Failure, Reader, StreamConfig, Topic};
use serde_json::json;
use tokio::sync::{Semaphore, watch};

use super::keep::{Keep, Taken, ToTake, take};
use super::metrics::Gauge;
use super::record::{Limits, Mapping};
use super::spec::{OnGap, Reading, StreamForm};
use super::status::State;
use super::store::{self, Key, Standing, Step};
use crate::definition::form::{Form, Noun, Origin};
use crate::definition::{Catalog, Definition, ViewVersion};
use crate::name::FeatureName;
use crate::online::{pack, place};
use crate::source::blocking;
use crate::{FEATURE_WRITE, Features};

/// What this is called in the audit log.
pub(super) const NAME: &str = "feature-stream";
/// How long a lease lasts unless renewed: the longest that a partition stands still after its
/// server died.
const LEASE: Duration = Duration::from_secs(9);
/// How often a partition that another reads is asked for.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// How long a fetch waits for records.
const WAIT: Duration = Duration::from_millis(500);
/// How long few records wait for others.
const LINGER: Duration = Duration::from_millis(100);
const FEW: usize = 100;
/// How often it is noted that nothing came.
const NOTE_EVERY: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often what stopped is tried again, unless definitions change before.
const TRY_AGAIN: Duration = Duration::from_mins(1);
const LOOK: Duration = Duration::from_secs(1);

/// A partition, and what it takes to read it.
pub(super) struct PartitionReader {
    pub(super) features: Features,
    pub(super) project: Project,
    pub(super) key: Key,
    pub(super) config: Arc<StreamConfig>,
    pub(super) broker: Broker,
    pub(super) topic: Topic,
    pub(super) leases: Leases,
    pub(super) gauge: Arc<Gauge>,
    /// How many partitions this server reads at most.
    pub(super) room: Arc<Semaphore>,
    pub(super) stopping: watch::Receiver<()>,
}

/// Why reading ended.
enum End {
    /// Another reads.
    NotOurs,
    /// A server does not answer.
    Away(String),
    Stopped(State, String),
}

/// The source as it is defined now, and how its records become rows.
struct Defined {
    catalog: Arc<Catalog>,
    source: Arc<Definition>,
    mapping: Arc<Mapping>,
    reading: Reading,
}

/// Where reading stands.
struct Cursor {
    next: i64,
    /// What is noted in the database.
    kept: i64,
    lag: i64,
    state: State,
    noted: Instant,
}

/// Resolves when it is time to end.
pub(super) async fn stopped(signal: &mut watch::Receiver<()>) {
    // Nothing is ever sent: its sender goes away.
    while signal.changed().await.is_ok() {}
}

impl PartitionReader {
    pub(super) async fn run(self) {
        let mut pause = FIRST_PAUSE;
        let mut stopping = self.stopping.clone();
        loop {
            let began = Instant::now();
            // Not cut short: it gives its lease back when it is told to end.
            let turn = self.turn().await;
            if stopping.has_changed().is_err() {
                return;
            }
            if began.elapsed() > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
            let wait = async {
                match turn {
                    Ok(End::NotOurs) => tokio::time::sleep(ASK_EVERY).await,
                    Ok(End::Away(_)) => {
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                    Ok(End::Stopped(..)) => self.until_changed().await,
                    Err(error) => {
                        // Another has moved on, or the database does not answer.
                        tracing::debug!(key = ?self.key, error = error.chain(), "reading ended");
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                }
            };
            tokio::select! {
                () = wait => {}
                () = stopped(&mut stopping) => return,
            }
        }
    }

    /// Until something is applied, or a while has passed.
    async fn until_changed(&self) {
        let (epoch, began) = (self.features.catalogs().epoch().current(), Instant::now());
        while self.features.catalogs().epoch().current() == epoch && began.elapsed() < TRY_AGAIN {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Reads for as long as the lease is ours and nothing fails.
    async fn turn(&self) -> Result<End> {
        let mut stopping = self.stopping.clone();
        let room = tokio::select! {
            room = self.room.acquire() => room.map_err(Error::internal)?,
            () = stopped(&mut stopping) => return Ok(End::NotOurs),
        };
        let name = format!(
            "{NAME}/{}/{}/{}/{}",
            self.key.project, self.key.source, self.key.place, self.key.part
        );
        let Some(lease) = self.leases.acquire(&name, LEASE).await? else {
            return Ok(End::NotOurs);
        };
        let outcome = tokio::select! {
            outcome = self.work(&lease) => outcome,
            lost = self.leases.keep(&lease, LEASE) => Err(lost),
            () = stopped(&mut stopping) => Ok(End::NotOurs),
        };
        self.gauge.let_go();
        // While the lease is ours: what another does afterwards is not ours to tell.
        match &outcome {
            Ok(End::Away(why)) => self.note(State::Away, why).await,
            Ok(End::Stopped(state, why)) => self.note(*state, why).await,
            _ => {}
        }
        if let Err(error) = self.leases.release(&lease).await {
            tracing::debug!(%error, "the lease will run out by itself");
        }
        drop(room);
        outcome
    }

    async fn work(&self, lease: &Lease) -> Result<End> {
        if let Some(refused) = self.unlawful().await? {
            return Ok(End::Stopped(State::Refused, refused));
        }
        let mut reader = self.broker.reader(&self.topic, self.key.part.try_into().unwrap_or(0));
        let mut defined = self.defined().await?;
        let mut cursor = match self.cursor(&mut reader, &defined).await? {
            Ok(cursor) => cursor,
            Err(failure) => return Ok(ended(failure)),
        };
        loop {
            if self.features.catalogs().epoch().current() != defined.catalog.epoch() {
                defined = self.defined().await?;
            }
            let chunk = match reader.read(cursor.next, self.bounds()).await {
                Ok(chunk) => chunk,
                Err(Failure::Gap { wanted, first, end })
                    if defined.reading.on_gap == OnGap::Skip && wanted < first =>
                {
                    let skipped = first - wanted;
                    tracing::warn!(key = ?self.key, wanted, first, end, "records were gone");
                    let step = Step { from: cursor.kept, next: first, skipped, ..Step::default() };
                    let taken = Taken { step, loads: Vec::new(), bad: Vec::new(), stop: None };
                    match self.keep(lease, &defined, &mut cursor, taken).await {
                        Err(error) if error.code() == &code::RESIDENCY => {
                            return Ok(End::Stopped(State::Refused, error.message().to_owned()));
                        }
                        kept => kept?,
                    }
                    continue;
                }
                Err(failure) => return Ok(ended(failure)),
            };
            match self.take(lease, &mut defined, &mut cursor, chunk).await {
                Ok(None) => {}
                Ok(Some((offset, reason))) => {
                    let text = format!("offset {offset}: {reason}");
                    return Ok(End::Stopped(State::BadRecord, text));
                }
                Err(error) if error.code() == &code::RESIDENCY => {
                    return Ok(End::Stopped(State::Refused, error.message().to_owned()));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            records: self.config.batch_records.min(self.features.config().max_push_rows),
            bytes: self.config.batch_size.as_usize(),
            wait: WAIT,
        }
    }

    /// Whether a rule forbids bringing the stream's records into the project: which.
    async fn unlawful(&self) -> Result<Option<String>> {
        let Some(zone) = self.config.zone.clone() else { return Ok(None) };
        let here = self.project.zone.clone();
        let check = move |tx: &mut Tx<'_>| Residency::require(tx, &zone, &here).map(drop);
        match self.features.db().read(check).await {
            Ok(()) => Ok(None),
            Err(error) if error.code() == &code::RESIDENCY => Ok(Some(error.message().to_owned())),
            Err(error) => Err(error),
        }
    }

    /// The source as it is defined now.
    async fn defined(&self) -> Result<Defined> {
        let epoch = self.features.catalogs().epoch();
        epoch.poll().await?;
        let catalog = self.features.catalog(self.key.project).await?;
        let changed = || Error::new(&code::CHANGED, "the source is another now");
        let source = catalog.get(Noun::Source, &self.key.source).ok_or_else(changed)?.clone();
        let form = stream_form(&source).filter(|form| form.place() == self.key.place);
        let form = form.ok_or_else(changed)?;
        let mut views = Vec::new();
        for view in catalog.views().filter(|view| comes_from(view, &self.key.source)) {
            let shape = self.features.shelf().shape(&view)?;
            views.push((view, shape));
        }
        if views.is_empty() {
            return Err(changed());
        }
        let online = &self.features.config().online;
        let limits = Limits { max_row: online.max_row, max_ahead: online.max_ahead };
        let mapping = Arc::new(Mapping::new(views, &form.fields, limits));
        let reading = source.about.reading.clone().unwrap_or_default();
        Ok(Defined { catalog, source, mapping, reading })
    }

    /// Where reading stands; a partition that was never read is begun where the source says.
    async fn cursor(
        &self,
        reader: &mut Reader,
        defined: &Defined,
    ) -> Result<Result<Cursor, Failure>> {
        loop {
            let key = self.key.clone();
            let found = self.features.db().read(move |tx| store::find(tx, &key)).await?;
            if let Some(Standing { next: Some(next), lag, state, .. }) = found {
                let noted = Instant::now();
                return Ok(Ok(Cursor { next, kept: next, lag, state, noted }));
            }
            let next = match reader.start(defined.reading.start.as_start()).await {
                Ok(next) => next,
                Err(failure) => return Ok(Err(failure)),
            };
            let key = self.key.clone();
            self.features.db().write(move |tx| store::begin(tx, &key, next)).await?;
        }
    }

    /// Keeps what was read; tells which record reading stops before, if one.
    async fn take(
        &self,
        lease: &Lease,
        defined: &mut Defined,
        cursor: &mut Cursor,
        mut chunk: Chunk,
    ) -> Result<Option<(i64, String)>> {
        if chunk.records.is_empty() {
            return self.nothing(lease, defined, cursor, &chunk).await.map(|()| None);
        }
        let few = chunk.records.len() < FEW && chunk.lag == 0;
        // What is kept at a time may be less than what was read.
        while !chunk.records.is_empty() {
            let taken;
            (taken, chunk) = self.taken(defined, cursor, chunk).await?;
            let (stop, next) = (taken.stop.clone(), taken.step.next);
            match self.keep(lease, defined, cursor, taken).await {
                Ok(()) => chunk.records.retain(|record| record.offset >= next),
                // The definitions may be others: the same records are taken by those.
                Err(error) if error.code() == &code::CHANGED => {
                    let before = defined.catalog.epoch();
                    *defined = self.defined().await?;
                    if defined.catalog.epoch() == before {
                        return Err(error);
                    }
                    continue;
                }
                Err(error) => return Err(error),
            }
            if stop.is_some() {
                return Ok(stop);
            }
        }
        if few {
            tokio::time::sleep(LINGER).await;
        }
        Ok(None)
    }

    async fn taken(
        &self,
        defined: &Defined,
        cursor: &Cursor,
        chunk: Chunk,
    ) -> Result<(Taken, Chunk)> {
        let (mapping, config) = (defined.mapping.clone(), self.features.config().clone());
        let (from, on_bad, now) = (cursor.kept, defined.reading.on_bad, self.features.db().now());
        blocking(move || {
            let to = ToTake {
                mapping: &mapping,
                records: &chunk.records,
                from,
                next: chunk.next,
                lag: chunk.lag,
                on_bad,
                now,
            };
            let taken = take(to, &config)?;
            Ok((taken, chunk))
        })
        .await
    }

    /// Nothing came: that is noted now and then, if anything is new about it.
    async fn nothing(
        &self,
        lease: &Lease,
        defined: &Defined,
        cursor: &mut Cursor,
        chunk: &Chunk,
    ) -> Result<()> {
        cursor.next = chunk.next;
        let lag = i64::try_from(chunk.lag).unwrap_or(i64::MAX);
        self.gauge.stands(cursor.next, lag);
        let new = cursor.state != State::Running
            || ((cursor.next != cursor.kept || lag != cursor.lag)
                && cursor.noted.elapsed() > NOTE_EVERY);
        if new {
            let step = Step { from: cursor.kept, next: cursor.next, lag, ..Step::default() };
            let taken = Taken { step, loads: Vec::new(), bad: Vec::new(), stop: None };
            match self.keep(lease, defined, cursor, taken).await {
                Err(error) if error.code() != &code::CHANGED => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes a step, and then brings its rows online.
    async fn keep(
        &self,
        lease: &Lease,
        defined: &Defined,
        cursor: &mut Cursor,
        taken: Taken,
    ) -> Result<()> {
        let Taken { step, loads, bad, .. } = taken;
        let moved = step.next != step.from || step.lag != cursor.lag;
        if !moved && loads.is_empty() && bad.is_empty() && cursor.state == State::Running {
            return Ok(());
        }
        let ctx = Ctx::system(NAME);
        let source = defined.source.resource(&self.project);
        ctx.authorize(&FEATURE_WRITE, &source).await?;
        for load in &loads {
            ctx.authorize(&FEATURE_WRITE, &load.view.resource(&self.project)).await?;
        }
        let keep = Keep {
            ctx,
            project: self.project.clone(),
            source,
            key: self.key.clone(),
            lease: lease.clone(),
            epoch: defined.catalog.epoch(),
            step,
            loads: loads.clone(),
            bad,
            max_quarantined: self.features.config().quarantine.max_records,
            stream_zone: self.config.zone.clone(),
            online_zone: self.features.shelf().config().zone.clone(),
        };
        let places = self.features.db().write(move |tx| keep.write(tx)).await?;
        (cursor.next, cursor.kept, cursor.lag) = (step.next, step.next, step.lag);
        (cursor.state, cursor.noted) = (State::Running, Instant::now());
        self.gauge.kept(&step);
        for (load, (position, known)) in loads.into_iter().zip(places) {
            let packed = blocking(move || {
                pack(&load.shape, load.rows.batch(), known.micros(), place(position))
            });
            let batch = packed.await?;
            if let Err(error) = self.features.shelf().pushed(batch, position).await {
                // They are in the log, and are applied as soon as the store answers.
                tracing::debug!(error = error.chain(), "rows are not online yet");
                break;
            }
        }
        Ok(())
    }

    /// Notes a state; that reading stopped is told to others, once.
    async fn note(&self, state: State, reason: &str) {
        self.gauge.is_in(state);
        let reason = Some(reason.to_owned());
        let noted = note(&self.features, &self.project, &self.key, state, reason).await;
        if let Err(error) = noted {
            tracing::warn!(key = ?self.key, error = error.chain(), "a state was not noted");
        }
    }
}

/// Notes the state of a partition, or of a topic; that it stopped is told to others, once.
pub(super) async fn note(
    features: &Features,
    project: &Project,
    key: &Key,
    state: State,
    reason: Option<String>,
) -> Result<()> {
    let ctx = Ctx::system(NAME);
    let catalog = features.catalog(project.id).await?;
    let source = catalog.get(Noun::Source, &key.source).map(|it| it.resource(project));
    let Some(source) = source else { return Ok(()) };
    ctx.authorize(&FEATURE_WRITE, &source).await?;
    let key = key.clone();
    let write = move |tx: &mut Tx<'_>| {
        let is_new = store::note(tx, &key, state, reason.as_deref())?;
        if !is_new || !state.is_stopped() {
            return Ok(());
        }
        let data = json!({
            "source": key.source, "partition": key.part, "state": state, "reason": reason,
        });
        let change = Change::new(&FEATURE_WRITE, &source)
            .event("feature.stream_stopped", &data)
            .detail("partition", key.part)
            .detail("state", state.as_str());
        tx.record(&ctx, change)
    };
    features.db().write(write).await
}

/// Whether rows of a view come from a source.
pub(super) fn comes_from(view: &ViewVersion, source: &FeatureName) -> bool {
    !view.form().is_on_demand() && view.form().source.name == *source
}

pub(super) fn stream_form(source: &Definition) -> Option<&StreamForm> {
    match &source.definition {
        Form::Source(form) => match &form.origin {
            Origin::Stream(form) => Some(form),
            _ => None,
        },
        _ => None,
    }
}

/// What a failure of a server is called.
pub(super) fn judged(failure: &Failure) -> State {
    match failure {
        Failure::Away(_) => State::Away,
        Failure::Gap { .. } => State::Gap,
        Failure::Missing(_) => State::Missing,
        Failure::Refused(_) => State::Refused,
    }
}

fn ended(failure: Failure) -> End {
    match judged(&failure) {
        State::Away => End::Away(failure.to_string()),
        state => End::Stopped(state, failure.to_string()),
    }
}
