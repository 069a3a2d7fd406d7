//! The second version of the protocol, which older clients still speak: a trace is started and
//! ended by two calls, and pairs are lists.

use falaj_base::Result;
use falaj_mlflow::error::missing;
use falaj_mlflow::{Call, wire as read};
use falaj_store::record::Change;
use falaj_tracking::ExperimentId;
use falaj_tracking::access::resource;
use falaj_tracking::experiment::require_active;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::id::TraceId;
use super::service::{empty, shown};
use super::store;
use super::tags::{check_counts, merge};
use super::trace::{Pairs, State, Trace};
use crate::{TRACE_WRITE, Traces};

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Pair {
    key: Option<String>,
    value: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Start {
    #[serde(alias = "experimentId")]
    pub(crate) experiment_id: Option<String>,
    #[serde(alias = "timestampMs", deserialize_with = "read::int")]
    timestamp_ms: Option<i64>,
    #[serde(alias = "requestMetadata")]
    request_metadata: Vec<Pair>,
    tags: Vec<Pair>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct End {
    #[serde(alias = "timestampMs", deserialize_with = "read::int")]
    timestamp_ms: Option<i64>,
    status: Option<Value>,
    #[serde(alias = "requestMetadata")]
    request_metadata: Vec<Pair>,
    tags: Vec<Pair>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct InfoShape {
    request_id: String,
    experiment_id: String,
    timestamp_ms: i64,
    execution_time_ms: i64,
    status: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    request_metadata: Vec<Pair>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<Pair>,
}

impl From<Trace> for InfoShape {
    fn from(trace: Trace) -> Self {
        let list = |pairs: Pairs| {
            let pair = |(key, value)| Pair { key: Some(key), value: Some(value) };
            pairs.into_iter().map(pair).collect()
        };
        Self {
            request_id: trace.id.to_string(),
            experiment_id: trace.experiment_id.to_string(),
            timestamp_ms: trace.timestamp,
            execution_time_ms: trace.duration.unwrap_or(0),
            status: trace.state.status(),
            request_metadata: list(trace.metadata),
            tags: list(trace.tags),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ShownV2 {
    pub(crate) trace_info: InfoShape,
}

impl From<Trace> for ShownV2 {
    fn from(trace: Trace) -> Self {
        Self { trace_info: trace.into() }
    }
}

fn pairs(parameter: &str, list: Vec<Pair>) -> Result<Pairs> {
    let pair = |(at, pair): (usize, Pair)| {
        let key = pair.key.filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| missing(&format!("{parameter}[{at}].key")))?;
        Ok((key, pair.value.unwrap_or_default()))
    };
    list.into_iter().enumerate().map(pair).collect()
}

impl Traces {
    pub(crate) async fn start_trace_v2(
        &self,
        call: &Call,
        experiment: ExperimentId,
        start: Start,
    ) -> Result<Trace> {
        let experiment = self.tracking().experiment(call, experiment, &TRACE_WRITE).await?;
        require_active(&experiment)?;
        let mut trace = empty(call.place.id, &experiment, TraceId::new());
        trace.timestamp = start.timestamp_ms.unwrap_or(0);
        let metadata = pairs("request_metadata", start.request_metadata)?;
        merge(&mut trace, pairs("tags", start.tags)?, metadata)?;
        check_counts(&trace, self.config().max_tags)?;
        let resource = resource(&call.place, experiment.id, false);
        let (ctx, project) = (call.ctx.clone(), call.place.id);
        self.db()
            .write(move |tx| {
                store::insert(tx, project, &trace)?;
                let change = Change::new(&TRACE_WRITE, &resource)
                    .event("trace.logged", &shown(&trace))
                    .after(&shown(&trace))
                    .detail("trace", &trace.id);
                tx.record(&ctx, change)?;
                Ok(trace)
            })
            .await
    }

    pub(crate) async fn end_trace_v2(&self, call: &Call, trace: &str, end: End) -> Result<Trace> {
        let state = end.status.map(|status| State::parse("status", &status)).transpose()?;
        let metadata = pairs("request_metadata", end.request_metadata)?;
        let tags = pairs("tags", end.tags)?;
        let (time, most) = (end.timestamp_ms.unwrap_or(0), self.config().max_tags);
        self.change_trace(call, trace, &TRACE_WRITE, "trace.logged", move |_, trace| {
            trace.duration = Some(time.saturating_sub(trace.timestamp));
            trace.state = state.unwrap_or_default();
            merge(trace, tags, metadata)?;
            check_counts(trace, most)
        })
        .await
        .map(|(trace, ())| trace)
    }
}
