//! Storing spans, and what they tell of their traces.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use falaj_base::{ProjectId, Result};
use falaj_mlflow::Call;
use falaj_mlflow::names::check_key;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use falaj_tracking::ExperimentId;
use falaj_tracking::access::resource;
use falaj_tracking::experiment::{Experiment, require_active};
use serde_json::{Map, Value, json};

use super::id::TraceId;
use super::link::LinkKind;
use super::service::{again_if_moved, empty, lock, moved};
use super::store;
use super::tags::merge;
use super::trace::{
    COST, NAME_TAG, Pairs, SESSION, SPANS_HERE, SPANS_TAG, State, TOKENS, Trace, USER,
};
use crate::config::TracesConfig;
use crate::otlp::{Batch, Received};
use crate::span::store as spans;
use crate::span::usage::{self, total};
use crate::{TRACE_WRITE, Traces};

/// How many ids an event names.
const NAMED: usize = 100;

/// What became of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logged {
    pub spans: usize,
    pub rejected: usize,
    pub why: Option<String>,
}

impl Traces {
    /// Stores the spans of one request, and makes the traces that are new. All of them commit
    /// together.
    pub(crate) async fn log_spans(
        &self,
        call: &Call,
        experiment: ExperimentId,
        batch: Batch,
        run: Option<String>,
    ) -> Result<Logged> {
        again_if_moved(|| self.try_log_spans(call, experiment, batch.clone(), run.clone())).await
    }

    async fn try_log_spans(
        &self,
        call: &Call,
        experiment: ExperimentId,
        batch: Batch,
        run: Option<String>,
    ) -> Result<Logged> {
        let experiment = self.tracking().experiment(call, experiment, &TRACE_WRITE).await?;
        require_active(&experiment)?;
        let run = match run {
            Some(run) => Some(self.tracking().home(call, &run, &TRACE_WRITE).await?.run),
            None => None,
        };
        let mut by_trace: BTreeMap<TraceId, Vec<Received>> = BTreeMap::new();
        for span in batch.spans {
            by_trace.entry(span.trace.clone()).or_default().push(span);
        }
        // A span goes to its trace, wherever that is; the caller must be allowed to write there.
        let homes = self.addresses(call, by_trace.keys().cloned().collect()).await?;
        let mut seen = vec![experiment.no];
        for address in homes {
            if !seen.contains(&address.experiment) {
                let resource = resource(&call.place, address.experiment_id, false);
                call.ctx.authorize(&TRACE_WRITE, &resource).await?;
                seen.push(address.experiment);
            }
        }
        let resource = resource(&call.place, experiment.id, false);
        let (ctx, project, limits) = (call.ctx.clone(), call.place.id, self.config().clone());
        let mut outcome = Logged { spans: 0, rejected: batch.rejected, why: batch.why };
        self.db()
            .write(move |tx| {
                lock(tx, project, by_trace.keys())?;
                let mut names = Vec::new();
                for (id, spans) in by_trace {
                    let mut write = Write { project, experiment: &experiment, limits: &limits };
                    let ended = spans.iter().any(|span| span.parent.is_none());
                    let trace = write.spans(tx, id, spans, &seen, &mut outcome)?;
                    if let (Some(run), true) = (&run, ended) {
                        store::add_link(tx, (project, &trace.id), LinkKind::Run, &run.to_string())?;
                    }
                    names.push(trace.id.to_string());
                }
                let count = names.len();
                names.truncate(NAMED);
                let data = json!({
                    "experiment_id": experiment.id.to_string(),
                    "trace_ids": names,
                    "traces": count,
                    "spans": outcome.spans,
                });
                let change = Change::new(&TRACE_WRITE, &resource)
                    .event("trace.spans-logged", &data)
                    .after(&data)
                    .detail("traces", count)
                    .detail("spans", outcome.spans);
                tx.record(&ctx, change)?;
                Ok(outcome)
            })
            .await
    }
}

struct Write<'a> {
    project: ProjectId,
    experiment: &'a Experiment,
    limits: &'a TracesConfig,
}

impl Write<'_> {
    fn spans(
        &mut self,
        tx: &mut Tx<'_>,
        id: TraceId,
        spans: Vec<Received>,
        seen: &[i64],
        outcome: &mut Logged,
    ) -> Result<Trace> {
        let found = store::find(tx, self.project, &id)?;
        let is_new = found.is_none();
        let mut trace = found.unwrap_or_else(|| Trace {
            timestamp: i64::MAX,
            ..empty(self.project, self.experiment, id)
        });
        if !seen.contains(&trace.experiment) {
            return Err(moved(&trace.id));
        }
        let spans = self.fitting(tx, &mut trace, is_new, last_of_each(spans), outcome)?;
        if is_new {
            let placeholder = Trace { timestamp: 0, ..trace.clone() };
            store::insert(tx, self.project, &placeholder)?;
        }
        spans::write(tx, trace.no, &spans)?;
        outcome.spans += spans.len();
        observe(&mut trace, &spans);
        let has = |numbers: fn(&Received) -> bool| spans.iter().any(numbers);
        if has(|span| span.facts.tokens.is_some() || span.facts.cost.is_some()) {
            add_up(tx, &mut trace)?;
        }
        if trace.tags.len() > self.limits.max_tags {
            trace.tags =
                std::mem::take(&mut trace.tags).into_iter().take(self.limits.max_tags).collect();
        }
        trace.tags.insert(SPANS_TAG.to_owned(), SPANS_HERE.to_owned());
        store::update(tx, &trace)?;
        Ok(trace)
    }

    /// Those of the spans that the trace still has room for.
    fn fitting(
        &self,
        tx: &mut Tx<'_>,
        trace: &mut Trace,
        is_new: bool,
        spans: Vec<Received>,
        outcome: &mut Logged,
    ) -> Result<Vec<Received>> {
        let most_spans = i64::try_from(self.limits.max_trace_spans).unwrap_or(i64::MAX);
        let most_size = i64::try_from(self.limits.max_trace_size.as_usize()).unwrap_or(i64::MAX);
        let mut kept = Vec::with_capacity(spans.len());
        for span in spans {
            let old = if is_new { None } else { spans::size(tx, trace.no, &span.id)? };
            let count = trace.spans + i64::from(old.is_none());
            let length = i64::try_from(span.content.len()).unwrap_or(i64::MAX);
            let size = trace.size.saturating_add(length) - old.unwrap_or(0);
            if count > most_spans || size > most_size {
                outcome.rejected += 1;
                outcome.why.get_or_insert_with(|| full(&trace.id, most_spans, most_size));
                continue;
            }
            (trace.spans, trace.size) = (count, size);
            kept.push(span);
        }
        Ok(kept)
    }
}

fn full(id: &TraceId, spans: i64, size: i64) -> String {
    format!(
        "the trace {id} is full: {spans} spans (`traces.max_trace_spans`) and {size} bytes \
         (`traces.max_trace_size`) are allowed"
    )
}

/// Of spans that came twice in one request, the last.
fn last_of_each(spans: Vec<Received>) -> Vec<Received> {
    let mut last: HashMap<Vec<u8>, usize> = HashMap::new();
    for (at, span) in spans.iter().enumerate() {
        last.insert(span.id.clone(), at);
    }
    let numbered = spans.into_iter().enumerate();
    numbered.filter(|(at, span)| last.get(&span.id) == Some(at)).map(|(_, span)| span).collect()
}

/// What the spans tell, as far as the client has not said it of the whole trace.
fn observe(trace: &mut Trace, spans: &[Received]) {
    let milliseconds = |nanos: u64| i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX);
    if !trace.is_final() {
        let end = trace.duration.map(|duration| trace.timestamp.saturating_add(duration));
        let start = spans.iter().map(|span| milliseconds(span.start)).min();
        trace.timestamp = start.map_or(trace.timestamp, |start| trace.timestamp.min(start));
        if trace.timestamp == i64::MAX {
            trace.timestamp = 0;
        }
        let ends = spans.iter().filter_map(|span| span.end.map(milliseconds));
        trace.duration = ends.chain(end).max().map(|end| end.saturating_sub(trace.timestamp));
    }
    let first = |value: fn(&Received) -> Option<&String>| spans.iter().find_map(value).cloned();
    let session = first(|span| span.facts.session.as_ref());
    let user = first(|span| span.facts.user.as_ref());
    let mut tags = Pairs::new();
    // Spans of one resource share what it says; it is looked at once.
    let mut seen: Option<&Arc<[(String, String)]>> = None;
    for span in spans {
        if seen.is_none_or(|seen| !Arc::ptr_eq(seen, &span.resource)) {
            tags.extend(span.resource.iter().filter(|(key, _)| is_tag(key)).cloned());
            seen = Some(&span.resource);
        }
    }
    for span in spans {
        let Some(root) = &span.facts.root else { continue };
        if trace.state.is_open() {
            trace.state = if span.facts.failed { State::Error } else { State::Ok };
        }
        if trace.request_preview.is_none() {
            trace.request_preview.clone_from(&root.request);
        }
        if trace.response_preview.is_none() {
            trace.response_preview.clone_from(&root.response);
        }
        tags.extend(root.tags.iter().filter(|(key, _)| is_tag(key)).cloned());
    }
    if trace.is_final() {
        tags.remove(NAME_TAG);
    }
    let mut metadata = Pairs::new();
    for (key, value) in [(SESSION, session), (USER, user)] {
        if let Some(value) = value.filter(|_| !trace.metadata.contains_key(key)) {
            metadata.insert(key.to_owned(), value);
        }
    }
    // Keys were checked, and values are cut: nothing is left to refuse.
    drop(merge(trace, tags, metadata));
}

fn is_tag(key: &str) -> bool {
    check_key("key", key).is_ok()
}

/// Tokens and cost over all spans, where the client has not given them itself.
fn add_up(tx: &mut Tx<'_>, trace: &mut Trace) -> Result<()> {
    let (tokens, cost) = spans::numbers(tx, trace.no)?;
    let given = trace.is_final();
    for (key, sum) in [(TOKENS, total(&tokens, usage::TOKENS)), (COST, total(&cost, usage::COST))] {
        if given && trace.metadata.contains_key(key) {
            continue;
        }
        if let Some(sum) = sum {
            trace.metadata.insert(key.to_owned(), dumped(&sum));
        }
    }
    Ok(())
}

/// As Python writes it, which is how clients have seen it so far.
fn dumped(numbers: &Map<String, Value>) -> String {
    let pairs: Vec<String> =
        numbers.iter().map(|(key, number)| format!("\"{key}\": {number}")).collect();
    format!("{{{}}}", pairs.join(", "))
}
