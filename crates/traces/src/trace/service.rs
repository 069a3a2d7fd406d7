//! The verbs on traces: starting, reading, tagging.

use std::collections::HashMap;

use falaj_base::{Action, Error, Result, code};
use falaj_mlflow::Call;
use falaj_mlflow::error::{invalid, refused};
use falaj_mlflow::names::{MAX_KEY, check_key};
use falaj_store::db::Tx;
use falaj_store::record::Change;
use falaj_tracking::ExperimentId;
use falaj_tracking::access::resource;
use falaj_tracking::experiment::{Experiment, require_active};
use serde_json::json;
use uuid::Uuid;

use super::id::TraceId;
use super::store;
use super::trace::{ARTIFACTS_TAG, FINAL, Pairs, SPANS_TAG, State, Trace};
use crate::access::no_trace;
use crate::assessment::{Assessment, store as assessments};
use crate::otlp::message::Span;
use crate::span::preview::cut;
use crate::span::{shape, store as spans};
use crate::{TRACE_READ, TRACE_WRITE, Traces};

/// The longest value of a tag, and of metadata, in characters; a longer one is cut, as in MLflow.
const MAX_TAG_VALUE: usize = 4096;
const MAX_METADATA: usize = 250;

/// Tags that tell where spans lie: the server's own business.
const FIXED_TAGS: [&str; 3] =
    [SPANS_TAG, "mlflow.trace.archiveLocation", "mlflow.trace.archivalFailure"];

/// What a client says of a whole trace, usually at its end.
#[derive(Clone, Debug)]
pub(crate) struct NewTrace {
    pub(crate) id: TraceId,
    pub(crate) experiment: ExperimentId,
    pub(crate) timestamp: i64,
    pub(crate) duration: Option<i64>,
    pub(crate) state: State,
    pub(crate) client_request_id: Option<String>,
    pub(crate) request_preview: Option<String>,
    pub(crate) response_preview: Option<String>,
    pub(crate) tags: Pairs,
    pub(crate) metadata: Pairs,
    pub(crate) assessments: Vec<Assessment>,
}

/// A trace with what is said of it.
pub(crate) type Assessed = (Trace, Vec<Assessment>);

impl Traces {
    /// Makes a trace, or completes one whose spans came first.
    pub(crate) async fn start_trace(&self, call: &Call, new: NewTrace) -> Result<Assessed> {
        again_if_moved(|| self.try_start_trace(call, new.clone())).await
    }

    async fn try_start_trace(&self, call: &Call, new: NewTrace) -> Result<Assessed> {
        let experiment = self.tracking().experiment(call, new.experiment, &TRACE_WRITE).await?;
        require_active(&experiment)?;
        // It may be there already, and in another experiment.
        let homes = self.addresses(call, vec![new.id.clone()]).await?;
        for address in &homes {
            let resource = resource(&call.place, address.experiment_id, false);
            call.ctx.authorize(&TRACE_WRITE, &resource).await?;
        }
        let mut seen: Vec<i64> = homes.iter().map(|address| address.experiment).collect();
        seen.push(experiment.no);
        let limits = self.config().clone();
        let (ctx, project) = (call.ctx.clone(), call.place.id);
        let resource = resource(&call.place, experiment.id, false);
        self.db()
            .write(move |tx| {
                tx.lock(&lock(project, &new.id))?;
                let found = store::find(tx, project, &new.id)?;
                let is_new = found.is_none();
                let mut trace = found.unwrap_or_else(|| empty(&experiment, new.id.clone()));
                if !is_new && !seen.contains(&trace.experiment) {
                    return Err(moved(&trace.id));
                }
                let assessments = new.assessments.clone();
                complete(&mut trace, &experiment, new)?;
                check_counts(&trace, limits.max_tags)?;
                if is_new {
                    store::insert(tx, project, &trace)?;
                } else {
                    store::update(tx, &trace)?;
                }
                for assessment in &assessments {
                    assessment.check(&limits)?;
                    assessments::put(tx, trace.no, assessment)?;
                }
                assessments::check_count(tx, trace.no, limits.max_assessments)?;
                let change = Change::new(&TRACE_WRITE, &resource)
                    .event("trace.logged", &shown(&trace))
                    .after(&shown(&trace))
                    .detail("trace", &trace.id);
                tx.record(&ctx, change)?;
                let said = assessments::of_trace(tx, trace.no)?;
                Ok((trace, said))
            })
            .await
    }

    pub(crate) async fn trace_info(&self, call: &Call, trace: &str) -> Result<Assessed> {
        let home = self.home(call, trace, &TRACE_READ).await?;
        let (project, id) = (call.place.id, home.id.clone());
        let found = self
            .db()
            .read(move |tx| {
                let Some(trace) = store::find(tx, project, &id)? else { return Ok(None) };
                let said = assessments::of_trace(tx, trace.no)?;
                Ok(Some((trace, said)))
            })
            .await?;
        found.ok_or_else(|| no_trace(trace))
    }

    /// Those of the traces that there are, in the order they were asked for, each once.
    pub(crate) async fn trace_infos(&self, call: &Call, ids: &[String]) -> Result<Vec<Assessed>> {
        let found = self.batch(call, ids, |tx, trace| {
            let said = assessments::of_trace(tx, trace.no)?;
            Ok(Some((trace, said)))
        });
        found.await
    }

    /// The same with their spans, as far as those are all there.
    pub(crate) async fn full_traces(
        &self,
        call: &Call,
        ids: &[String],
    ) -> Result<Vec<(Assessed, Vec<Span>)>> {
        let most = self.config().max_reply_size.as_usize();
        let mut size = 0_usize;
        self.batch(call, ids, move |tx, trace| {
            if !trace.is_complete() {
                return Ok(None);
            }
            size = size.saturating_add(usize::try_from(trace.size).unwrap_or(usize::MAX));
            if size > most {
                return Err(too_much(most));
            }
            full(tx, trace).map(Some)
        })
        .await
    }

    /// One trace with its spans; with those that are there, if that is enough.
    pub(crate) async fn full_trace(
        &self,
        call: &Call,
        trace: &str,
        partial: bool,
    ) -> Result<(Assessed, Vec<Span>)> {
        let home = self.home(call, trace, &TRACE_READ).await?;
        let (project, id, most) =
            (call.place.id, home.id.clone(), self.config().max_reply_size.as_usize());
        let found = self
            .db()
            .read(move |tx| {
                let Some(trace) = store::find(tx, project, &id)? else { return Ok(None) };
                if usize::try_from(trace.size).unwrap_or(usize::MAX) > most {
                    return Err(too_much(most));
                }
                if !partial && !trace.is_complete() {
                    return Err(unfinished(&id));
                }
                full(tx, trace).map(Some)
            })
            .await?;
        found.ok_or_else(|| no_trace(trace))
    }

    async fn batch<T: Send + 'static>(
        &self,
        call: &Call,
        ids: &[String],
        mut read: impl FnMut(&mut Tx<'_>, Trace) -> Result<Option<T>> + Send + 'static,
    ) -> Result<Vec<T>> {
        self.check_batch("trace_ids", ids.len())?;
        let homes = self.homes(call, ids, &TRACE_READ).await?;
        let places: HashMap<String, usize> =
            ids.iter().enumerate().rev().map(|(at, id)| (id.clone(), at)).collect();
        let wanted: Vec<TraceId> = homes.into_iter().map(|home| home.id).collect();
        let project = call.place.id;
        self.db()
            .read(move |tx| {
                let mut found = store::find_all(tx, project, &wanted)?;
                found.sort_by_key(|trace| places.get(trace.id.as_str()).copied());
                found.into_iter().filter_map(|trace| read(tx, trace).transpose()).collect()
            })
            .await
    }

    pub(crate) fn check_batch(&self, parameter: &str, count: usize) -> Result<()> {
        let most = self.config().max_batch_traces;
        if count <= most {
            return Ok(());
        }
        let why = format!("at most {most} traces in one request (`traces.max_batch_traces`)");
        Err(invalid(parameter, &json!(count), &why))
    }

    pub(crate) async fn tag_trace(
        &self,
        call: &Call,
        trace: &str,
        key: String,
        value: String,
    ) -> Result<()> {
        check_key("key", &key)?;
        check_free(&key, "set")?;
        let most = self.config().max_tags;
        self.change_trace(call, trace, &TRACE_WRITE, "trace.updated", move |_, trace| {
            trace.tags.insert(key, shortened(&value, MAX_TAG_VALUE));
            check_counts(trace, most)
        })
        .await
        .map(drop)
    }

    pub(crate) async fn untag_trace(&self, call: &Call, trace: &str, key: String) -> Result<()> {
        if key != FIXED_TAGS[2] {
            check_free(&key, "deleted")?;
        }
        self.change_trace(call, trace, &TRACE_WRITE, "trace.updated", move |_, trace| {
            let gone = || {
                let text =
                    format!("No trace tag with key '{key}' for trace with ID '{}'", trace.id);
                Error::new(&code::NOT_FOUND, text)
            };
            if trace.tags.contains_key(&key) {
                trace.tags.remove(&key);
                Ok(())
            } else {
                Err(gone())
            }
        })
        .await
        .map(drop)
    }

    /// One change of one trace, put on record.
    pub(crate) async fn change_trace<T: Send + 'static>(
        &self,
        call: &Call,
        trace: &str,
        action: &'static Action,
        event: &'static str,
        change: impl FnOnce(&mut Tx<'_>, &mut Trace) -> Result<T> + Send + 'static,
    ) -> Result<(Trace, T)> {
        let home = self.home(call, trace, action).await?;
        let (ctx, project) = (call.ctx.clone(), call.place.id);
        self.db()
            .write(move |tx| {
                tx.lock(&lock(project, &home.id))?;
                let gone = || no_trace(home.id.as_str());
                let mut trace = store::find(tx, project, &home.id)?.ok_or_else(gone)?;
                if trace.no != home.no || trace.experiment != home.experiment {
                    return Err(moved(&home.id));
                }
                let before = (shown(&trace), trace.tags.clone());
                let changed = change(tx, &mut trace)?;
                store::update(tx, &trace)?;
                let record = Change::new(action, &home.resource)
                    .event(event, &shown(&trace))
                    .before(&before)
                    .after(&(shown(&trace), &trace.tags))
                    .detail("trace", &trace.id);
                tx.record(&ctx, record)?;
                Ok((trace, changed))
            })
            .await
    }
}

fn full(tx: &mut Tx<'_>, trace: Trace) -> Result<(Assessed, Vec<Span>)> {
    let said = assessments::of_trace(tx, trace.no)?;
    let spans = spans::of_trace(tx, trace.no)?;
    let spans = spans.into_iter().map(|span| shape::named(span, &trace.id)).collect();
    Ok(((trace, said), spans))
}

/// What is held by whoever changes a trace.
pub(crate) fn lock(project: falaj_base::ProjectId, id: &TraceId) -> String {
    format!("trace/{project}/{id}")
}

/// A trace of which nothing is known yet.
pub(crate) fn empty(experiment: &Experiment, id: TraceId) -> Trace {
    let location = format!("{}/traces/{id}/artifacts", experiment.artifact_location);
    Trace {
        no: Uuid::now_v7(),
        id,
        experiment: experiment.no,
        experiment_id: experiment.id,
        timestamp: 0,
        duration: None,
        state: State::InProgress,
        spans: 0,
        size: 0,
        client_request_id: None,
        request_preview: None,
        response_preview: None,
        tags: Pairs::from([(ARTIFACTS_TAG.to_owned(), location)]),
        metadata: Pairs::new(),
    }
}

/// What the client says counts; what it does not mention stays.
fn complete(trace: &mut Trace, experiment: &Experiment, new: NewTrace) -> Result<()> {
    trace.experiment = experiment.no;
    trace.experiment_id = experiment.id;
    trace.timestamp = new.timestamp;
    trace.duration = new.duration;
    trace.state = new.state;
    trace.client_request_id = new.client_request_id.map(|id| shortened(&id, MAX_METADATA));
    if let Some(preview) = new.request_preview {
        trace.request_preview = Some(cut(&preview));
    }
    if let Some(preview) = new.response_preview {
        trace.response_preview = Some(cut(&preview));
    }
    merge(trace, new.tags, new.metadata)?;
    trace.metadata.insert(FINAL.to_owned(), "true".to_owned());
    Ok(())
}

/// Adds tags and metadata. A tag that is the server's business stays as it is.
pub(crate) fn merge(trace: &mut Trace, tags: Pairs, metadata: Pairs) -> Result<()> {
    for (key, value) in tags {
        check_length("tags", &key)?;
        if !FIXED_TAGS.contains(&key.as_str()) && key != ARTIFACTS_TAG {
            trace.tags.insert(key, shortened(&value, MAX_TAG_VALUE));
        }
    }
    for (key, value) in metadata {
        check_length("trace_metadata", &key)?;
        trace.metadata.insert(key, shortened(&value, MAX_METADATA));
    }
    Ok(())
}

fn check_length(parameter: &str, key: &str) -> Result<()> {
    if !key.is_empty() && key.chars().count() <= MAX_KEY {
        return Ok(());
    }
    let why = format!("a key has 1 to {MAX_KEY} characters");
    Err(invalid(parameter, &json!(key), &why))
}

/// The beginning of a text.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => text[..end].to_owned(),
        None => text.to_owned(),
    }
}

pub(crate) fn check_counts(trace: &Trace, most: usize) -> Result<()> {
    for (what, count) in [("tags", trace.tags.len()), ("trace_metadata", trace.metadata.len())] {
        if count > most {
            let why = format!("a trace has at most {most} of them (`traces.max_tags`)");
            return Err(invalid(what, &json!(count), &why));
        }
    }
    Ok(())
}

fn check_free(key: &str, done: &str) -> Result<()> {
    if FIXED_TAGS.contains(&key) {
        return Err(
            refused(format!("Tag '{key}' is immutable and cannot be {done} on a trace.")).at("key")
        );
    }
    Ok(())
}

/// How often a change is tried that finds its trace in another experiment than just before.
const TRIES: usize = 4;

/// Spans of one trace may come from several services at once, each with an experiment of its own;
/// where the trace lies is only known once one of them made it.
pub(crate) async fn again_if_moved<T, F: Future<Output = Result<T>>>(
    attempt: impl Fn() -> F,
) -> Result<T> {
    for _ in 1..TRIES {
        match attempt().await {
            Err(error) if *error.code() == code::CONFLICT => {}
            outcome => return outcome,
        }
    }
    attempt().await
}

/// It changed hands between the look and the change.
pub(crate) fn moved(id: &TraceId) -> Error {
    Error::new(&code::CONFLICT, format!("The trace {id} was moved meanwhile; try again"))
}

fn unfinished(id: &TraceId) -> Error {
    let text = format!("Trace with ID {id} is not fully exported yet, please try again later.");
    Error::new(&code::NOT_FOUND, text)
}

fn too_much(most: usize) -> Error {
    let text = format!(
        "the spans of these traces have more than {most} bytes (`traces.max_reply_size`); ask for \
         fewer traces"
    );
    Error::new(&code::TOO_LARGE, text)
}

/// What events and the audit log say of a trace: nothing of what was asked or answered.
pub(crate) fn shown(trace: &Trace) -> serde_json::Value {
    json!({
        "trace_id": trace.id.as_str(),
        "experiment_id": trace.experiment_id.to_string(),
        "state": trace.state.as_str(),
        "request_time": trace.timestamp,
        "execution_duration": trace.duration,
        "spans": trace.spans,
    })
}
