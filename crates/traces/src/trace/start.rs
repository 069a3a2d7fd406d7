//! Starting a trace, or completing one whose spans came first.

use falaj_base::Result;
use falaj_mlflow::Call;
use falaj_store::record::Change;
use falaj_tracking::ExperimentId;
use falaj_tracking::access::resource;
use falaj_tracking::experiment::{Experiment, require_active};
use falaj_tracking::purge::check_no_hold;

use super::id::TraceId;
use super::service::{Assessed, again_if_moved, empty, lock, moved, shown};
use super::store;
use super::tags::{MAX_METADATA, check_counts, merge, shortened};
use super::trace::{FINAL, Pairs, State, Trace};
use crate::assessment::{Assessment, store as assessments};
use crate::span::preview::cut;
use crate::{TRACE_WRITE, Traces};

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

impl Traces {
    /// Makes a trace, or completes one whose spans came first. It then moves to the experiment that
    /// is named here, as in MLflow, unless a legal hold keeps it where it is.
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
        let elsewhere = homes.iter().find(|address| address.experiment != experiment.no);
        let moves_from = elsewhere.map(|address| address.experiment_id);
        let limits = self.config().clone();
        let (ctx, project) = (call.ctx.clone(), call.place.id);
        let resource = resource(&call.place, experiment.id, false);
        self.db()
            .write(move |tx| {
                // What is under a hold stays where it is. This lock comes before that of the trace,
                // as wherever both are taken.
                if let Some(from) = moves_from {
                    check_no_hold(tx, project, [Some(from), Some(experiment.id)])?;
                }
                lock(tx, project, [&new.id])?;
                let found = store::find(tx, project, &new.id)?;
                let is_new = found.is_none();
                let mut trace =
                    found.unwrap_or_else(|| empty(project, &experiment, new.id.clone()));
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
                assessments::check_room(tx, trace.no, &limits)?;
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
