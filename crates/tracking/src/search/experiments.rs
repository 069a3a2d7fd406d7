//! Searching experiments: few enough to look at each.

use std::borrow::Cow;
use std::cmp::Ordering;

use falaj_base::Result;
use falaj_mlflow::filter::{self, Field, OrderBy, Row};
use falaj_mlflow::{Call, page};
use serde::{Deserialize, Serialize};

use crate::Tracking;
use crate::experiment::{Experiment, ViewType};

/// What is looked for.
#[derive(Clone, Debug, Default)]
pub(super) struct ExperimentSearch {
    pub(super) filter: Option<String>,
    pub(super) order_by: Vec<String>,
    pub(super) view: ViewType,
    pub(super) limit: usize,
    pub(super) page_token: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Offset {
    offset: usize,
}

impl Tracking {
    pub(super) async fn search_experiments(
        &self,
        call: &Call,
        search: ExperimentSearch,
    ) -> Result<(Vec<Experiment>, Option<String>)> {
        let wanted = filter::parse(search.filter.as_deref().unwrap_or(""), &filter::EXPERIMENTS)?;
        let order = filter::parse_order(&search.order_by, &filter::EXPERIMENTS)?;
        let start: usize =
            page::decode::<Offset>(search.page_token.as_deref())?.map_or(0, |at| at.offset);
        let mut found = self.visible_experiments(call).await?;
        found.retain(|experiment| {
            search.view.shows(experiment.stage)
                && wanted.as_ref().is_none_or(|wanted| wanted.matches(&Seen(experiment)))
        });
        found.sort_by(|a, b| compare(a, b, &order));
        let end = start.saturating_add(search.limit);
        let next =
            (found.len() > end).then(|| page::encode(&Offset { offset: end })).transpose()?;
        Ok((found.into_iter().skip(start).take(search.limit).collect(), next))
    }
}

/// Without an ordering the newest come first; equal ones by id.
fn compare(a: &Experiment, b: &Experiment, order: &[OrderBy]) -> Ordering {
    let clause = |by: &OrderBy| {
        let (one, two) = (Seen(a), Seen(b));
        let way = match (one.number(&by.field), two.number(&by.field)) {
            (Some(one), Some(two)) => one.total_cmp(&two),
            _ => one.text(&by.field).cmp(&two.text(&by.field)),
        };
        if by.ascending { way } else { way.reverse() }
    };
    let decided = if order.is_empty() {
        b.created_at.cmp(&a.created_at)
    } else {
        order.iter().map(clause).find(|way| way.is_ne()).unwrap_or(Ordering::Equal)
    };
    decided.then_with(|| a.id.cmp(&b.id))
}

/// An experiment as a filter sees it.
struct Seen<'e>(&'e Experiment);

impl Row for Seen<'_> {
    #[allow(clippy::cast_precision_loss, reason = "times and ids are far below 2^53")]
    fn number(&self, field: &Field) -> Option<f64> {
        match field {
            Field::Attribute("creation_time") => Some(self.0.created_at as f64),
            Field::Attribute("last_update_time") => Some(self.0.updated_at as f64),
            Field::Attribute("experiment_id") => Some(self.0.id.0 as f64),
            _ => None,
        }
    }

    fn text(&self, field: &Field) -> Option<Cow<'_, str>> {
        match field {
            Field::Attribute("name") => Some(Cow::Borrowed(&self.0.name)),
            Field::Attribute("experiment_id") => Some(Cow::Owned(self.0.id.to_string())),
            Field::Tag(name) => {
                let tag = self.0.tags.iter().find(|(key, _)| key == name);
                tag.map(|(_, value)| Cow::Borrowed(value.as_str()))
            }
            _ => None,
        }
    }
}
