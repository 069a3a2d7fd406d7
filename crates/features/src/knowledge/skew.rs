//! Whether both stores say the same: the latest values as they are served, beside what history says
//! of the same moment, for a sample of entities.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema};
use bytes::Bytes;
use falaj_base::{Ctx, Error, Result, Timestamp};
use falaj_governance::tenancy::Project;
use falaj_online::value::{Kind, Moments, Scalar, Value};
use falaj_store::db::Tx;
use falaj_store::record::Change;
use falaj_tables::{Layout, Limits, Part, RecordWriter, Table};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::{store, watch};
use crate::definition::ViewVersion;
use crate::definition::form::Pick;
use crate::history::log;
use crate::name::FeatureName;
use crate::online::{Found, Wanted, column_of, value_in};
use crate::source::{Origins, Stop, blocking, fit};
use crate::training::{Chosen, What, Work};
use crate::{FEATURE_WRITE, Features, schema};

/// Entities that are compared, and at most.
pub(super) const ENTITIES: usize = 1000;
pub(crate) const MOST: usize = 10_000;
/// Values of each feature that are shown.
const SAMPLES: usize = 5;
/// The column of moments, which no key can be called.
const AT: &str = "__at";

/// What is to be compared.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Check {
    /// How many entities, taken at random; 1000 if absent.
    #[schemars(range(min = 1, max = 10_000))]
    pub entities: Option<usize>,
    /// The share of values that may differ; others are told if more do. None may if absent.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub threshold: Option<f64>,
}

/// What was found.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Skew {
    pub view: FeatureName,
    pub version: i64,
    /// The moment that both were asked about.
    pub at: Timestamp,
    pub entities: usize,
    /// Values that were compared, and those that differ.
    pub compared: u64,
    pub mismatches: u64,
    pub threshold: f64,
    pub above: bool,
    /// The features with values that differ.
    pub features: Vec<FeatureSkew>,
}

/// A feature whose values differ.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FeatureSkew {
    pub feature: FeatureName,
    pub mismatches: u64,
    /// Some of them, for whoever compared; they are not kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Mismatch>,
}

/// A value that differs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Mismatch {
    /// The entity.
    pub key: Json,
    pub online: Json,
    pub offline: Json,
}

/// The keys of some entities, column by column.
type Keys = Vec<(String, Kind, Vec<Value>)>;

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Features {
    /// Compares the latest values of a view with its history.
    pub async fn check_view(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &FeatureName,
        wanted: Check,
    ) -> Result<Skew> {
        let view = self.readable_view(ctx, project, name).await?;
        ctx.authorize(&FEATURE_WRITE, &view.resource(project)).await?;
        let count = wanted.entities.unwrap_or(ENTITIES);
        if count == 0 || count > MOST {
            return Err(Error::invalid("entities", count, format!("1 to {MOST}")));
        }
        let threshold = wanted.threshold.unwrap_or(0.0);
        if !(0.0..=1.0).contains(&threshold) {
            return Err(Error::invalid("threshold", threshold, "0 to 1"));
        }
        let _place = self.looking().begin()?;
        self.compared(ctx, project, view, (count, threshold)).await
    }

    /// Compares, and puts down what was found. Whoever calls has authorised it.
    pub(super) async fn compared(
        &self,
        ctx: &Ctx,
        project: &Project,
        view: ViewVersion,
        (count, threshold): (usize, f64),
    ) -> Result<Skew> {
        let resource = view.resource(project);
        let stopped = Arc::new(AtomicBool::new(false));
        let _guard = StopOnDrop(stopped.clone());
        let stop = Stop { stopped, deadline: Instant::now() + self.config().max_time.get() };
        let keys = self.sampled(ctx, project, &view, count, stop.clone()).await?;
        let entities = keys.first().map_or(0, |(_, _, values)| values.len());
        let (at, online) = self.served(ctx, project, &view, &keys).await?;
        let offline = self.remembered(ctx, project, &view, &keys, at, stop).await?;
        let features = differing(&view, &keys, &online, &offline)?;
        let compared = (entities * view.form().fields.len()) as u64;
        let mismatches = features.iter().map(|it| it.mismatches).sum();
        #[allow(clippy::cast_precision_loss, reason = "a share")]
        let above = compared > 0 && mismatches as f64 / compared as f64 > threshold;
        let version = view.version();
        let skew = Skew {
            view: view.name().clone(),
            version,
            at,
            entities,
            compared,
            mismatches,
            threshold,
            above,
            features,
        };
        let (ctx, told) = (ctx.clone(), skew.clone());
        let write = move |tx: &mut Tx<'_>| {
            tx.lock(&format!("feature-skew/{}", view.id()))?;
            let before = store::put_skew(tx, view.id(), (compared, mismatches, above))?;
            watch::put(tx, view.id(), &told)?;
            let counts: BTreeMap<_, _> =
                told.features.iter().map(|it| (it.feature.to_string(), it.mismatches)).collect();
            let event = json!({
                "view": told.view, "version": version, "compared": compared,
                "mismatches": mismatches, "features": counts,
            });
            let mut change = Change::new(&FEATURE_WRITE, &resource)
                .detail("compared", compared)
                .detail("mismatches", mismatches);
            // Once when it begins, and once when it is over.
            if above && !before {
                change = change.event("feature.skewed", &event);
            } else if before && !above {
                change = change.event("feature.agrees", &event);
            }
            tx.record(&ctx, change)
        };
        self.db().write(write).await?;
        Ok(skew)
    }

    /// Some entities of a view, each as likely as any other.
    async fn sampled(
        &self,
        ctx: &Ctx,
        project: &Project,
        view: &ViewVersion,
        count: usize,
        stop: Stop,
    ) -> Result<Keys> {
        let until = self.db().read(log::end).await?;
        let origins = Origins { features: self, ctx, project, until };
        let (history, _) = origins.open(view).await?;
        let kinds: Vec<(String, Kind)> =
            view.form().keys().iter().map(|key| (key.name.to_string(), key.kind)).collect();
        blocking(move || {
            // Those of the least hashes, under keys of this time: a sample without repetition.
            let under = RandomState::new();
            let mut chosen: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
            history.stamps(&stop, |stamps| {
                let columns = kinds.iter().zip(&stamps.keys).map(|((name, kind), column)| {
                    Ok((fit(name, column, &schema::arrow(*kind))?, *kind))
                });
                let columns = columns.collect::<Result<Vec<_>>>()?;
                let length = columns.first().map_or(0, |(column, _)| column.len());
                for row in 0..length {
                    let values = columns.iter().map(|(column, kind)| value_in(column, row, *kind));
                    let values = values.collect::<Result<Vec<Value>>>()?;
                    let mut text = Vec::new();
                    for value in &values {
                        value.write_json(&mut text, Moments::Text);
                    }
                    let mut hasher = under.build_hasher();
                    hasher.write(&text);
                    let hash = hasher.finish();
                    let greatest = chosen.last_key_value().map(|(hash, _)| *hash);
                    if chosen.len() < count || greatest.is_some_and(|greatest| hash < greatest) {
                        chosen.insert(hash, values);
                        if chosen.len() > count {
                            chosen.pop_last();
                        }
                    }
                }
                Ok(())
            })?;
            let column = |(place, (name, kind)): (usize, (String, Kind))| {
                (name, kind, chosen.values().map(|key| key[place].clone()).collect())
            };
            Ok(kinds.into_iter().enumerate().map(column).collect())
        })
        .await
    }

    /// The values as they are served now, entity by entity, and the moment of that.
    async fn served(
        &self,
        ctx: &Ctx,
        project: &Project,
        view: &ViewVersion,
        keys: &Keys,
    ) -> Result<(Timestamp, Vec<Vec<Value>>)> {
        let entities =
            keys.iter().map(|(name, _, values)| (name.clone(), values.iter().map(shown).collect()));
        let wanted = Wanted::Features(vec![view.name().to_string()]);
        let most = self.config().online.max_entities.max(1);
        let entities: Vec<(String, Vec<Json>)> = entities.collect();
        let count = entities.first().map_or(0, |(_, values)| values.len());
        let (mut at, mut all) = (self.db().now(), Vec::with_capacity(count));
        for start in (0..count).step_by(most) {
            let some = entities.iter().map(|(name, values)| {
                (name.clone(), values[start..(start + most).min(count)].to_vec())
            });
            let answer = self.read_online(ctx, project, &wanted, some.collect()).await?;
            at = answer.now;
            let Some(found) = answer.views.first() else { continue };
            for row in found.rows(answer.now)? {
                let values = found.picked.fields.iter().map(|field| match &row {
                    Found::Row(row) => row.value(*field),
                    _ => Ok(Value::Null),
                });
                all.push(values.collect::<Result<Vec<_>>>()?);
            }
        }
        Ok((at, all))
    }

    /// What history says of a moment, entity by entity.
    async fn remembered(
        &self,
        ctx: &Ctx,
        project: &Project,
        view: &ViewVersion,
        keys: &Keys,
        at: Timestamp,
        stop: Stop,
    ) -> Result<Vec<Vec<Value>>> {
        let features: Vec<FeatureName> =
            view.form().fields.iter().map(|field| field.name.clone()).collect();
        let columns = features.iter().map(|name| format!("__{name}")).collect();
        let pick = Pick {
            view: view.name().clone(),
            version: view.version(),
            hash: view.hash().to_owned(),
            features,
        };
        let what = What { event_time: Some(AT.to_owned()), ..What::default() };
        let work = Work { what, chosen: vec![Chosen { pick, columns }], views: vec![view.id()] };
        let moments = moments(keys, at)?;
        let (join, _) = self.join_of(ctx, project, &work, moments, stop).await?;
        let fields: Vec<(String, Kind)> =
            view.form().fields.iter().map(|it| (format!("__{}", it.name), it.kind)).collect();
        blocking(move || {
            let mut out = Vec::new();
            join.run(&mut out)?;
            let table = Table::open(Bytes::from(out), Limits::default())?;
            let names = fields.iter().map(|(name, _)| name.clone()).collect();
            let part = Part { columns: Some(names), groups: None, rows_at_once: MOST };
            let mut all = Vec::new();
            for batch in table.records(&part)? {
                let batch = batch?;
                let columns = fields.iter().zip(batch.columns()).map(|((name, kind), column)| {
                    Ok((fit(name, column, &schema::arrow(*kind))?, *kind))
                });
                let columns = columns.collect::<Result<Vec<_>>>()?;
                for row in 0..batch.num_rows() {
                    let values = columns.iter().map(|(column, kind)| value_in(column, row, *kind));
                    all.push(values.collect::<Result<Vec<_>>>()?);
                }
            }
            Ok(all)
        })
        .await
    }
}

/// The entities at one moment, as a table.
fn moments(keys: &Keys, at: Timestamp) -> Result<Table> {
    let count = keys.first().map_or(0, |(_, _, values)| values.len());
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (name, kind, values) in keys {
        fields.push(Field::new(name, schema::arrow(*kind), true));
        columns.push(column_of(*kind, values)?);
    }
    let time = Kind::One(Scalar::Timestamp);
    fields.push(Field::new(AT, schema::arrow(time), true));
    columns.push(column_of(time, &vec![Value::Timestamp(at.micros()); count])?);
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(schema.clone(), columns).map_err(Error::internal)?;
    let mut writer = RecordWriter::new(Vec::new(), schema, Layout::default())?;
    writer.write(&batch)?;
    Table::open(Bytes::from(writer.close()?), Limits::default())
}

fn shown(value: &Value) -> Json {
    let mut out = Vec::new();
    value.write_json(&mut out, Moments::Text);
    serde_json::from_slice(&out).unwrap_or(Json::Null)
}

fn differing(
    view: &ViewVersion,
    keys: &Keys,
    online: &[Vec<Value>],
    offline: &[Vec<Value>],
) -> Result<Vec<FeatureSkew>> {
    let count = keys.first().map_or(0, |(_, _, values)| values.len());
    if online.len() != count || offline.len() != count {
        return Err(Error::internal("a store answered for other entities than it was asked for"));
    }
    let mut features = Vec::new();
    for (place, field) in view.form().fields.iter().enumerate() {
        let mut skew =
            FeatureSkew { feature: field.name.clone(), mismatches: 0, samples: Vec::new() };
        for row in 0..count {
            let (left, right) = (&online[row][place], &offline[row][place]);
            if left == right {
                continue;
            }
            skew.mismatches += 1;
            if skew.samples.len() < SAMPLES {
                let key = keys.iter().map(|(name, _, values)| (name.clone(), shown(&values[row])));
                let (online, offline) = (shown(left), shown(right));
                skew.samples.push(Mismatch { key: Json::Object(key.collect()), online, offline });
            }
        }
        if skew.mismatches > 0 {
            features.push(skew);
        }
    }
    Ok(features)
}
