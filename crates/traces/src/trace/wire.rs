//! Traces as the third version of MLflow's protocol writes them.

use chrono::{DateTime, SecondsFormat};
use falaj_base::Result;
use falaj_mlflow::error::{invalid, refused, required, required_text};
use falaj_tracking::ExperimentId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::id::TraceId;
use super::start::NewTrace;
use super::trace::{Pairs, State, Trace};
use crate::assessment::Assessment;
use crate::assessment::wire::{AssessmentIn, AssessmentShape};

/// An empty reply: `{}`.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Nothing {}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Location {
    #[serde(rename = "type")]
    kind: Option<Value>,
    #[serde(alias = "mlflowExperiment", skip_serializing_if = "Option::is_none")]
    mlflow_experiment: Option<InExperiment>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct InExperiment {
    #[serde(alias = "experimentId")]
    experiment_id: Option<String>,
}

impl Location {
    pub(crate) fn of(experiment: ExperimentId) -> Self {
        Self {
            kind: Some(json!("MLFLOW_EXPERIMENT")),
            mlflow_experiment: Some(InExperiment { experiment_id: Some(experiment.to_string()) }),
        }
    }

    /// The experiment it names, if it names one.
    pub(crate) fn experiment(self) -> Option<String> {
        self.mlflow_experiment?.experiment_id
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct TraceIn {
    #[serde(alias = "traceInfo")]
    pub(crate) trace_info: Option<InfoIn>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct InfoIn {
    #[serde(alias = "traceId")]
    trace_id: Option<String>,
    #[serde(alias = "clientRequestId")]
    client_request_id: Option<String>,
    #[serde(alias = "traceLocation")]
    trace_location: Option<Location>,
    #[serde(alias = "requestPreview")]
    request_preview: Option<String>,
    #[serde(alias = "responsePreview")]
    response_preview: Option<String>,
    #[serde(alias = "requestTime")]
    request_time: Option<String>,
    #[serde(alias = "executionDuration")]
    execution_duration: Option<String>,
    state: Option<Value>,
    #[serde(alias = "traceMetadata")]
    trace_metadata: Pairs,
    assessments: Vec<AssessmentIn>,
    tags: Pairs,
}

impl InfoIn {
    pub(crate) fn read(self, now: i64) -> Result<NewTrace> {
        let id = required_text("trace.trace_info.trace_id", self.trace_id)?;
        let location = required("trace.trace_info.trace_location", self.trace_location)?;
        let experiment = location.experiment().ok_or_else(|| {
            refused("`trace_location` must name an MLflow experiment").at("trace_location")
        })?;
        let parsed = TraceId::parse(&id).ok_or_else(|| {
            let why = "an id has 1 to 50 letters, digits and `_-.:`";
            invalid("trace.trace_info.trace_id", &json!(id), why)
        })?;
        let time = self.request_time.map(|text| milliseconds("request_time", &text)).transpose()?;
        let duration = self.execution_duration.map(|text| duration(&text)).transpose()?;
        let state = self.state.map(|state| State::parse("state", &state)).transpose()?;
        Ok(NewTrace {
            experiment: experiment.parse()?,
            timestamp: time.unwrap_or(0),
            duration,
            state: state.unwrap_or_default(),
            client_request_id: self.client_request_id,
            request_preview: self.request_preview,
            response_preview: self.response_preview,
            tags: self.tags,
            metadata: self.trace_metadata,
            assessments: self
                .assessments
                .into_iter()
                .map(|assessment| assessment.read(parsed.as_str(), now))
                .collect::<Result<_>>()?,
            id: parsed,
        })
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct InfoShape {
    trace_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_request_id: Option<String>,
    trace_location: Location,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_preview: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_preview: Option<String>,
    request_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_duration: Option<String>,
    state: &'static str,
    #[serde(skip_serializing_if = "Pairs::is_empty")]
    trace_metadata: Pairs,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    assessments: Vec<AssessmentShape>,
    #[serde(skip_serializing_if = "Pairs::is_empty")]
    tags: Pairs,
}

impl From<(Trace, Vec<Assessment>)> for InfoShape {
    fn from((trace, assessments): (Trace, Vec<Assessment>)) -> Self {
        let id = trace.id.to_string();
        Self {
            client_request_id: trace.client_request_id,
            trace_location: Location::of(trace.experiment_id),
            request_preview: trace.request_preview,
            response_preview: trace.response_preview,
            request_time: time(trace.timestamp),
            execution_duration: trace.duration.map(seconds),
            state: trace.state.as_str(),
            trace_metadata: trace.metadata,
            assessments: assessments
                .into_iter()
                .map(|one| AssessmentShape::new(&id, one))
                .collect(),
            tags: trace.tags,
            trace_id: id,
        }
    }
}

/// A trace, with its spans where they were asked for.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TraceShape {
    pub(crate) trace_info: InfoShape,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Value>")]
    pub(crate) spans: Vec<Box<RawValue>>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Shown {
    pub(crate) trace: TraceShape,
}

impl Shown {
    pub(crate) fn info(trace: (Trace, Vec<Assessment>)) -> Self {
        Self { trace: TraceShape { trace_info: trace.into(), spans: Vec::new() } }
    }
}

/// The years that the protocol can write.
const TIMES: std::ops::RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_999;

/// A time in milliseconds, from `2001-01-01T00:00:01.5Z`.
pub(crate) fn milliseconds(parameter: &str, text: &str) -> Result<i64> {
    let read = DateTime::parse_from_rfc3339(text).map(|time| time.timestamp_millis());
    read.ok().filter(|time| TIMES.contains(time)).ok_or_else(|| {
        invalid(parameter, &json!(text), "a time is written like 2001-01-01T00:00:01.5Z")
    })
}

/// The other way round, with as many digits as it takes.
pub(crate) fn time(milliseconds: i64) -> String {
    let milliseconds = milliseconds.clamp(*TIMES.start(), *TIMES.end());
    let time = DateTime::from_timestamp_millis(milliseconds).unwrap_or_default();
    time.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// The longest duration that the protocol can write, in seconds.
const LONGEST: i64 = 315_576_000_000;

/// A duration in milliseconds, from `1.5s`.
fn duration(text: &str) -> Result<i64> {
    read_duration(text).ok_or_else(|| {
        invalid("execution_duration", &json!(text), "a duration is written like 1.5s")
    })
}

fn read_duration(text: &str) -> Option<i64> {
    let number = text.strip_suffix('s')?;
    let (sign, digits) = number.strip_prefix('-').map_or((1, number), |rest| (-1, rest));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !plain(whole) || !plain(part) || part.len() > 9 || whole.len() > 12 {
        return None;
    }
    let whole: i64 = whole.parse().ok().filter(|whole| *whole <= LONGEST)?;
    let thousandths: i64 = format!("{part:0<3}")[..3].parse().ok()?;
    Some(sign * (whole * 1000 + thousandths))
}

/// The other way round: no digits behind the point, or three.
fn seconds(milliseconds: i64) -> String {
    let most = LONGEST * 1000;
    let milliseconds = milliseconds.clamp(-most, most);
    let (whole, part) = (milliseconds.unsigned_abs() / 1000, milliseconds.unsigned_abs() % 1000);
    let sign = if milliseconds < 0 { "-" } else { "" };
    if part == 0 { format!("{sign}{whole}s") } else { format!("{sign}{whole}.{part:03}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_durations_as_protobuf_writes_them() {
        for (text, ms, back) in [
            ("2001-01-01T00:00:01Z", 978_307_201_000, "2001-01-01T00:00:01Z"),
            ("2001-01-01T02:00:01.5+02:00", 978_307_201_500, "2001-01-01T00:00:01.500Z"),
            ("1970-01-01T00:00:00.000123Z", 0, "1970-01-01T00:00:00Z"),
        ] {
            assert_eq!(milliseconds("t", text).unwrap(), ms, "{text}");
            assert_eq!(time(ms), back);
        }
        for (text, ms, back) in [
            ("1.5s", 1500, "1.500s"),
            ("0s", 0, "0s"),
            ("-2.25s", -2250, "-2.250s"),
            ("3.0001s", 3000, "3s"),
        ] {
            assert_eq!(read_duration(text), Some(ms), "{text}");
            assert_eq!(seconds(ms), back);
        }
        for bad in ["", "s", "1", "1.s", ".5s", "x5s", "1e3s", "9999999999999s", "1.0000000001s"] {
            assert_eq!(read_duration(bad), None, "{bad}");
        }
        for bad in ["", "now", "2001-01-01", "10000-01-01T00:00:00Z", "2001-13-01T00:00:00Z"] {
            assert!(milliseconds("t", bad).is_err(), "{bad}");
        }
    }
}
