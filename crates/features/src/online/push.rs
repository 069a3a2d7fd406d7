//! Rows that are pushed: checked, kept in the log, and readable before the caller hears of it.

use std::sync::Arc;

use arrow_array::RecordBatch;
use falaj_base::{Ctx, Error, Name, Resource, Result, Timestamp, code};
use falaj_governance::residency::on_record;
use falaj_governance::tenancy::Project;
use falaj_online::{Kind, Scalar, Value};
use falaj_store::db::Tx;
use falaj_store::record::Change;
use serde_json::{Value as Json, json};

use super::body::Columns;
use super::lawful::lawful;
use super::rows::{column, pack, size};
use super::shape::{Shape, place};
use crate::definition::form::{Noun, Origin};
use crate::definition::{Catalog, ViewVersion, resource, shown};
use crate::history::{Position, Rows, append, log};
use crate::name::FeatureName;
use crate::schema;
use crate::source::aside;
use crate::{FEATURE_WRITE, Features};

/// Where rows are pushed to.
#[derive(Clone, Debug)]
pub(crate) enum To {
    View(String),
    /// All views that come from this source.
    Source(String),
}

/// What became of a push to a view.
#[derive(Clone, Debug)]
pub(crate) struct Pushed {
    pub(crate) view: ViewVersion,
    pub(crate) rows: usize,
    /// How many entities have a row of it now; the others have newer ones.
    pub(crate) placed: usize,
}

/// Rows on their way into one view.
#[derive(Clone)]
struct Load {
    view: ViewVersion,
    shape: Arc<Shape>,
    resource: Resource,
    rows: Rows,
}

/// Values that are checked and packed on the thread that answers; more are left to another.
const FEW: usize = 5_000;
/// How often a push is tried that meets versions newer than this server has heard of.
const TRIES: usize = 3;

impl Features {
    /// Pushes rows. The reply follows the commit, and whoever reads after it finds them.
    pub(crate) async fn push(
        &self,
        ctx: &Ctx,
        project: &Project,
        to: &To,
        columns: Columns,
    ) -> Result<Vec<Pushed>> {
        let columns = Arc::new(columns);
        let mut catalog = self.catalog(project.id).await?;
        for _ in 1..TRIES {
            match self.push_once(ctx, project, &catalog, to, &columns).await {
                // Another server has applied a version that this one has not heard of.
                Err(error) if error.code().id == code::CHANGED.id => {
                    catalog = self.catalogs().renewed(project.id).await?;
                }
                done => return done,
            }
        }
        self.push_once(ctx, project, &catalog, to, &columns).await
    }

    async fn push_once(
        &self,
        ctx: &Ctx,
        project: &Project,
        catalog: &Catalog,
        to: &To,
        columns: &Arc<Columns>,
    ) -> Result<Vec<Pushed>> {
        let views = targets(ctx, project, catalog, to).await?;
        let many = columns.values() > FEW;
        let (ours, of, given) = (self.clone(), project.clone(), columns.clone());
        let loads = aside(many, move || ours.loads(&of, views, &given)).await?;
        // A store that does not answer is told before anything is kept, if it was never there.
        self.shelf().store().await?;
        let keep = Keep {
            ctx: ctx.clone(),
            project: project.clone(),
            loads: loads.clone(),
            online_zone: self.shelf().config().zone.clone(),
        };
        let whole = loads[0].resource.clone();
        let outcome = self.db().write(move |tx| keep.run(tx)).await;
        let kept = on_record(self.db(), ctx, &FEATURE_WRITE, &whole, outcome).await?;
        let mut pushed = Vec::with_capacity(loads.len());
        for (Load { view, shape, rows, .. }, (position, known)) in loads.into_iter().zip(kept) {
            let count = rows.batch().num_rows();
            let counts = shape.windows().is_some();
            let batch =
                aside(many, move || pack(&shape, rows.batch(), known.micros(), place(position)));
            let placed = match self.shelf().pushed(batch.await?, position).await {
                // Kept, and applied as soon as the store answers. Pushed again, it would count twice.
                Err(error) if counts => {
                    tracing::warn!(error = error.chain(), "pushed rows are not online yet");
                    0
                }
                // Pushed again, it would be the same rows.
                Err(error) => {
                    let text =
                        format!("{}; the rows are kept and will be readable", error.message());
                    return Err(Error::new(error.code(), text).caused_by(error));
                }
                Ok(placed) => placed,
            };
            pushed.push(Pushed { view, rows: count, placed });
        }
        Ok(pushed)
    }

    /// The rows as each view has them; at least one view.
    fn loads(
        &self,
        project: &Project,
        views: Vec<ViewVersion>,
        columns: &Columns,
    ) -> Result<Vec<Load>> {
        let mut loads = Vec::with_capacity(views.len());
        for view in views {
            let shape = self.shelf().shape(&view)?;
            let batch = self.check(&view, &shape, columns, self.db().now())?;
            let rows = Rows::new(&view, batch, self.config())?;
            loads.push(Load { resource: view.resource(project), view, shape, rows });
        }
        unknown(&loads, columns)?;
        Ok(loads)
    }

    /// The rows as the view has them; the first value that does not fit is refused by its place.
    fn check(
        &self,
        view: &ViewVersion,
        shape: &Shape,
        columns: &Columns,
        now: Timestamp,
    ) -> Result<RecordBatch> {
        let wanted = schema::rows(view.form());
        let count = columns.0.values().find_map(Json::as_array).map_or(0, Vec::len);
        let mut arrays = Vec::with_capacity(wanted.fields().len());
        let mut keys = Vec::with_capacity(shape.keys.len());
        for (name, kind) in &shape.keys {
            let values = read(columns, name, *kind, false, count)?;
            whole(name, &values)?;
            arrays.push(column(*kind, &values)?);
            keys.push(values);
        }
        for row in 0..count {
            shape.key(keys.iter().map(|values| &values[row])).map_err(|error| {
                let field = error.field().unwrap_or_default();
                let field = format!("df.{field}[{row}]");
                Error::invalid(field, "too long", "a key that can be kept").caused_by(error)
            })?;
        }
        let mut sizes = vec![0; count];
        for (name, kind) in &shape.columns {
            let values = read(columns, name, *kind, false, count)?;
            self.not_long(name, &values, &mut sizes)?;
            arrays.push(column(*kind, &values)?);
        }
        let (name, kind) = (&shape.event_time, Kind::One(Scalar::Timestamp));
        let mut events = read(columns, name, kind, true, count)?;
        whole(name, &events)?;
        self.not_ahead(name, &events, now)?;
        by_our_clock(&mut events, now);
        arrays.push(column(kind, &events)?);
        let batch = RecordBatch::try_new(wanted, arrays).map_err(Error::internal)?;
        if let Some(ready) = &shape.ready {
            // What cannot be computed is refused now: later nobody could be told.
            ready.run(&batch).map_err(|error| {
                let text = format!("the feature view {}: {}", view.name(), error.message());
                Error::new(error.code(), text).at("df").caused_by(error)
            })?;
        }
        Ok(batch)
    }

    /// Refuses rows that are longer than one may be, by the column that makes them so.
    fn not_long(&self, name: &str, values: &[Value], sizes: &mut [usize]) -> Result<()> {
        let most = self.shelf().config().max_row;
        for (row, (so_far, value)) in sizes.iter_mut().zip(values).enumerate() {
            *so_far += size(value);
            if *so_far as u64 > most.bytes() {
                let found = format!("{so_far} bytes with what stands before it");
                let allowed = format!("a row of at most {most} (`features.online.max_row`)");
                return Err(Error::invalid(format!("df.{name}[{row}]"), found, allowed));
            }
        }
        Ok(())
    }

    /// Refuses events that lie further ahead than clocks differ.
    fn not_ahead(&self, name: &str, values: &[Value], now: Timestamp) -> Result<()> {
        let most = self.shelf().config().max_ahead;
        let latest = (now + most.get()).micros();
        let late = |value: &Value| matches!(value, Value::Timestamp(event) if *event > latest);
        let Some(row) = values.iter().position(late) else { return Ok(()) };
        let Value::Timestamp(event) = values[row] else { return Ok(()) };
        let allowed =
            format!("at most {most} after the server's time, {now} (`features.online.max_ahead`)");
        let event = Timestamp::from_micros(event);
        Err(Error::invalid(format!("df.{name}[{row}]"), event, allowed))
    }
}

/// Takes what lies ahead, by no more than clocks differ, as of now: an event of the future would be
/// served before its time, and a training set of this moment would not have it.
fn by_our_clock(events: &mut [Value], now: Timestamp) {
    for event in events {
        if let Value::Timestamp(event) = event {
            *event = (*event).min(now.micros());
        }
    }
}

/// A column as its kind says, with as many values as the others.
fn read(
    columns: &Columns,
    name: &str,
    kind: Kind,
    is_event: bool,
    count: usize,
) -> Result<Vec<Value>> {
    let values = given(columns, name, is_event)?;
    if values.len() != count {
        let allowed = format!("{count} values, as the other columns have");
        let found = format!("{} values", values.len());
        return Err(Error::invalid(format!("df.{name}"), found, allowed));
    }
    let one = |(row, value)| kind.read(value, || format!("df.{name}[{row}]"));
    values.iter().enumerate().map(one).collect()
}

/// Refuses a gap.
fn whole(name: &str, values: &[Value]) -> Result<()> {
    match values.iter().position(|value| matches!(value, Value::Null)) {
        Some(row) => {
            Err(Error::invalid(format!("df.{name}[{row}]"), "null", "a value in every row"))
        }
        None => Ok(()),
    }
}

/// The values of a column. Feast's clients call the event time by one name, whatever it is.
fn given<'a>(columns: &'a Columns, name: &str, is_event: bool) -> Result<&'a [Json]> {
    let columns = &columns.0;
    let found = columns.get(name).or_else(|| if is_event { columns.get(EVENT) } else { None });
    let field = || format!("df.{name}");
    match found {
        Some(Json::Array(values)) => Ok(values),
        Some(_) => Err(Error::invalid(field(), "not a list", "a list of values")),
        None => Err(Error::invalid(field(), "absent", "a list of values: the view has it")),
    }
}

/// What Feast's clients call the event time, and the time a row became known at.
const EVENT: &str = "event_timestamp";
const CREATED: &str = "created";

/// Refuses columns that no view has. The time that rows became known at is ours to say: it is
/// passed over.
fn unknown(loads: &[Load], columns: &Columns) -> Result<()> {
    let is_known = |name: &str| {
        let of = |load: &Load| {
            let shape = &load.shape;
            let known_time = load.view.form().known_time.as_ref();
            shape.keys.iter().chain(&shape.columns).any(|(known, _)| known == name)
                || shape.event_time == name
                || known_time.is_some_and(|known| known.as_str() == name)
        };
        name == EVENT || name == CREATED || loads.iter().any(of)
    };
    match columns.0.keys().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => {
            let shapes = loads.iter().map(|load| &load.shape);
            let names = shapes.flat_map(|it| it.keys.iter().chain(&it.columns)).map(|it| &it.0[..]);
            let names: Vec<_> = names.collect();
            Err(Error::invalid(format!("df.{name}"), "unknown", names.join(", ")))
        }
    }
}

/// The views that are meant, each of which the caller may write to.
async fn targets(
    ctx: &Ctx,
    project: &Project,
    catalog: &Catalog,
    to: &To,
) -> Result<Vec<ViewVersion>> {
    let (noun, text) = match to {
        To::View(name) => (Noun::View, name),
        To::Source(name) => (Noun::Source, name),
    };
    let missing = || Error::not_found("feature", format!("{noun} {text}"));
    let name = FeatureName::new(text.as_str()).map_err(|_| missing())?;
    let known = catalog.get(noun, &name);
    let own = match known {
        Some(known) => known.resource(project),
        None => resource(project, noun, &name, true),
    };
    ctx.authorize(&FEATURE_WRITE, &own).await?;
    if known.is_none() {
        return Err(Error::not_found("feature", shown(noun, &name)));
    }
    let views: Vec<_> = match noun {
        Noun::View => catalog.view(&name).into_iter().collect(),
        _ => catalog.views().filter(|view| comes_from(view, &name)).collect(),
    };
    if views.is_empty() {
        let allowed = "a push source that at least one view comes from";
        return Err(Error::invalid("push_source_name", text, allowed));
    }
    for view in &views {
        ctx.authorize(&FEATURE_WRITE, &view.resource(project)).await?;
        takes_pushes(view)?;
    }
    Ok(views)
}

/// Refuses a view whose history would not have the rows: online it would say what no training set
/// ever does.
fn takes_pushes(view: &ViewVersion) -> Result<()> {
    if view.form().takes_pushes() {
        return Ok(());
    }
    let (name, source) = (view.name(), &view.form().source.name);
    let text = format!(
        "the feature view {name} takes no pushes: its source {source} is not of the kind `push`"
    );
    Err(Error::new(&code::INVALID_INPUT, text).at("view"))
}

fn comes_from(view: &ViewVersion, source: &FeatureName) -> bool {
    let form = &view.form().source;
    form.name == *source && matches!(form.origin, Origin::Push { .. })
}

/// A push that was checked, about to be kept.
struct Keep {
    ctx: Ctx,
    project: Project,
    loads: Vec<Load>,
    online_zone: Option<Name>,
}

impl Keep {
    /// Appends the rows to the log and puts that on record, view by view, all or none.
    fn run(&self, tx: &mut Tx<'_>) -> Result<Vec<(Position, Timestamp)>> {
        let mut places = Vec::with_capacity(self.loads.len());
        for load in &self.loads {
            let (view, rows) = (&load.view, load.rows.batch().num_rows());
            log::require_latest(tx, view.id())?;
            lawful(tx, &self.project, view, self.online_zone.as_ref())?;
            places.push(append(tx, &load.rows)?);
            let data = json!({ "view": view.name(), "version": view.version(), "rows": rows });
            let change = Change::new(&FEATURE_WRITE, &load.resource)
                .event("feature.pushed", &data)
                .detail("version", view.version())
                .detail("rows", rows);
            tx.record(&self.ctx, change)?;
        }
        Ok(places)
    }
}
