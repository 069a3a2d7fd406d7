//! What one trace, span or assessment adds to a metric.

use serde_json::Value;

use super::Query;
use crate::assessment::Assessment;
use crate::otlp::message::{Any, Span, attribute};
use crate::otlp::value::plain;
use crate::otlp::{Facts, span_type};
use crate::span::shape;
use crate::trace::{NAME_TAG, SESSION, TOKENS, Trace};

/// A value, with when it was and which group it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// In milliseconds.
    pub(crate) at: i64,
    pub(crate) dimensions: Vec<String>,
    pub(crate) value: f64,
    /// Of those that are the same only one is counted.
    pub(crate) distinct: Option<String>,
}

fn sample(
    query: &Query,
    at: i64,
    value: Option<f64>,
    dimension: impl Fn(&str) -> Option<String>,
) -> Option<Sample> {
    let dimensions = query.dimensions.iter().map(|name| dimension(name)).collect::<Option<_>>()?;
    Some(Sample { at, dimensions, value: value?, distinct: None })
}

#[allow(clippy::cast_precision_loss, reason = "milliseconds are far below 2^53")]
pub(crate) fn of_trace(query: &Query, trace: &Trace) -> Option<Sample> {
    let session = || trace.metadata.get(SESSION).cloned();
    let value = match query.metric.name() {
        "trace_count" => Some(1.0),
        "session_count" => session().map(|_| 1.0),
        "latency" => trace.duration.map(|duration| duration as f64),
        tokens => {
            let all: Option<Value> =
                trace.metadata.get(TOKENS).and_then(|text| serde_json::from_str(text).ok());
            all.and_then(|all| all[tokens].as_f64())
        }
    };
    let found = sample(query, trace.timestamp, value, |dimension| match dimension {
        "trace_status" => Some(trace.state.as_str().to_owned()),
        _ => trace.tags.get(NAME_TAG).cloned(),
    })?;
    let distinct = session().filter(|_| query.metric.name() == "session_count");
    Some(Sample { distinct, ..found })
}

#[allow(clippy::cast_precision_loss, reason = "milliseconds are far below 2^53")]
pub(crate) fn of_span(query: &Query, trace: &Trace, span: &Span) -> Option<Sample> {
    if !query.conditions.iter().all(|condition| condition.holds_of_span(span)) {
        return None;
    }
    let value = match query.metric.name() {
        "span_count" => Some(1.0),
        "latency" => {
            let nanos = span.end_time_unix_nano.checked_sub(span.start_time_unix_nano);
            nanos.map(|nanos| (nanos / 1_000_000) as f64)
        }
        cost => Facts::of(span, false).cost.and_then(|all| all.get(cost)?.as_f64()),
    };
    let text = |key: &str| match attribute(&span.attributes, key) {
        Some(Any::Text(text)) => Some(text.clone()),
        Some(other) => plain(Some(other)).as_str().map(str::to_owned),
        None => None,
    };
    sample(query, trace.timestamp, value, |dimension| match dimension {
        "span_name" => Some(span.name.clone()),
        "span_type" => span_type(span).map(str::to_owned),
        "span_status" => Some(shape::status_word(span).to_owned()),
        "span_model_name" => text("mlflow.llm.model"),
        _ => text("mlflow.llm.provider"),
    })
}

pub(crate) fn of_assessment(query: &Query, trace: &Trace, said: &Assessment) -> Option<Sample> {
    let wanted = query.conditions.iter().all(|condition| condition.holds_of_assessment(said));
    if !said.valid || !wanted {
        return None;
    }
    let value = match query.metric.name() {
        "assessment_count" => Some(1.0),
        _ => said.weight(),
    };
    sample(query, trace.timestamp, value, |dimension| match dimension {
        "assessment_name" => Some(said.name.clone()),
        _ => Some(said.json()),
    })
}
