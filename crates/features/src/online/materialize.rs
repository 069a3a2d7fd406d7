//! Bringing the rows of a view's source into the online store.
//!
//! Rows are read from the source and applied, a batch at a time; which of them stay is decided as it
//! is for those that are pushed. So it does no harm to be stopped anywhere and run again, and what
//! was pushed meanwhile stays if it is newer. How far a view was brought is remembered once
//! everything lasts.
//!
//! Must hold: a window includes both its ends; a row that became known within it belongs to it as
//! well, however old its event is, and one that is not known yet does not. Nothing is acknowledged
//! that a crash could undo.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arrow_array::{RecordBatch, TimestampMicrosecondArray};
use falaj_base::{Ctx, Error, Resource, Result, Timestamp, code};
use falaj_governance::tenancy::Project;
use falaj_online::Batch;
use falaj_store::db::{Tx, params};
use falaj_store::record::Change;
use serde_json::json;
use tokio::sync::mpsc;

use super::rows::{Within, pack_some};
use super::shape::Shape;
use crate::definition::form::Noun;
use crate::definition::{Catalog, VersionId, ViewVersion, resource, shown};
use crate::history::log;
use crate::name::FeatureName;
use crate::source::{History, Origins, Stop, blocking};
use crate::{FEATURE_WRITE, Features};

pub(crate) const SCHEMA: &str = "
    CREATE TABLE feature_materialized (
        view INTEGER PRIMARY KEY, until INTEGER NOT NULL, rows INTEGER NOT NULL,
        at INTEGER NOT NULL);";

/// Batches that wait to be applied.
const WAITING: usize = 2;
/// Bytes of rows that are applied at a time, about.
const BYTES_AT_ONCE: usize = 16 << 20;

/// Which events are brought.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Window {
    Between(Timestamp, Timestamp),
    /// From where the last one ended, if there was one, up to here.
    Until(Timestamp),
    Everything,
}

/// What was brought of a view.
#[derive(Clone, Debug)]
pub(crate) struct Brought {
    pub(crate) view: ViewVersion,
    /// How many rows that were.
    pub(crate) rows: u64,
}

/// Views that are being brought by this server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Underway(Arc<Mutex<HashSet<VersionId>>>);

/// A view's place among those, given back when dropped.
#[derive(Debug)]
struct Place {
    all: Underway,
    view: VersionId,
}

impl Underway {
    fn begin(&self, view: &ViewVersion) -> Result<Place> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.insert(view.id()) {
            return Ok(Place { all: self.clone(), view: view.id() });
        }
        let text = format!("the feature view {} is being materialised already", view.name());
        Err(Error::new(&code::CONFLICT, text))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.view);
    }
}

/// Stops the thread that reads for a future which is no longer awaited.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Features {
    /// Brings views into the online store, those named or all that have a source of their own.
    pub(crate) async fn materialize(
        &self,
        ctx: &Ctx,
        project: &Project,
        names: Option<&[String]>,
        window: Window,
    ) -> Result<Vec<Brought>> {
        let catalog = self.catalog(project.id).await?;
        let views = chosen(ctx, project, &catalog, names).await?;
        let mut brought = Vec::with_capacity(views.len());
        for view in views {
            let _place = self.underway().begin(&view)?;
            let rows = self.bring(ctx, project, &view, window).await?;
            brought.push(Brought { view, rows });
        }
        Ok(brought)
    }

    async fn bring(
        &self,
        ctx: &Ctx,
        project: &Project,
        view: &ViewVersion,
        window: Window,
    ) -> Result<u64> {
        let store = self.shelf().store().await?;
        let (id, now) = (view.id(), self.db().now());
        let (start, end) = match window {
            Window::Between(start, end) => (start.micros(), end.micros()),
            Window::Everything => (i64::MIN, now.micros()),
            Window::Until(end) => {
                let last = self.db().read(move |tx| reached(tx, id)).await?;
                (last.map_or(i64::MIN, Timestamp::micros), end.micros())
            }
        };
        // What has not happened yet is not served as if it had.
        let end = end.min(now.micros());
        let until = self.db().read(log::end).await?;
        let origins = Origins { features: self, ctx, project, until };
        let (history, _) = origins.open(view).await?;
        let shape = self.shelf().shape(id, view.form())?;
        let stopped = Arc::new(AtomicBool::new(false));
        let _guard = StopOnDrop(stopped.clone());
        let stop = Stop { stopped, deadline: Instant::now() + self.config().max_time.get() };
        let (give, mut take) = mpsc::channel(WAITING);
        let max_row = self.shelf().config().max_row;
        let within = Within { start, end, now: now.micros(), max_row };
        let reading = blocking(move || read(&history, &shape, within, &stop, &give));
        let applying = async {
            while let Some(batch) = take.recv().await {
                store.apply(batch).await?;
            }
            Ok(())
        };
        let (rows, applied) = tokio::join!(reading, applying);
        let applied: Result<()> = applied;
        // Who reads is only told that nobody listens; why is said by who applies.
        applied?;
        let rows = rows.map_err(|error| {
            let text = format!("the feature view {}: {}", view.name(), error.message());
            Error::new(error.code(), text).caused_by(error)
        })?;
        let reached = store.reached().await?;
        store.settle(reached, reached).await?;
        let done = Done { view: view.clone(), resource: view.resource(project), rows };
        let end = Timestamp::from_micros(end);
        let by = ctx.clone();
        self.db().write(move |tx| done.record(tx, &by, end)).await?;
        Ok(rows)
    }
}

/// Reads a history and hands over what is within the window; tells how many rows that were.
fn read(
    history: &History,
    shape: &Shape,
    within: Within,
    stop: &Stop,
    give: &mpsc::Sender<Batch>,
) -> Result<u64> {
    let (mut rows, mut first) = (0, 0_u64);
    let mut batch = Batch::new();
    let gone = || Error::internal("nobody applies the rows");
    history.rows(stop, |records: &RecordBatch, known: &TimestampMicrosecondArray| {
        rows += pack_some(shape, records, known, within, first, &mut batch)?;
        first += records.num_rows() as u64;
        if batch.bytes() >= BYTES_AT_ONCE {
            give.blocking_send(std::mem::take(&mut batch)).map_err(|_| gone())?;
        }
        Ok(())
    })?;
    history.unchanged()?;
    if !batch.is_empty() {
        give.blocking_send(batch).map_err(|_| gone())?;
    }
    Ok(rows)
}

/// How far a view was brought.
fn reached(tx: &mut Tx<'_>, view: VersionId) -> Result<Option<Timestamp>> {
    let sql = "SELECT until FROM feature_materialized WHERE view = $1";
    tx.query_opt(sql, &params![view])?.map(|row| row.get("until")).transpose()
}

struct Done {
    view: ViewVersion,
    resource: Resource,
    rows: u64,
}

impl Done {
    fn record(&self, tx: &mut Tx<'_>, ctx: &Ctx, until: Timestamp) -> Result<()> {
        let now = tx.now();
        tx.execute(
            "INSERT INTO feature_materialized (view, until, rows, at) VALUES ($1, $2, $3, $4)
             ON CONFLICT (view) DO UPDATE SET
                 until = CASE WHEN excluded.until > feature_materialized.until
                     THEN excluded.until ELSE feature_materialized.until END,
                 rows = excluded.rows, at = excluded.at",
            &params![self.view.id(), until, self.rows, now],
        )?;
        let (view, rows) = (&self.view, self.rows);
        let data = json!({ "view": view.name(), "version": view.version(), "rows": rows,
            "until": until });
        let change = Change::new(&FEATURE_WRITE, &self.resource)
            .event("feature.materialized", &data)
            .detail("version", view.version())
            .detail("rows", rows);
        tx.record(ctx, change)
    }
}

/// The views that are meant, each of which the caller may write to.
async fn chosen(
    ctx: &Ctx,
    project: &Project,
    catalog: &Catalog,
    names: Option<&[String]>,
) -> Result<Vec<ViewVersion>> {
    let Some(names) = names else {
        let views: Vec<_> = catalog
            .views()
            .filter(|view| ctx.allows(&FEATURE_WRITE, &view.resource(project)))
            .collect();
        for view in &views {
            ctx.authorize(&FEATURE_WRITE, &view.resource(project)).await?;
        }
        if views.is_empty() {
            let allowed = "a project with at least one view that you may write to";
            return Err(Error::invalid("feature_views", "none", allowed));
        }
        return Ok(views);
    };
    let mut views: Vec<ViewVersion> = Vec::with_capacity(names.len());
    for name in names {
        let missing = || Error::not_found("feature", format!("{} {name}", Noun::View));
        let name = FeatureName::new(name.as_str()).map_err(|_| missing())?;
        let found = catalog.view(&name);
        let own = match &found {
            Some(view) => view.resource(project),
            None => resource(project, Noun::View, &name, true),
        };
        ctx.authorize(&FEATURE_WRITE, &own).await?;
        let view = found.ok_or_else(|| Error::not_found("feature", shown(Noun::View, &name)))?;
        if !views.iter().any(|known| known.id() == view.id()) {
            views.push(view);
        }
    }
    if views.is_empty() {
        return Err(Error::invalid("feature_views", "empty", "names of views, or nothing for all"));
    }
    Ok(views)
}
