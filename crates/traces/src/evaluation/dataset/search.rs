//! Searching evaluation datasets: few enough to look at each. Only what decides their order is kept
//! of those that are found, until it is known which are on the page.

use std::borrow::Cow;
use std::cmp::Ordering;

use falaj_base::Result;
use falaj_mlflow::filter::{self, EVALUATION_DATASETS, Field, OrderBy, Row};
use falaj_mlflow::{Call, page};
use serde::{Deserialize, Serialize};

use super::dataset::{Dataset, DatasetId};
use super::service::{Placed, seen};
use super::store;
use crate::{EVALUATION_READ, Traces};

/// What is looked for.
#[derive(Clone, Debug, Default)]
pub(super) struct DatasetSearch {
    pub(super) experiments: Vec<String>,
    pub(super) filter: Option<String>,
    pub(super) order_by: Vec<String>,
    pub(super) limit: usize,
    pub(super) page_token: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Offset {
    offset: usize,
}

/// What decides the order, and how much the whole of it is.
struct Found {
    id: DatasetId,
    name: String,
    created_at: i64,
    updated_at: i64,
    weight: usize,
}

impl Traces {
    pub(super) async fn search_datasets(
        &self,
        call: &Call,
        search: DatasetSearch,
    ) -> Result<(Vec<Placed>, Option<String>)> {
        let text = search.filter.as_deref().unwrap_or("");
        let wanted = filter::parse(text, &EVALUATION_DATASETS)?;
        let order = filter::parse_order(&search.order_by, &EVALUATION_DATASETS)?;
        let start = page::decode::<Offset>(search.page_token.as_deref())?.map_or(0, |at| at.offset);
        call.ctx.filtered(&EVALUATION_READ);
        let experiments = match search.experiments.as_slice() {
            [] => None,
            named => {
                let numbers = self.experiments(call, named, &EVALUATION_READ).await?;
                if numbers.is_empty() {
                    return Ok((Vec::new(), None));
                }
                Some(numbers)
            }
        };
        let room = self.config().max_search_reply.as_usize();
        let call = call.clone();
        self.db()
            .read(move |tx| {
                let project = call.place.id;
                let mut found = Vec::new();
                store::each(tx, project, experiments.as_deref(), |dataset, weight| {
                    let fits = wanted.as_ref().is_none_or(|wanted| wanted.matches(&Seen(&dataset)));
                    let resource = dataset.resource(&call.place);
                    if fits && call.ctx.allows(&EVALUATION_READ, &resource) {
                        let Dataset { id, name, created_at, updated_at, .. } = dataset;
                        found.push(Found { id, name, created_at, updated_at, weight });
                    }
                    Ok(())
                })?;
                found.sort_by(|a, b| compare(a, b, &order));
                let (mut page, mut taken) = (Vec::new(), 0_usize);
                for one in found.iter().skip(start).take(search.limit) {
                    taken = taken.saturating_add(one.weight);
                    if taken > room && !page.is_empty() {
                        break;
                    }
                    page.push(one.id.clone());
                }
                let end = start.saturating_add(page.len());
                let next = (!page.is_empty() && found.len() > end)
                    .then(|| page::encode(&Offset { offset: end }))
                    .transpose()?;
                let mut places = store::experiments_of(tx, &page)?;
                let mut shown = Vec::with_capacity(page.len());
                for id in &page {
                    if let Some(dataset) = store::find(tx, project, id)? {
                        let places = places.remove(id.as_str()).unwrap_or_default();
                        shown.push((dataset, seen(&call, places)));
                    }
                }
                Ok((shown, next))
            })
            .await
    }
}

/// Without an ordering the newest come first; equal ones by id, the last one first.
fn compare(a: &Found, b: &Found, order: &[OrderBy]) -> Ordering {
    let clause = |by: &OrderBy| {
        let way = match &by.field {
            Field::Attribute("name") => a.name.cmp(&b.name),
            Field::Attribute("created_time") => a.created_at.cmp(&b.created_at),
            _ => a.updated_at.cmp(&b.updated_at),
        };
        if by.ascending { way } else { way.reverse() }
    };
    let decided = if order.is_empty() {
        b.created_at.cmp(&a.created_at)
    } else {
        order.iter().map(clause).find(|way| way.is_ne()).unwrap_or(Ordering::Equal)
    };
    decided.then_with(|| b.id.cmp(&a.id))
}

/// A dataset as a filter sees it.
struct Seen<'d>(&'d Dataset);

impl Row for Seen<'_> {
    #[allow(clippy::cast_precision_loss, reason = "times are far below 2^53")]
    fn number(&self, field: &Field) -> Option<f64> {
        match field {
            Field::Attribute("created_time") => Some(self.0.created_at as f64),
            Field::Attribute("last_update_time") => Some(self.0.updated_at as f64),
            _ => None,
        }
    }

    fn text(&self, field: &Field) -> Option<Cow<'_, str>> {
        let text = match field {
            Field::Attribute("name") => Some(&self.0.name),
            Field::Attribute("created_by") => self.0.created_by.as_ref(),
            Field::Attribute("last_updated_by") => self.0.updated_by.as_ref(),
            Field::Tag(key) => self.0.tags.get(key),
            _ => None,
        };
        text.map(|text| Cow::Borrowed(text.as_str()))
    }
}
