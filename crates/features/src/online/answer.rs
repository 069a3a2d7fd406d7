//! The latest values, as they were found: for those who write them out.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use falaj_base::{ByteSize, Ctx, Error, Result, Timestamp, code};
use falaj_governance::tenancy::Project;
use falaj_online::{Key, Kind, Online, Row, Value};
use serde_json::Value as Json;

use super::ask::{Entities, Picked, Wanted};
use super::body::too_large;
use super::shape::Shape;
use crate::Features;
use crate::source::blocking;
use crate::transform::{demand, tiles};

/// What is known about a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Present,
    /// The row is there, and has no value for the feature.
    Null,
    /// There is no row.
    Missing,
    /// There is one, and it is older than the view says that rows may be.
    Expired,
}

/// The latest values of some features of some entities.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The join keys that were needed, each with its values as they were given.
    pub(crate) keys: Vec<(String, Vec<Value>)>,
    pub(crate) views: Vec<ViewAnswer>,
    pub(crate) entities: usize,
    pub(crate) now: Timestamp,
}

impl Answer {
    /// How many values there are.
    pub(crate) fn values(&self) -> usize {
        let features: usize = self.views.iter().map(|view| view.picked.fields.len()).sum();
        features * self.entities
    }
}

/// The rows of one view, one for each entity.
#[derive(Debug)]
pub(crate) struct ViewAnswer {
    pub(crate) picked: Picked,
    rows: Vec<Option<Bytes>>,
}

/// A row as it is looked into.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    Row(Row<'a>),
    Missing,
    /// Since when it is: its event.
    Expired(i64),
}

impl Found<'_> {
    /// When it was so; none if there is no row.
    pub(crate) fn event(&self) -> Option<i64> {
        match self {
            Self::Row(row) => Some(row.stamp().event),
            Self::Expired(event) => Some(*event),
            Self::Missing => None,
        }
    }

    pub(crate) fn status(&self, field: usize) -> Status {
        match self {
            Self::Row(row) if row.is_null(field) => Status::Null,
            Self::Row(_) => Status::Present,
            Self::Missing => Status::Missing,
            Self::Expired(_) => Status::Expired,
        }
    }
}

impl ViewAnswer {
    /// Puts rows in place of what was read.
    pub(crate) fn set_rows(&mut self, rows: Vec<Option<Bytes>>) {
        self.rows = rows;
    }

    /// The rows, entity by entity.
    pub(crate) fn rows(&self, now: Timestamp) -> Result<Vec<Found<'_>>> {
        let shape = &self.picked.shape;
        let mut rows = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            rows.push(match row {
                Some(bytes) => {
                    let row = shape.layout.open(bytes)?;
                    let event = row.stamp().event;
                    if shape.is_expired(event, now) {
                        Found::Expired(event)
                    } else {
                        Found::Row(row)
                    }
                }
                None => Found::Missing,
            });
        }
        Ok(rows)
    }
}

impl Features {
    /// Reads the latest values of features; every view is authorised and every read counted.
    pub(crate) async fn read_online(
        &self,
        ctx: &Ctx,
        project: &Project,
        wanted: &Wanted,
        entities: Entities,
    ) -> Result<Answer> {
        let mut picked = self.pick(ctx, project, wanted).await?;
        let shown = picked.len();
        let inputs = self.inputs_of(ctx, project, &picked).await?;
        picked.extend(inputs);
        let count = self.count_entities(&entities, &picked)?;
        let (entities, request) = demand::request(&picked, entities);
        let keys = join_keys(&picked, entities)?;
        let store = self.shelf().store().await?;
        let now = self.db().now();
        let mut views = Vec::with_capacity(picked.len());
        let most = self.shelf().config().max_reply;
        let mut left = most.as_usize();
        for picked in picked {
            self.tally().count(ctx, &picked.view.resource(project), now);
            if picked.view.form().is_on_demand() {
                views.push(ViewAnswer { picked, rows: Vec::new() });
                continue;
            }
            let (asked, places) = keys_of(&picked, &keys, count)?;
            let found = read_some(store, &asked, &mut left, most).await?;
            let found = if picked.shape.windows().is_some() {
                let beside: Vec<_> = asked.iter().map(Key::beside).collect();
                let beside = read_some(store, &beside, &mut left, most).await?;
                windows_now(&picked.shape, found, beside, now).await?
            } else {
                found
            };
            let rows = places.into_iter().map(|place| found[place?].clone()).collect();
            views.push(ViewAnswer { picked, rows });
        }
        if views.iter().any(|view| view.picked.view.form().is_on_demand()) {
            let work = move || demand::compute(views, &request, count, now);
            views = if count <= FEW { work()? } else { blocking(work).await? };
        }
        views.truncate(shown);
        Ok(Answer { keys, views, entities: count, now })
    }

    /// How many entities are asked about: all columns tell the same.
    fn count_entities(&self, entities: &Entities, picked: &[Picked]) -> Result<usize> {
        let config = self.shelf().config();
        let Some((first, values)) = entities.first() else {
            return Err(Error::invalid("entities", "empty", "a list of values for each join key"));
        };
        let count = values.len();
        if let Some((name, other)) = entities.iter().find(|(_, other)| other.len() != count) {
            let field = format!("entities.{name}");
            let allowed = format!("{count} values, as `{first}` has");
            return Err(Error::invalid(field, format!("{} values", other.len()), allowed));
        }
        if count > config.max_entities {
            let most = config.max_entities;
            let allowed = format!("at most {most} entities (`features.online.max_entities`)");
            return Err(Error::invalid("entities", count, allowed));
        }
        let features: usize = picked.iter().map(|picked| picked.fields.len()).sum();
        if count.saturating_mul(features) > config.max_values {
            let most = config.max_values;
            let allowed = format!("at most {most} values (`features.online.max_values`)");
            let found = format!("{count} entities times {features} features");
            return Err(Error::invalid("entities", found, allowed));
        }
        Ok(count)
    }
}

/// Entities that are computed about on the thread that answers; more are left to another.
const FEW: usize = 200;

/// Reads rows within what may still be read.
async fn read_some(
    store: &Online,
    keys: &[Key],
    left: &mut usize,
    most: ByteSize,
) -> Result<Vec<Option<Bytes>>> {
    let found = store.read(keys, *left).await.map_err(|error| {
        let large = error.code().id == code::TOO_LARGE.id;
        if large { too_large("what was found", most) } else { error }
    })?;
    *left = left.saturating_sub(found.iter().flatten().map(Bytes::len).sum());
    Ok(found)
}

/// What the windows of entities say now: of what was pushed, and of what was brought.
async fn windows_now(
    shape: &Arc<Shape>,
    pushed: Vec<Option<Bytes>>,
    brought: Vec<Option<Bytes>>,
    now: Timestamp,
) -> Result<Vec<Option<Bytes>>> {
    let (shape, few) = (shape.clone(), pushed.len() <= FEW);
    let work = move || {
        let ready = shape.windows().ok_or_else(|| Error::internal("no windows"))?;
        let rows = pushed.iter().zip(&brought).map(|(pushed, brought)| {
            tiles::now(&shape, ready, [pushed.as_ref(), brought.as_ref()], now.micros()).map(Some)
        });
        rows.collect::<Result<Vec<_>>>()
    };
    if few { work() } else { blocking(work).await }
}

/// The values of the join keys that the views have, each read as what it is.
fn join_keys(picked: &[Picked], entities: Entities) -> Result<Vec<(String, Vec<Value>)>> {
    let mut given: Vec<_> =
        entities.into_iter().map(|(name, values)| (name, Some(values))).collect();
    let mut keys: Vec<(String, Vec<Value>)> = Vec::new();
    for (name, kind) in picked.iter().flat_map(|picked| picked.shape.keys.iter()) {
        if keys.iter().any(|(known, _)| known == name) {
            continue;
        }
        // By its own name, or by that of an entity that has no other key.
        let alias = picked.iter().flat_map(|it| &it.view.form().entities).find(
            |entity| matches!(entity.join_keys.as_slice(), [only] if only.name.as_str() == name),
        );
        let is = |given: &str| given == name || alias.is_some_and(|it| it.name.as_str() == given);
        let values = given.iter_mut().find(|(given, _)| is(given)).and_then(|(_, it)| it.take());
        let Some(values) = values else {
            let allowed = "a list of its values: it is a join key of these features";
            return Err(Error::invalid(format!("entities.{name}"), "absent", allowed));
        };
        keys.push((name.clone(), read(name, *kind, &values)?));
    }
    if let Some((name, _)) = given.iter().find(|(_, values)| values.is_some()) {
        let known: Vec<_> = keys.iter().map(|(name, _)| name.as_str()).collect();
        return Err(Error::invalid(format!("entities.{name}"), "unknown", known.join(", ")));
    }
    Ok(keys)
}

fn read(name: &str, kind: Kind, values: &[Json]) -> Result<Vec<Value>> {
    let one = |(row, value)| kind.read(value, || format!("entities.{name}[{row}]"));
    values.iter().enumerate().map(one).collect()
}

/// The keys of the entities in a view, each once, and which of them each entity has: none if one
/// of its values is null.
fn keys_of(
    picked: &Picked,
    keys: &[(String, Vec<Value>)],
    count: usize,
) -> Result<(Vec<Key>, Vec<Option<usize>>)> {
    let columns: Vec<&[Value]> = picked
        .shape
        .keys
        .iter()
        .filter_map(|(name, _)| keys.iter().find(|(known, _)| known == name))
        .map(|(_, values)| values.as_slice())
        .collect();
    let whole = |row: usize| columns.iter().all(|column| !matches!(column[row], Value::Null));
    let mut known: HashMap<Key, usize> = HashMap::with_capacity(count);
    let (mut asked, mut places) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for row in 0..count {
        if !whole(row) {
            places.push(None);
            continue;
        }
        let key = picked.shape.key(columns.iter().map(|column| &column[row]))?;
        let place = *known.entry(key.clone()).or_insert_with(|| {
            asked.push(key);
            asked.len() - 1
        });
        places.push(Some(place));
    }
    Ok((asked, places))
}
