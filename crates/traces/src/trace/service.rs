//! What the verbs on traces share: changing one, alone at it and on record.

use std::collections::BTreeSet;

use falaj_base::{Action, Error, ProjectId, Result, code};
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use falaj_tracking::artifact::location_below;
use falaj_tracking::experiment::Experiment;
use serde_json::json;
use uuid::Uuid;

use super::id::TraceId;
use super::store;
use super::trace::{ARTIFACTS_TAG, Pairs, State, Trace};
use crate::Traces;
use crate::access::no_trace;
use crate::assessment::Assessment;

/// A trace with what is said of it.
pub(crate) type Assessed = (Trace, Vec<Assessment>);

impl Traces {
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
                lock(tx, project, [&home.id])?;
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

/// How many traces are locked one by one. PostgreSQL keeps the locks of everyone in one table of
/// fixed size.
const LOCKED: usize = 256;

/// Lets nobody else change these traces, nor make them. Whoever changes very many of them holds
/// those of the whole project.
pub(crate) fn lock<'a>(
    tx: &mut Tx<'_>,
    project: ProjectId,
    ids: impl IntoIterator<Item = &'a TraceId>,
) -> Result<()> {
    // In the order of their ids: two who want the same traces cannot wait for each other.
    let ids: BTreeSet<&TraceId> = ids.into_iter().collect();
    let all = format!("traces/{project}");
    if ids.len() > LOCKED {
        return tx.lock(&all);
    }
    tx.lock_shared(&all)?;
    ids.into_iter().try_for_each(|id| tx.lock(&format!("trace/{project}/{id}")))
}

/// A trace of which nothing is known yet.
pub(crate) fn empty(project: ProjectId, experiment: &Experiment, id: TraceId) -> Trace {
    let folder = format!("traces/{id}/artifacts");
    let location = location_below(&experiment.artifact_location, folder);
    Trace {
        no: Uuid::now_v7(),
        project,
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
