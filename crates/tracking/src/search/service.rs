//! The search verb.

use std::sync::{PoisonError, RwLockWriteGuard};

use falaj_base::{Error, Result, code};
use falaj_mlflow::error::refused;
use falaj_mlflow::filter::{self, Expr, Field, OrderBy};
use falaj_mlflow::{Call, page};
use falaj_store::db::Tx;

use super::datasets::Datasets;
use super::frame::{Frame, loaded_as};
use super::rank::{self, Place};
use super::select::select;
use crate::access::resource;
use crate::experiment::{ExperimentId, ViewType, store as experiments};
use crate::key::{self, KeyKind};
use crate::run::load::load_some;
use crate::run::{Projection, Run, RunId};
use crate::{RUN_READ, Tracking};

/// How many columns one search may ask for.
const MOST_FIELDS: usize = 64;

/// What is looked for.
#[derive(Clone, Debug, Default)]
pub struct RunSearch {
    pub experiments: Vec<String>,
    pub filter: Option<String>,
    pub order_by: Vec<String>,
    pub view: ViewType,
    pub limit: usize,
    pub page_token: Option<String>,
    /// Which parts of the runs are wanted.
    pub projection: Projection,
}

/// A search made ready: parsed and checked.
struct Plan {
    filter: Option<Expr>,
    order: Vec<OrderBy>,
    view: ViewType,
    limit: usize,
    after: Option<Place>,
    projection: Projection,
}

impl Tracking {
    /// The runs that match, in order, and the token of the next page.
    pub async fn search_runs(
        &self,
        call: &Call,
        search: RunSearch,
    ) -> Result<(Vec<Run>, Option<String>)> {
        let plan = Plan::new(&search)?;
        let experiments = self.searchable(call, &search.experiments).await?;
        let this = self.clone();
        let found = self.db().read(move |tx| this.search_in(tx, &experiments, plan)).await;
        self.0.frames.trim();
        found
    }

    /// The numbers of those experiments that exist here and may be read; others hold nothing.
    async fn searchable(&self, call: &Call, ids: &[String]) -> Result<Vec<i64>> {
        let ids = ids.iter().map(|id| id.parse()).collect::<Result<Vec<ExperimentId>>>()?;
        let project = call.place.id;
        call.ctx.filtered(&RUN_READ);
        let mut ids: Vec<ExperimentId> = ids
            .into_iter()
            .filter(|id| call.ctx.allows(&RUN_READ, &resource(&call.place, *id, false)))
            .collect();
        ids.sort_unstable();
        ids.dedup();
        self.db()
            .read(move |tx| {
                let mut numbers = Vec::with_capacity(ids.len());
                for id in ids {
                    numbers.extend(experiments::number(tx, project, id)?);
                }
                Ok(numbers)
            })
            .await
    }

    fn search_in(
        &self,
        tx: &mut Tx<'_>,
        experiments: &[i64],
        plan: Plan,
    ) -> Result<(Vec<Run>, Option<String>)> {
        let mut found: Vec<(RunId, Place)> = Vec::new();
        for experiment in experiments {
            found.extend(self.search_one(tx, *experiment, &plan)?);
        }
        if experiments.len() > 1 {
            found.sort_by(|(_, a), (_, b)| rank::compare(a, b, &plan.order));
        }
        let ids: Vec<RunId> = found.iter().take(plan.limit).map(|(id, _)| *id).collect();
        // Runs differ in size by orders of magnitude: a page ends where its bytes end, too.
        let most = self.config().max_search_reply.as_usize();
        let (runs, shown) = load_some(tx, &ids, &plan.projection, most)?;
        let last = shown.checked_sub(1).and_then(|at| found.get(at));
        let next = match last {
            Some((_, last)) if found.len() > shown => Some(page::encode(last)?),
            _ => None,
        };
        Ok((runs, next))
    }

    /// The first runs of one experiment: one more than the page holds, to know whether it ends.
    fn search_one(
        &self,
        tx: &mut Tx<'_>,
        experiment: i64,
        plan: &Plan,
    ) -> Result<Vec<(RunId, Place)>> {
        let (filter, order, fields) = plan.decided(tx, experiment)?;
        let datasets = if fields.iter().any(|field| matches!(field, Field::Dataset(_))) {
            Datasets::read(tx, experiment)?
        } else {
            Datasets::default()
        };
        let shared = self.0.frames.get(experiment);
        let mut frame = shared.write().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = frame.refresh(tx, experiment, &fields) {
            // Half a refresh is no state to search in.
            *frame = Frame::default();
            return Err(error);
        }
        // Without a gap in which another search could let a column go.
        let frame = RwLockWriteGuard::downgrade(frame);
        let chosen = select(&frame, &datasets, filter.as_ref(), plan.view);
        Ok(rank::first(&frame, &chosen, &order, plan.after.as_ref(), plan.limit + 1))
    }
}

impl Plan {
    fn new(search: &RunSearch) -> Result<Self> {
        let order = filter::parse_order(&search.order_by, &filter::RUNS)?;
        let after: Option<Place> = page::decode(search.page_token.as_deref())?;
        if after.as_ref().is_some_and(|after| after.keys.len() != order.len()) {
            let text = "Invalid page token: it belongs to a search with another ordering";
            return Err(Error::new(&code::INVALID_INPUT, text).at("page_token"));
        }
        Ok(Self {
            filter: filter::parse(search.filter.as_deref().unwrap_or(""), &filter::RUNS)?,
            order,
            view: search.view,
            limit: search.limit,
            after,
            projection: search.projection.clone(),
        })
    }

    /// The filter and ordering in the terms of one experiment, where it is known whether a metric
    /// is called `x.min` or `min` of `x` is meant; and the columns they need.
    fn decided(
        &self,
        tx: &mut Tx<'_>,
        experiment: i64,
    ) -> Result<(Option<Expr>, Vec<OrderBy>, Vec<Field>)> {
        let (mut filter, mut order) = (self.filter.clone(), self.order.clone());
        let mut failed = None;
        let mut known = |name: &str| match key::find(tx, experiment, KeyKind::Metric, name) {
            Ok(found) => found.is_some(),
            Err(error) => {
                failed = Some(error);
                false
            }
        };
        if let Some(filter) = &mut filter {
            filter.decide(&mut known);
        }
        for by in &mut order {
            by.field.decide(&mut known);
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let mut fields: Vec<Field> = order.iter().map(|by| loaded_as(&by.field)).collect();
        if let Some(filter) = &filter {
            filter.each(&mut |comparison| fields.push(loaded_as(&comparison.field)));
        }
        fields.sort_unstable();
        fields.dedup();
        if fields.len() > MOST_FIELDS {
            return Err(refused(format!(
                "a search looks at {MOST_FIELDS} different fields at most; this one names {}",
                fields.len()
            )));
        }
        Ok((filter, order, fields))
    }
}
