//! The search itself.

use falaj_base::{Error, Result, code};
use falaj_mlflow::filter::{self, OrderBy, TRACES};
use falaj_mlflow::{Call, page};
use falaj_store::db::Tx;
use uuid::Uuid;

use super::order::{Place, is_newest_first};
use super::scan::{Scan, Wanted};
use crate::assessment::store as assessments;
use crate::trace::{Assessed, Trace};
use crate::{TRACE_READ, Traces};

#[derive(Clone, Debug, Default)]
pub(crate) struct TraceSearch {
    pub(crate) experiments: Vec<String>,
    pub(crate) filter: Option<String>,
    pub(crate) order: Vec<String>,
    pub(crate) limit: usize,
    pub(crate) page_token: Option<String>,
}

/// A page, and where the next one begins.
type Found = (Vec<Assessed>, Option<String>);

impl Traces {
    pub(crate) async fn search_traces(&self, call: &Call, search: TraceSearch) -> Result<Found> {
        let wanted = Wanted::new(filter::parse(search.filter.as_deref().unwrap_or(""), &TRACES)?);
        let order = filter::parse_order(&search.order, &TRACES)?;
        let after = page::decode::<Place>(search.page_token.as_deref())?;
        if after.as_ref().is_some_and(|after| after.keys.len() != order.len()) {
            let text = "Invalid page token: it belongs to another ordering";
            return Err(Error::new(&code::INVALID_INPUT, text).at("page_token"));
        }
        let experiments = self.experiments(call, &search.experiments, &TRACE_READ).await?;
        let budget = self.budget(&wanted);
        self.db()
            .read(move |tx| {
                let walk = Walk { wanted, order, after, limit: search.limit, budget, experiments };
                let (traces, next) =
                    if is_newest_first(&walk.order) { walk.newest(tx)? } else { walk.ordered(tx)? };
                let next = next.map(|place| page::encode(&place)).transpose()?;
                let numbers: Vec<Uuid> = traces.iter().map(|trace| trace.no).collect();
                let mut said = assessments::of_traces(tx, &numbers)?;
                let with = |trace: Trace| {
                    let said = said.remove(&trace.no).unwrap_or_default();
                    (trace, said)
                };
                Ok((traces.into_iter().map(with).collect(), next))
            })
            .await
    }

    /// How many traces a search may look at.
    pub(crate) fn budget(&self, wanted: &Wanted) -> usize {
        let config = self.config();
        if wanted.looks.spans { config.max_search_span_traces } else { config.max_search_traces }
    }
}

struct Walk {
    wanted: Wanted,
    order: Vec<OrderBy>,
    after: Option<Place>,
    limit: usize,
    budget: usize,
    experiments: Vec<i64>,
}

impl Walk {
    /// In the order of the walk: it stops when the page is full, or when it has looked at enough.
    fn newest(self, tx: &mut Tx<'_>) -> Result<(Vec<Trace>, Option<Place>)> {
        let after = self.after.map(|after| (after.timestamp, after.id));
        let mut scan = Scan::new(&self.experiments, self.wanted.times(), after.as_ref());
        let (mut found, mut last) = (Vec::new(), None);
        for _ in 0..self.budget {
            let Some(trace) = scan.next(tx)? else { return Ok((found, None)) };
            let place = Place::of(&trace, &self.order);
            if self.wanted.matches(tx, &trace)? {
                if found.len() == self.limit {
                    return Ok((found, last));
                }
                found.push(trace);
            }
            // Behind the last one looked at, unless the page ends before it.
            last = Some(place);
        }
        Ok((found, last))
    }

    /// In any other order all must be seen; of those, one page is kept at a time.
    fn ordered(self, tx: &mut Tx<'_>) -> Result<(Vec<Trace>, Option<Place>)> {
        let mut scan = Scan::new(&self.experiments, self.wanted.times(), None);
        let mut kept: Vec<(Place, Trace)> = Vec::new();
        let mut looked = 0;
        while let Some(trace) = scan.next(tx)? {
            looked += 1;
            if looked > self.budget {
                return Err(too_many(self.budget));
            }
            let place = Place::of(&trace, &self.order);
            let later = |after: &Place| place.compare(after, &self.order).is_gt();
            if self.after.as_ref().is_none_or(later) && self.wanted.matches(tx, &trace)? {
                kept.push((place, trace));
            }
            if kept.len() > 2 * self.limit + 64 {
                self.shorten(&mut kept);
            }
        }
        self.shorten(&mut kept);
        let more = kept.len() > self.limit;
        kept.truncate(self.limit);
        let last = kept.last().filter(|_| more).map(|(place, _)| place.clone());
        Ok((kept.into_iter().map(|(_, trace)| trace).collect(), last))
    }

    /// One more than a page: that there is another page shows in it.
    fn shorten(&self, kept: &mut Vec<(Place, Trace)>) {
        kept.sort_by(|(one, _), (two, _)| one.compare(two, &self.order));
        kept.truncate(self.limit + 1);
    }
}

pub(super) fn too_many(budget: usize) -> Error {
    let text = format!(
        "the search would look at more than {budget} traces (`traces.max_search_traces`, \
         `traces.max_search_span_traces`); narrow it by `timestamp_ms`"
    );
    Error::new(&code::INVALID_INPUT, text).at("filter")
}
