//! Searching issues: few enough to look at each. Only what decides their order is kept of those that
//! are found, until it is known which are on the page.

use std::borrow::Cow;
use std::cmp::Reverse;

use falaj_base::{Error, Result, code};
use falaj_mlflow::filter::{self, Field, ISSUES, Row};
use falaj_mlflow::{Call, page};
use falaj_tracking::ExperimentId;
use falaj_tracking::access::resource;
use serde::{Deserialize, Serialize};

use super::issue::{Issue, Severity};
use super::store::{self, Placed};
use crate::{TRACE_READ, Traces};

/// What is looked for.
#[derive(Clone, Debug, Default)]
pub(super) struct IssueSearch {
    /// One experiment, or all that the caller may see.
    pub(super) experiment: Option<ExperimentId>,
    pub(super) filter: Option<String>,
    pub(super) limit: usize,
    pub(super) page_token: Option<String>,
    /// Whether the traces of each are to be counted.
    pub(super) counted: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Offset {
    offset: usize,
}

/// An issue, and how many traces are cases of it if that was asked.
pub(super) type Counted = (Placed, Option<usize>);

/// The worst first, then those with most traces, then the newest.
type Rank = Reverse<(Option<Severity>, usize, i64, String)>;

impl Traces {
    pub(super) async fn search_issues(
        &self,
        call: &Call,
        search: IssueSearch,
    ) -> Result<(Vec<Counted>, Option<String>)> {
        let wanted = filter::parse(search.filter.as_deref().unwrap_or(""), &ISSUES)?;
        let start = page::decode::<Offset>(search.page_token.as_deref())?.map_or(0, |at| at.offset);
        call.ctx.filtered(&TRACE_READ);
        let experiments = if let Some(id) = search.experiment {
            self.experiments(call, &[id.to_string()], &TRACE_READ).await?
        } else {
            let mut here = self.tracking().active_experiments(call).await?;
            let visible = |id| call.ctx.allows(&TRACE_READ, &resource(&call.place, id, false));
            here.retain(|(_, id)| visible(*id));
            here.into_iter().map(|(no, _)| no).collect()
        };
        let room = self.config().max_search_reply.as_usize();
        let most = self.config().max_search_size.as_usize();
        let project = call.place.id;
        self.db()
            .read(move |tx| {
                let counts = if search.counted {
                    Some(store::trace_counts(tx, &experiments, most, || too_many(most))?)
                } else {
                    None
                };
                let count = |id: &str| counts.as_ref().and_then(|counts| counts.get(id)).copied();
                let mut found: Vec<(Rank, usize)> = Vec::new();
                store::each(tx, &experiments, |placed, weight| {
                    let issue = placed.issue;
                    if wanted.as_ref().is_none_or(|wanted| wanted.matches(&Seen(&issue))) {
                        let cases = count(&issue.id).unwrap_or_default();
                        let rank = (issue.severity, cases, issue.created_at, issue.id);
                        found.push((Reverse(rank), weight));
                    }
                    Ok(())
                })?;
                found.sort_unstable();
                let (mut page, mut taken) = (Vec::new(), 0_usize);
                for (Reverse((_, _, _, id)), weight) in found.iter().skip(start).take(search.limit)
                {
                    taken = taken.saturating_add(*weight);
                    if taken > room && !page.is_empty() {
                        break;
                    }
                    if let Some(placed) = store::find(tx, project, id)? {
                        let cases = search.counted.then(|| count(id).unwrap_or_default());
                        page.push((placed, cases));
                    }
                }
                let end = start.saturating_add(page.len());
                let next = (!page.is_empty() && found.len() > end)
                    .then(|| page::encode(&Offset { offset: end }))
                    .transpose()?;
                Ok((page, next))
            })
            .await
    }
}

fn too_many(most: usize) -> Error {
    let text = format!(
        "counting the traces of issues would read more than {most} bytes \
         (`traces.max_search_size`); name an experiment, or ask without `include_trace_count`"
    );
    Error::new(&code::INVALID_INPUT, text).at("include_trace_count")
}

/// An issue as a filter sees it.
struct Seen<'i>(&'i Issue);

impl Row for Seen<'_> {
    fn number(&self, _: &Field) -> Option<f64> {
        None
    }

    fn text(&self, field: &Field) -> Option<Cow<'_, str>> {
        match field {
            Field::Attribute("status") => Some(Cow::Borrowed(self.0.status.as_str())),
            Field::Attribute("source_run_id") => self.0.source_run.as_deref().map(Cow::Borrowed),
            _ => None,
        }
    }
}
