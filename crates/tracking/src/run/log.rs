//! Logging: metrics, parameters and tags of a run, each call one transaction.

use std::collections::{BTreeMap, HashSet};

use falaj_base::{Error, Result, code};
use falaj_mlflow::Call;
use falaj_mlflow::error::{invalid, missing, refused};
use falaj_mlflow::names::{MAX_KEY, check_key};
use falaj_store::db::Tx;
use falaj_store::record::Change;
use serde_json::json;

use super::id::RunId;
use super::service::{check_active, require_active_run};
use super::{store, touch};
use crate::access::{Home, no_run};
use crate::key::{self, KeyKind, Learned};
use crate::logged_model::write_model_metrics;
use crate::metric::store::Appended;
use crate::metric::{self, Point};
use crate::{RUN_UNTAG, RUN_WRITE, Tracking};

/// The tag that holds the run's name a second time.
pub(super) const RUN_NAME_TAG: &str = "mlflow.runName";
/// The tag to which `log-model` appends.
const MODEL_HISTORY_TAG: &str = "mlflow.log-model.history";
/// The longest history kept in that tag, in characters.
const MAX_MODEL_HISTORY: usize = 1 << 20;

/// One metric value on its way in.
#[derive(Clone, Debug)]
pub struct LoggedMetric {
    pub key: String,
    pub point: Point,
    /// The logged model it also describes.
    pub model: Option<String>,
    pub dataset: Option<(String, String)>,
}

/// What one call logs.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Whether the call logs one thing and has no lists: a refusal then names the field alone.
    pub single: bool,
    pub metrics: Vec<LoggedMetric>,
    pub params: Vec<(String, String)>,
    pub tags: Vec<(String, String)>,
}

impl Tracking {
    /// Logs a batch. All of it is durable when this returns, or none of it happened.
    pub async fn log(&self, call: &Call, run: &str, batch: Batch) -> Result<()> {
        let batch = self.checked(batch)?;
        let home = self.home(call, run, &RUN_WRITE).await?;
        let (this, ctx) = (self.clone(), call.ctx.clone());
        let id = home.run;
        let (learned, appended) = self
            .db()
            .write_together(touch::held(id), move |tx, run| {
                let stage = touch::stage(run)?.ok_or_else(|| no_run(&id.to_string()))?;
                check_active(id, stage)?;
                let written = this.write_batch(tx, &home, &batch)?;
                let mut change =
                    Change::new(&RUN_WRITE, &home.resource).share_entry().detail("run", home.run);
                for (what, count) in [
                    ("metrics", batch.metrics.len()),
                    ("params", batch.params.len()),
                    ("tags", batch.tags.len()),
                ] {
                    if count > 0 {
                        change = change.detail(what, count);
                    }
                }
                tx.record(&ctx, change)?;
                Ok(written)
            })
            .await?;
        self.0.keys.remember(learned);
        if let Some(appended) = appended {
            self.0.compactor.note(id, appended);
        }
        Ok(())
    }

    pub async fn delete_run_tag(&self, call: &Call, run: &str, name: String) -> Result<()> {
        let home = self.home(call, run, &RUN_UNTAG).await?;
        let ctx = call.ctx.clone();
        self.db()
            .write(move |tx| {
                require_active_run(tx, home.run)?;
                let number = key::find(tx, home.experiment, KeyKind::Tag, &name)?;
                let deleted = match number {
                    Some(number) => store::delete_tag(tx, home.run, number)?,
                    None => false,
                };
                if !deleted {
                    let text = format!("No tag with name: {name} in run with id {}", home.run);
                    return Err(Error::new(&code::NOT_FOUND, text));
                }
                let change = Change::new(&RUN_UNTAG, &home.resource)
                    .detail("run", home.run)
                    .detail("deleted_tag", &name);
                tx.record(&ctx, change)
            })
            .await
    }

    /// Appends a model's description to the run's history of logged models.
    pub async fn log_model_json(&self, call: &Call, run: &str, model: String) -> Result<()> {
        let model: serde_json::Value = serde_json::from_str(&model).map_err(|_| {
            refused("Malformed model info. \n {model_json} is not in a valid JSON format.")
        })?;
        check_model_info(&model)?;
        let home = self.home(call, run, &RUN_WRITE).await?;
        let (this, ctx) = (self.clone(), call.ctx.clone());
        let learned = self
            .db()
            .write(move |tx| {
                require_active_run(tx, home.run)?;
                let names = std::iter::once(MODEL_HISTORY_TAG);
                let (keys, learned) =
                    this.0.keys.number(tx, (home.experiment, KeyKind::Tag), names)?;
                let Some(key) = keys.first().copied() else {
                    return Err(Error::internal("a name without a number"));
                };
                let history = store::tag(tx, home.run, key)?;
                let mut history: Vec<serde_json::Value> =
                    history.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
                history.push(model);
                let text = serde_json::to_string(&history).map_err(Error::internal)?;
                if text.len() > MAX_MODEL_HISTORY {
                    return Err(refused("the run's history of logged models is full"));
                }
                store::set_tag(tx, home.run, key, &text)?;
                let change = Change::new(&RUN_WRITE, &home.resource)
                    .detail("run", home.run)
                    .detail("models", history.len());
                tx.record(&ctx, change)?;
                Ok(learned)
            })
            .await?;
        self.0.keys.remember(learned);
        Ok(())
    }

    /// First what can be refused, in MLflow's order, then what is written: a refusal that has
    /// changed nothing disturbs nobody who shares the transaction.
    fn write_batch(
        &self,
        tx: &mut Tx<'_>,
        home: &Home,
        batch: &Batch,
    ) -> Result<(Learned, Option<Appended>)> {
        let number = |tx: &mut Tx<'_>, kind, names: &mut dyn Iterator<Item = &str>| {
            let names: Vec<&str> = names.collect();
            self.0.keys.number(tx, (home.experiment, kind), names.iter().copied())
        };
        let mut params = batch.params.iter().map(|(key, _)| key.as_str());
        let (param_keys, params) = number(tx, KeyKind::Param, &mut params)?;
        let mut metrics = batch.metrics.iter().map(|metric| metric.key.as_str());
        let (metric_keys, metrics) = number(tx, KeyKind::Metric, &mut metrics)?;
        let mut tags = batch.tags.iter().map(|(key, _)| key.as_str());
        let (_, tags) = number(tx, KeyKind::Tag, &mut tags)?;
        let learned = params.and(metrics).and(tags);

        let fresh = fresh_params(tx, home, &batch.params, &param_keys)?;
        write_model_metrics(tx, (home.run, home.experiment), &batch.metrics)?;
        for (number, value) in fresh {
            store::insert_param(tx, home.run, number, value)?;
        }
        let appended = write_metrics(tx, home, &batch.metrics, &metric_keys)?;
        if !batch.tags.is_empty() {
            let gone = || no_run(&home.run.to_string());
            let info = store::find(tx, home.run)?.ok_or_else(gone)?;
            // Their names were learned above.
            let _ = self.write_tags(tx, &info, &batch.tags)?;
        }
        // Metrics have marked it already.
        if appended.is_none() {
            touch::note(tx, home.run, home.experiment)?;
        }
        Ok((learned, appended))
    }

    /// Refuses what must be refused, and cuts what MLflow would cut.
    pub(super) fn checked(&self, batch: Batch) -> Result<Batch> {
        let config = self.config();
        let (metrics, params, tags) = (batch.metrics.len(), batch.params.len(), batch.tags.len());
        for (what, count, limit) in [
            ("metrics", metrics, config.max_batch_metrics),
            ("params", params, config.max_batch_params),
            ("tags", tags, config.max_batch_params),
            ("metrics, params, and tags", metrics + params + tags, config.max_batch_entities),
        ] {
            if count > limit {
                return Err(refused(format!(
                    "A batch logging request can contain at most {limit} {what}. Got {count} \
                     {what}. Please split up {what} across multiple requests and try again."
                )));
            }
        }
        let path = |list: &str, at: usize, field: &str| {
            if batch.single { field.to_owned() } else { format!("{list}[{at}].{field}") }
        };
        for (at, metric) in batch.metrics.iter().enumerate() {
            check_metric(metric, |field| path("metrics", at, field))?;
        }
        let mut seen: HashSet<&str> = HashSet::with_capacity(params);
        for (at, (key, _)) in batch.params.iter().enumerate() {
            check_name(key, || path("params", at, "key"))?;
            if !seen.insert(key) {
                return Err(refused(format!(
                    "Duplicate parameter keys have been submitted: ['{key}']. Please ensure the \
                     request contains only one param value per param key."
                )));
            }
        }
        for (at, (key, _)) in batch.tags.iter().enumerate() {
            check_name(key, || path("tags", at, "key"))?;
        }
        let params = batch
            .params
            .into_iter()
            .map(|(key, value)| (key, cut(value, config.max_param_value)))
            .collect();
        let tags = self.checked_tags(batch.tags)?;
        Ok(Batch { params, tags, ..batch })
    }
}

/// The parameters that are new, by their numbers; one that has another value already is refused.
fn fresh_params<'b>(
    tx: &mut Tx<'_>,
    home: &Home,
    params: &'b [(String, String)],
    keys: &[i64],
) -> Result<Vec<(i64, &'b str)>> {
    if params.is_empty() {
        return Ok(Vec::new());
    }
    let known = store::param_values(tx, home.run)?;
    let (mut fresh, mut changed) = (Vec::new(), Vec::new());
    for (number, (key, value)) in keys.iter().zip(params) {
        match known.get(number) {
            None => fresh.push((*number, value.as_str())),
            Some(old) if old == value => {}
            Some(old) => changed.push((key, old, value)),
        }
    }
    if changed.is_empty() { Ok(fresh) } else { Err(changing_params(home.run, &changed)) }
}

fn write_metrics(
    tx: &mut Tx<'_>,
    home: &Home,
    metrics: &[LoggedMetric],
    keys: &[i64],
) -> Result<Option<Appended>> {
    if metrics.is_empty() {
        return Ok(None);
    }
    // In the order of their numbers: two writers of one run never wait for each other crosswise.
    let mut by_key: BTreeMap<i64, Vec<Point>> = BTreeMap::new();
    for (key, metric) in keys.iter().zip(metrics) {
        by_key.entry(*key).or_default().push(metric.point);
    }
    let points: Vec<(i64, Vec<Point>)> = by_key.into_iter().collect();
    metric::store::append(tx, (home.run, home.experiment), &points).map(Some)
}

/// Checks a key. Where it stands is spelled out only for one that is refused: a batch has many.
fn check_name(key: &str, path: impl FnOnce() -> String) -> Result<()> {
    check_key("key", key).or_else(|_| check_key(&path(), key))
}

fn check_metric(metric: &LoggedMetric, path: impl Fn(&str) -> String) -> Result<()> {
    check_name(&metric.key, || path("name"))?;
    if metric.point.timestamp() < 0 {
        let why = "the timestamp must be a nonnegative long (64-bit integer)";
        return Err(invalid(&path("timestamp"), &json!(metric.point.timestamp()), why));
    }
    Ok(())
}

/// A tag's key. MLflow lets tags have any name that a file could.
pub(super) fn check_tag(parameter: &str, key: &str) -> Result<()> {
    check_key(parameter, key)
}

/// At most `limit` characters.
pub(super) fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit
        && let Some((end, _)) = text.char_indices().nth(limit)
    {
        text.truncate(end);
    }
    text
}

fn changing_params(run: RunId, changed: &[(&String, &String, &String)]) -> Error {
    let short = |text: &str| text.chars().take(MAX_KEY).collect::<String>();
    if let [(key, old, new)] = changed {
        return refused(format!(
            "Changing param values is not allowed. Param with key='{key}' was already logged with \
             value='{}' for run ID='{run}'. Attempted logging new value '{}'.",
            short(old),
            short(new)
        ));
    }
    let list: Vec<String> = changed
        .iter()
        .map(|(key, old, new)| {
            format!(
                "{{'key': '{key}', 'old_value': '{}', 'new_value': '{}'}}",
                short(old),
                short(new)
            )
        })
        .collect();
    refused(format!(
        "Changing param values is not allowed. Params were already logged='[{}]' for run ID='{run}'.",
        list.join(", ")
    ))
}

fn check_model_info(model: &serde_json::Value) -> Result<()> {
    for field in ["artifact_path", "flavors", "utc_time_created", "run_id"] {
        if model.get(field).is_none() {
            return Err(missing(field));
        }
    }
    Ok(())
}
