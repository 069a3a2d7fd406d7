//! Searching logged models: few enough to look at each.

use std::borrow::Cow;
use std::cmp::Ordering;

use falaj_base::{Error, Result, code};
use falaj_mlflow::filter::{self, Expr, Field, OrderBy, Row};
use falaj_mlflow::{Call, page};
use serde::{Deserialize, Serialize};

use super::model::{LoggedModel, ModelMetric};
use super::store;
use crate::access::resource;
use crate::experiment::{ExperimentId, store as experiments};
use crate::{RUN_READ, Tracking};

/// A dataset that metrics must be about; any digest if none is given.
pub(super) type DatasetFilter = (String, Option<String>);

/// One clause of an ordering; a metric's may be about one dataset.
#[derive(Clone, Debug)]
pub(super) struct ModelOrder {
    pub(super) by: OrderBy,
    pub(super) dataset: Option<DatasetFilter>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ModelSearch {
    pub(super) experiments: Vec<String>,
    pub(super) filter: Option<String>,
    pub(super) datasets: Vec<DatasetFilter>,
    pub(super) order: Vec<ModelOrder>,
    pub(super) limit: usize,
    pub(super) page_token: Option<String>,
}

/// Where a page ended, and of which search: a token of another search is refused.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Token {
    offset: usize,
    experiment_ids: Vec<String>,
    filter_string: Option<String>,
    order_by: String,
}

impl Tracking {
    pub(super) async fn search_logged_models(
        &self,
        call: &Call,
        search: ModelSearch,
    ) -> Result<(Vec<LoggedModel>, Option<String>)> {
        let wanted = filter::parse(search.filter.as_deref().unwrap_or(""), &filter::LOGGED_MODELS)?;
        let start = search.start()?;
        let ids: Vec<ExperimentId> =
            search.experiments.iter().map(|id| id.parse()).collect::<Result<_>>()?;
        call.ctx.filtered(&RUN_READ);
        let readable =
            |id: &ExperimentId| call.ctx.allows(&RUN_READ, &resource(&call.place, *id, false));
        let mut ids: Vec<ExperimentId> = ids.into_iter().filter(readable).collect();
        ids.sort_unstable();
        ids.dedup();
        let project = call.place.id;
        let mut found = self
            .db()
            .read(move |tx| {
                let mut all = Vec::new();
                for id in ids {
                    if let Some(number) = experiments::number(tx, project, id)? {
                        all.extend(store::of_experiment(tx, number)?);
                    }
                }
                Ok(all)
            })
            .await?;
        found.retain(|model| search.wants(wanted.as_ref(), model));
        found.sort_by(|a, b| compare(a, b, &search.order));
        let end = start.saturating_add(search.limit);
        let next = if found.len() > end { Some(page::encode(&search.token(end))?) } else { None };
        Ok((found.into_iter().skip(start).take(search.limit).collect(), next))
    }
}

impl ModelSearch {
    fn token(&self, offset: usize) -> Token {
        Token {
            offset,
            experiment_ids: self.experiments.clone(),
            filter_string: self.filter.clone(),
            order_by: format!("{:?}", self.order),
        }
    }

    fn start(&self) -> Result<usize> {
        let Some(token) = page::decode::<Token>(self.page_token.as_deref())? else { return Ok(0) };
        if token == self.token(token.offset) {
            return Ok(token.offset);
        }
        let text = "Invalid page token: it belongs to another search";
        Err(Error::new(&code::INVALID_INPUT, text).at("page_token"))
    }

    fn wants(&self, filter: Option<&Expr>, model: &LoggedModel) -> bool {
        let about = |metric: &ModelMetric| {
            self.datasets.is_empty()
                || self.datasets.iter().any(|dataset| is_about(metric, dataset))
        };
        let about_metrics = filter.is_some_and(|filter| {
            let mut any = false;
            filter.each(&mut |comparison| any |= matches!(comparison.field, Field::Metric { .. }));
            any
        });
        let measured = self.datasets.is_empty() || about_metrics || model.metrics.iter().any(about);
        measured && filter.is_none_or(|filter| filter.matches(&Seen { model, about: &about }))
    }
}

fn is_about(metric: &ModelMetric, (name, digest): &DatasetFilter) -> bool {
    metric.dataset_name.as_ref() == Some(name)
        && digest.as_ref().is_none_or(|digest| metric.dataset_digest.as_ref() == Some(digest))
}

/// A model as a filter sees it.
struct Seen<'m> {
    model: &'m LoggedModel,
    about: &'m dyn Fn(&ModelMetric) -> bool,
}

impl Row for Seen<'_> {
    fn number(&self, field: &Field) -> Option<f64> {
        time(self.model, field)
    }

    /// Any value ever logged counts, as in MLflow.
    fn any_number(&self, field: &Field, accept: &mut dyn FnMut(f64) -> bool) -> bool {
        match field {
            Field::Metric { key, .. } => {
                let mut metrics = self.model.metrics.iter();
                metrics.any(|metric| {
                    metric.key == *key && (self.about)(metric) && accept(metric.value)
                })
            }
            field => self.number(field).is_some_and(accept),
        }
    }

    fn text(&self, field: &Field) -> Option<Cow<'_, str>> {
        text(self.model, field)
    }
}

#[allow(clippy::cast_precision_loss, reason = "times in milliseconds are far below 2^53")]
fn time(model: &LoggedModel, field: &Field) -> Option<f64> {
    match field {
        Field::Attribute("creation_timestamp") => Some(model.created_at as f64),
        Field::Attribute("last_updated_timestamp") => Some(model.updated_at as f64),
        _ => None,
    }
}

fn text<'m>(model: &'m LoggedModel, field: &Field) -> Option<Cow<'m, str>> {
    let pair = |pairs: &'m [(String, String)], name: &str| {
        pairs.iter().find(|(key, _)| key == name).map(|(_, value)| Cow::Borrowed(value.as_str()))
    };
    match field {
        Field::Param(name) => pair(&model.params, name),
        Field::Tag(name) => pair(&model.tags, name),
        Field::Attribute(name) => match *name {
            "name" => Some(Cow::Borrowed(model.name.as_str())),
            "model_id" => Some(Cow::Owned(model.id.to_string())),
            "model_type" => Some(Cow::Borrowed(model.model_type.as_str())),
            "status" => Some(Cow::Borrowed(model.status.word())),
            "source_run_id" => model.source_run.as_deref().map(Cow::Borrowed),
            "experiment_id" => Some(Cow::Owned(model.experiment_id.to_string())),
            _ => None,
        },
        _ => None,
    }
}

/// Absent values last in either direction; without an ordering by time, the newest first.
fn compare(a: &LoggedModel, b: &LoggedModel, order: &[ModelOrder]) -> Ordering {
    for clause in order {
        let way = match (number(a, clause), number(b, clause)) {
            (Some(one), Some(two)) => one.total_cmp(&two),
            (None, None) => match (text(a, &clause.by.field), text(b, &clause.by.field)) {
                (Some(one), Some(two)) => one.cmp(&two),
                (one, two) => {
                    let absent = one.is_none().cmp(&two.is_none());
                    if absent.is_ne() {
                        return absent;
                    }
                    absent
                }
            },
            (one, two) => return one.is_none().cmp(&two.is_none()),
        };
        if way.is_ne() {
            return if clause.by.ascending { way } else { way.reverse() };
        }
    }
    b.created_at.cmp(&a.created_at).then_with(|| a.id.cmp(&b.id))
}

/// What a clause orders a model by, if it is a number: for a metric its latest value.
fn number(model: &LoggedModel, clause: &ModelOrder) -> Option<f64> {
    let Field::Metric { key, .. } = &clause.by.field else { return time(model, &clause.by.field) };
    let about = |metric: &&ModelMetric| {
        metric.key == *key
            && clause.dataset.as_ref().is_none_or(|dataset| is_about(metric, dataset))
    };
    let latest = model.metrics.iter().filter(about).max_by_key(|m| (m.timestamp, m.step));
    latest.map(|metric| metric.value).filter(|value| !value.is_nan())
}
