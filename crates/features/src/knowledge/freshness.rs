//! How fresh views are. What comes into the log is looked at as it comes; files are read again now
//! and then, no more often than is worth what it costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, ArrayRef};
use falaj_base::{Ctx, Error, HumanDuration, ProjectId, Result, Timestamp};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use falaj_store::worker::Worker;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::store::{self, Seen};
use crate::definition::form::Noun;
use crate::definition::{VersionId, ViewVersion};
use crate::erase::store::{self as erasures, Standing};
use crate::history::{Position, log};
use crate::name::FeatureName;
use crate::schema::moment;
use crate::source::{Origins, Stop, blocking, fit};
use crate::{FEATURE_WRITE, Features};

const NAME: &str = "feature-freshness";
const EVERY: Duration = Duration::from_secs(30);
/// Files are read again after so many times as long as reading them took, and at least this long.
const WORTH: i64 = 20;
const PAUSE: Duration = Duration::from_mins(5);

/// How fresh a view is.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Freshness {
    pub view: FeatureName,
    pub version: i64,
    /// The latest event there is a row of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest_event: Option<Timestamp>,
    /// When the latest row became known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest_known: Option<Timestamp>,
    /// Seconds since the latest event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
    /// How old it may be, as its definition says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<HumanDuration>,
    /// Since when it is older than that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_since: Option<Timestamp>,
    pub checked_at: Timestamp,
}

/// The newest of what was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Newest {
    event: Option<i64>,
    known: Option<i64>,
}

impl Newest {
    fn add(&mut self, event: Option<i64>, known: Option<i64>) {
        self.event = self.event.max(event);
        self.known = self.known.max(known.or(event));
    }
}

/// The latest time of a column.
fn latest(field: &str, column: &ArrayRef) -> Result<Option<i64>> {
    let column = fit(field, column, &moment())?;
    let times = column.as_primitive::<TimestampMicrosecondType>();
    Ok(if times.null_count() == 0 {
        times.values().iter().copied().max()
    } else {
        times.iter().flatten().max()
    })
}

pub(crate) fn watcher(features: &Features) -> Worker {
    let features = features.clone();
    Worker::new(NAME, EVERY, move || {
        let features = features.clone();
        async move { features.watch_freshness().await }
    })
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Features {
    /// How fresh a view is, as far as that can be said at once.
    pub async fn freshness(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &FeatureName,
    ) -> Result<Freshness> {
        let view = self.readable_view(ctx, project, name).await?;
        let seen = self.looked_at(project, &view, false).await?;
        Ok(told(&view, &seen, self.db().now()))
    }

    /// Looks at every view of which something is said about freshness. One that fails does not stop
    /// the others.
    pub async fn watch_freshness(&self) -> Result<()> {
        let watched = self.db().read(store::watched).await?;
        let ctx = Ctx::system(NAME);
        let (mut all, mut wrong) = (Vec::new(), None);
        for (project, name) in watched {
            let looked = async {
                let project = self.tenancy()?.project_by_id(&ctx, project).await?;
                let name = FeatureName::new(name).map_err(Error::internal)?;
                let found = self.catalog(project.id).await?.view(&name);
                let Some(view) = found.filter(|view| view.freshness().is_some()) else {
                    return Ok(None);
                };
                let seen = self.looked_at(&project, &view, true).await?;
                let seen = self.judged(&ctx, &project, &view, seen).await?;
                let place = format!("{}/{}", project.tenant, project.name);
                Ok::<_, Error>(Some((place, told(&view, &seen, self.db().now()))))
            };
            match looked.await {
                Ok(found) => all.extend(found),
                Err(error) => {
                    tracing::warn!(error = error.chain(), "a view could not be looked at");
                    wrong.get_or_insert(error);
                }
            }
        }
        self.ages().replace(all);
        wrong.map_or(Ok(()), Err)
    }

    /// The newest of a view: of what came into the log since, or of everything if it is time.
    async fn looked_at(
        &self,
        project: &Project,
        view: &ViewVersion,
        patient: bool,
    ) -> Result<Seen> {
        let (id, rows) = (view.id(), view.rows());
        let of = project.id;
        let read = move |tx: &mut Tx<'_>| {
            let standing = erasures::standing(tx, of)?;
            Ok((store::seen(tx, id)?, log::end(tx)?, log::trimmed(tx)?, standing))
        };
        let (known, end, trimmed, standing) = self.db().read(read).await?;
        let now = self.db().now();
        let mut seen = match known {
            Some(seen) if !due(&seen, view, trimmed.map(|it| it.until), now) => seen,
            known => {
                // Whoever asks is told what is known rather than wait for others.
                let looking = self.looking();
                let place = if patient { looking.turn().await } else { looking.begin() };
                match (place, known) {
                    (Err(_), Some(seen)) => seen,
                    (Err(error), None) => return Err(error),
                    (Ok(_place), known) => {
                        let before = known.and_then(|seen| seen.stale_since);
                        self.all_read(project, view, end, before).await?
                    }
                }
            }
        };
        if view.form().source.origin.is_logged() {
            let mut newest = Newest {
                event: seen.newest_event.map(Timestamp::micros),
                known: seen.newest_known.map(Timestamp::micros),
            };
            let column = view.form().event_time.to_string();
            loop {
                let after = seen.position;
                let page = move |tx: &mut Tx<'_>| log::read_view(tx, rows, after, end, false);
                let page = self.db().read(page).await?;
                let Some(last) = page.last().map(|entry| entry.position) else { break };
                let named = column.clone();
                newest = blocking(move || {
                    for entry in page {
                        let batch = entry.batch()?;
                        let times = batch.column_by_name(&named);
                        let event = times.map(|times| latest(&named, times)).transpose()?;
                        newest.add(event.flatten(), Some(entry.at.micros()));
                    }
                    Ok(newest)
                })
                .await?;
                seen.position = last;
            }
            seen.newest_event = newest.event.map(Timestamp::from_micros);
            seen.newest_known = newest.known.map(Timestamp::from_micros);
        }
        seen.checked_at = now;
        self.db().write(move |tx| keep(tx, (of, standing), id, seen)).await
    }

    /// The newest of everything that a view has.
    async fn all_read(
        &self,
        project: &Project,
        view: &ViewVersion,
        until: Position,
        stale_since: Option<Timestamp>,
    ) -> Result<Seen> {
        let ctx = Ctx::system(NAME);
        let began = Instant::now();
        let origins = Origins { features: self, ctx: &ctx, project, until };
        let (history, _) = origins.open(view).await?;
        let stopped = Arc::new(AtomicBool::new(false));
        let _guard = StopOnDrop(stopped.clone());
        let stop = Stop { stopped, deadline: began + self.config().max_time.get() };
        let newest = blocking(move || {
            let mut newest = Newest::default();
            history.stamps(&stop, |stamps| {
                let known =
                    stamps.known.as_ref().map(|known| latest("known", known)).transpose()?;
                newest.add(latest("event", &stamps.event)?, known.flatten());
                Ok(())
            })?;
            Ok(newest)
        })
        .await?;
        let (now, took) = (self.db().now(), began.elapsed().as_micros());
        Ok(Seen {
            newest_event: newest.event.map(Timestamp::from_micros),
            newest_known: newest.known.map(Timestamp::from_micros),
            position: until,
            checked_at: now,
            read_at: now,
            took: i64::try_from(took).unwrap_or(i64::MAX),
            stale_since,
        })
    }

    /// Begins an incident or ends one, and tells others of it, once.
    async fn judged(
        &self,
        ctx: &Ctx,
        project: &Project,
        view: &ViewVersion,
        seen: Seen,
    ) -> Result<Seen> {
        let Some(allowed) = view.freshness() else { return Ok(seen) };
        let now = self.db().now();
        // Without any rows a view is as old as its definition.
        let since = seen.newest_event.unwrap_or(view.0.created_at);
        let stale = now > since && now.since(since) > allowed.get();
        if stale == seen.stale_since.is_some() {
            return Ok(seen);
        }
        let resource = view.resource(project);
        ctx.authorize(&FEATURE_WRITE, &resource).await?;
        let (ctx, view) = (ctx.clone(), view.clone());
        let write = move |tx: &mut Tx<'_>| {
            lock(tx, view.id())?;
            // What was not kept is looked for again.
            let Some(mut seen) = store::seen(tx, view.id())? else { return Ok(seen) };
            if stale == seen.stale_since.is_some() {
                return Ok(seen);
            }
            seen.stale_since = stale.then_some(now);
            store::put_seen(tx, view.id(), &seen)?;
            let told = json!({
                "view": view.name(), "version": view.version(), "newest_event": seen.newest_event,
                "allowed": allowed,
            });
            let kind = if stale { "feature.stale" } else { "feature.fresh" };
            let change = Change::new(&FEATURE_WRITE, &resource)
                .event(kind, &told)
                .detail("stale", stale)
                .detail("version", view.version());
            tx.record(&ctx, change)?;
            Ok(seen)
        };
        self.db().write(write).await
    }

    /// The latest version of a view, if the caller may know of it.
    pub(super) async fn readable_view(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &FeatureName,
    ) -> Result<ViewVersion> {
        let found = self.definition(ctx, project, Noun::View, name, None).await?;
        ViewVersion::of(&Arc::new(found)).ok_or_else(|| Error::internal("a view that is none"))
    }
}

/// What is held by whoever puts down how fresh a view is.
pub(super) fn lock(tx: &mut Tx<'_>, id: VersionId) -> Result<()> {
    tx.lock(&format!("{NAME}/{id}"))
}

/// Puts down what was seen; an incident that began meanwhile goes on. What may be of rows that were erased
/// meanwhile is not kept.
fn keep(
    tx: &mut Tx<'_>,
    (project, before): (ProjectId, Standing),
    id: VersionId,
    mut seen: Seen,
) -> Result<Seen> {
    lock(tx, id)?;
    if erasures::standing(tx, project)? != before {
        return Ok(seen);
    }
    if let Some(known) = store::seen(tx, id)? {
        seen.stale_since = known.stale_since;
        seen.newest_event =
            seen.newest_event.max(known.newest_event.filter(|_| known.position > seen.position));
    }
    store::put_seen(tx, id, &seen)?;
    Ok(seen)
}

/// Whether everything should be read again: files may have come, or the log was taken off behind the
/// place it was looked through to.
fn due(seen: &Seen, view: &ViewVersion, trimmed: Option<Position>, now: Timestamp) -> bool {
    if view.form().source.origin.is_logged() && trimmed.is_some_and(|until| until > seen.position) {
        return true;
    }
    let only_pushed =
        view.form().source.origin.is_logged() && view.form().source.origin.batch().is_none();
    let pause = PAUSE.max(Duration::from_micros((seen.took.max(0) * WORTH).cast_unsigned()));
    !only_pushed && now.since(seen.read_at) >= pause
}

fn told(view: &ViewVersion, seen: &Seen, now: Timestamp) -> Freshness {
    #[allow(clippy::cast_precision_loss, reason = "seconds for people")]
    let age = |event: Timestamp| (now.micros() - event.micros()) as f64 / 1e6;
    Freshness {
        view: view.name().clone(),
        version: view.version(),
        newest_event: seen.newest_event,
        newest_known: seen.newest_known,
        age_seconds: seen.newest_event.map(age),
        allowed: view.freshness(),
        stale_since: seen.stale_since,
        checked_at: seen.checked_at,
    }
}
