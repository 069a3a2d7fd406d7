//! The search itself.

use std::collections::HashMap;

use falaj_base::{Error, Result, code};
use falaj_mlflow::filter::{self, OrderBy, TRACES};
use falaj_mlflow::{Call, page};
use falaj_store::db::Tx;
use uuid::Uuid;

use super::budget::Budget;
use super::order::{Place, is_newest_first};
use super::scan::{Scan, Wanted};
use crate::assessment::store as assessments;
use crate::trace::{Assessed, Trace, store};
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
type Answer = (Vec<Assessed>, Option<String>);

impl Traces {
    pub(crate) async fn search_traces(&self, call: &Call, search: TraceSearch) -> Result<Answer> {
        let wanted = Wanted::new(filter::parse(search.filter.as_deref().unwrap_or(""), &TRACES)?);
        let order = filter::parse_order(&search.order, &TRACES)?;
        let after = page::decode::<Place>(search.page_token.as_deref())?;
        if after.as_ref().is_some_and(|after| after.keys.len() != order.len()) {
            let text = "Invalid page token: it belongs to another ordering";
            return Err(Error::new(&code::INVALID_INPUT, text).at("page_token"));
        }
        let experiments = self.experiments(call, &search.experiments, &TRACE_READ).await?;
        let budget = Budget::new(self.config(), wanted.looks.spans);
        let room = self.config().max_search_reply.as_usize();
        self.db()
            .read(move |tx| {
                let limit = search.limit;
                let walk = Walk { wanted, order, after, limit, room, budget, experiments };
                let page =
                    if is_newest_first(&walk.order) { walk.newest(tx)? } else { walk.ordered(tx)? };
                let (found, next) = page.with_assessments(tx, room)?;
                Ok((found, next.map(|place| page::encode(&place)).transpose()?))
            })
            .await
    }
}

/// One trace of a page: its place, and what it measures.
struct Found<T> {
    place: Place,
    trace: T,
    weight: usize,
}

/// The traces of a page, and where the next one begins if there is one.
struct Page {
    found: Vec<Found<Trace>>,
    next: Option<Place>,
}

impl Page {
    /// Adds what is said of the traces. If that makes the page too large, it ends earlier.
    fn with_assessments(
        mut self,
        tx: &mut Tx<'_>,
        room: usize,
    ) -> Result<(Vec<Assessed>, Option<Place>)> {
        let mut numbers: Vec<Uuid> = self.found.iter().map(|found| found.trace.no).collect();
        let said = assessments::weights(tx, &numbers)?;
        for found in &mut self.found {
            found.weight += said.get(&found.trace.no).copied().unwrap_or(0);
        }
        let count = fitting(&self.found, self.found.len(), room);
        if count < self.found.len() {
            self.found.truncate(count);
            numbers.truncate(count);
            self.next = self.found.last().map(|last| last.place.clone());
        }
        let mut said = assessments::of_traces(tx, &numbers)?;
        let with = |found: Found<Trace>| {
            let said = said.remove(&found.trace.no).unwrap_or_default();
            (found.trace, said)
        };
        Ok((self.found.into_iter().map(with).collect(), self.next))
    }
}

/// How many of these make up a page: so many at most, and no more bytes than there is room for. One
/// comes whatever it measures, since a page without any would never end.
fn fitting<T>(found: &[Found<T>], limit: usize, room: usize) -> usize {
    let mut bytes = 0_usize;
    let fits = |found: &&Found<T>| {
        bytes = bytes.saturating_add(found.weight + found.place.weight());
        bytes <= room
    };
    let count = found.iter().take(limit).take_while(fits).count();
    count.max(1).min(found.len())
}

struct Walk {
    wanted: Wanted,
    order: Vec<OrderBy>,
    after: Option<Place>,
    limit: usize,
    /// How many bytes a page holds.
    room: usize,
    budget: Budget,
    experiments: Vec<i64>,
}

impl Walk {
    /// In the order of the walk: it stops when the page is full, or when it has looked at enough.
    fn newest(mut self, tx: &mut Tx<'_>) -> Result<Page> {
        let after = self.after.map(|after| (after.timestamp, after.id));
        let mut scan = Scan::new(&self.experiments, self.wanted.times(), after.as_ref());
        let (mut found, mut next): (Vec<Found<Trace>>, _) = (Vec::new(), None);
        let mut bytes = 0_usize;
        loop {
            let Some((trace, weight)) = scan.next(tx)? else {
                return Ok(Page { found, next: None });
            };
            // At least one is looked at, or the walk would never end.
            if next.is_some() && self.budget.is_spent() {
                return Ok(Page { found, next });
            }
            self.budget.trace(weight);
            let place = Place::of(&trace, &self.order);
            if self.wanted.matches(tx, &trace, &mut self.budget)? {
                bytes = bytes.saturating_add(weight);
                if found.len() == self.limit || (bytes > self.room && !found.is_empty()) {
                    return Ok(Page { found, next });
                }
                found.push(Found { place: place.clone(), trace, weight });
            }
            // Behind the last one looked at, unless the page ends before it.
            next = Some(place);
        }
    }

    /// In any other order all must be seen; of those, the places of one page are kept at a time.
    fn ordered(mut self, tx: &mut Tx<'_>) -> Result<Page> {
        let mut scan = Scan::new(&self.experiments, self.wanted.times(), None);
        let mut kept: Vec<Found<Uuid>> = Vec::new();
        let mut bytes = 0_usize;
        while let Some((trace, weight)) = scan.next(tx)? {
            self.budget.whole(weight)?;
            let place = Place::of(&trace, &self.order);
            let later = |after: &Place| place.compare(after, &self.order).is_gt();
            if self.after.as_ref().is_none_or(later)
                && self.wanted.matches(tx, &trace, &mut self.budget)?
            {
                bytes = bytes.saturating_add(place.weight());
                kept.push(Found { place, trace: trace.no, weight });
            }
            if kept.len() > 2 * self.limit + 64 || bytes > 2 * self.room {
                self.shorten(&mut kept);
                bytes = kept.iter().map(|found| found.place.weight()).sum();
            }
        }
        let count = self.shorten(&mut kept);
        let more = kept.len() > count;
        kept.truncate(count);
        let next = kept.last().filter(|_| more).map(|last| last.place.clone());
        let numbers: Vec<Uuid> = kept.iter().map(|found| found.trace).collect();
        let loaded = store::load(tx, &numbers)?;
        let mut loaded: HashMap<Uuid, Trace> =
            loaded.into_iter().map(|trace| (trace.no, trace)).collect();
        let whole = |found: Found<Uuid>| {
            let trace = loaded.remove(&found.trace)?;
            Some(Found { place: found.place, trace, weight: found.weight })
        };
        Ok(Page { found: kept.into_iter().filter_map(whole).collect(), next })
    }

    /// A page, and one more: that there is another page shows in it. Gives how many the page has.
    fn shorten(&self, kept: &mut Vec<Found<Uuid>>) -> usize {
        kept.sort_by(|one, two| one.place.compare(&two.place, &self.order));
        let count = fitting(kept, self.limit, self.room);
        kept.truncate(count + 1);
        count
    }
}
