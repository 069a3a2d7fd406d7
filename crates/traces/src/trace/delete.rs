//! Deleting traces, for good: by their ids, or the oldest up to a time.

use falaj_base::Result;
use falaj_mlflow::Call;
use falaj_mlflow::error::refused;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use falaj_tracking::ExperimentId;
use falaj_tracking::access::resource;
use falaj_tracking::experiment::Experiment;
use falaj_tracking::purge::check_no_hold;
use serde_json::json;
use uuid::Uuid;

use super::service::lock;
use super::store::{self, Doomed};
use crate::{TRACE_DELETE, Traces};

/// Which traces are to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    Ids(Vec<String>),
    /// Those that began at this time or before, the oldest first, at most so many.
    Until(i64, Option<usize>),
}

impl Which {
    /// One or the other, as MLflow has it.
    pub(crate) fn new(ids: Vec<String>, until: Option<i64>, most: Option<i64>) -> Result<Self> {
        match until {
            None if ids.is_empty() => {
                Err(refused("Either `max_timestamp_millis` or `trace_ids` must be specified."))
            }
            Some(_) if !ids.is_empty() => {
                Err(refused("Only one of `max_timestamp_millis` and `trace_ids` can be specified."))
            }
            None if most.is_some() => {
                Err(refused("`max_traces` can't be specified if `trace_ids` is specified."))
            }
            None => Ok(Self::Ids(ids)),
            Some(until) => {
                let bad = |most| {
                    let text = "`max_traces` must be a positive integer, received";
                    refused(format!("{text} {most}.")).at("max_traces")
                };
                let read = |most: i64| {
                    usize::try_from(most).ok().filter(|most| *most > 0).ok_or_else(|| bad(most))
                };
                Ok(Self::Until(until, most.map(read).transpose()?))
            }
        }
    }
}

/// How many go in one transaction: a trace may have many spans, and others wait meanwhile.
const AT_ONCE: usize = 200;

impl Traces {
    /// Deletes traces of one experiment; how many there were.
    pub(crate) async fn delete_traces(
        &self,
        call: &Call,
        experiment: ExperimentId,
        which: Which,
    ) -> Result<u64> {
        let experiment = self.tracking().experiment(call, experiment, &TRACE_DELETE).await?;
        match which {
            Which::Ids(ids) => {
                self.check_batch("request_ids", ids.len())?;
                let homes = self.homes(call, &ids, &TRACE_DELETE).await?;
                let inside = homes.into_iter().filter(|home| home.experiment == experiment.no);
                let doomed: Vec<Doomed> = inside
                    .map(|home| Doomed { no: home.no, project: call.place.id, id: home.id })
                    .collect();
                let mut deleted = 0;
                // Also once for nothing: that somebody asked is on record.
                for some in doomed.chunks(AT_ONCE).chain(doomed.is_empty().then_some(&[][..])) {
                    let some = some.to_vec();
                    deleted += self.delete_some(call, &experiment, move |_| Ok(some)).await?;
                }
                Ok(deleted)
            }
            Which::Until(time, most) => {
                let limit = self.config().max_delete_traces;
                let limit = most.map_or(limit, |most| most.min(limit));
                let mut deleted = 0;
                loop {
                    let left = limit.saturating_sub(usize::try_from(deleted).unwrap_or(usize::MAX));
                    let some = left.min(AT_ONCE);
                    let no = experiment.no;
                    let oldest = move |tx: &mut Tx<'_>| store::oldest(tx, no, time, some);
                    let gone = self.delete_some(call, &experiment, oldest).await?;
                    deleted += gone;
                    if some == left || gone == 0 {
                        return Ok(deleted);
                    }
                }
            }
        }
    }

    async fn delete_some(
        &self,
        call: &Call,
        experiment: &Experiment,
        select: impl FnOnce(&mut Tx<'_>) -> Result<Vec<Doomed>> + Send + 'static,
    ) -> Result<u64> {
        let (experiment, no) = (experiment.id, experiment.no);
        let resource = resource(&call.place, experiment, false);
        let (ctx, project) = (call.ctx.clone(), call.place.id);
        self.db()
            .write(move |tx| {
                check_no_hold(tx, project, [Some(experiment)])?;
                let doomed = select(tx)?;
                lock(tx, project, doomed.iter().map(|trace| &trace.id))?;
                let numbers: Vec<Uuid> = doomed.iter().map(|trace| trace.no).collect();
                let deleted = store::delete(tx, &numbers, Some(no))?;
                let data = json!({ "experiment_id": experiment.to_string(), "traces": deleted });
                let change = Change::new(&TRACE_DELETE, &resource)
                    .event("trace.deleted", &data)
                    .before(&data)
                    .detail("traces", deleted);
                tx.record(&ctx, change)?;
                Ok(deleted)
            })
            .await
    }
}
