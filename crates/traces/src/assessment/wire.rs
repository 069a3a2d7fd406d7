//! Assessments as MLflow's protocol writes them.

use std::collections::BTreeMap;

use falaj_base::Result;
use falaj_mlflow::error::{invalid, missing, refused, required_text};
use falaj_mlflow::wire as read;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::assessment::{Assessment, Change, Failure, Said, Source};
use crate::trace::wire::{milliseconds, time};

/// What serialised values say they are.
const JSON_FORMAT: &str = "JSON_FORMAT";

const SOURCES: [&str; 4] = ["SOURCE_TYPE_UNSPECIFIED", "HUMAN", "LLM_JUDGE", "CODE"];

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct AssessmentIn {
    #[serde(alias = "assessmentId")]
    assessment_id: Option<String>,
    #[serde(alias = "assessmentName")]
    assessment_name: Option<String>,
    #[serde(alias = "traceId")]
    trace_id: Option<String>,
    #[serde(alias = "spanId")]
    span_id: Option<String>,
    source: Option<SourceIn>,
    #[serde(alias = "createTime")]
    create_time: Option<String>,
    #[serde(alias = "lastUpdateTime")]
    last_update_time: Option<String>,
    feedback: Option<FeedbackIn>,
    expectation: Option<ExpectationIn>,
    issue: Option<IssueIn>,
    rationale: Option<String>,
    metadata: BTreeMap<String, String>,
    overrides: Option<String>,
    #[serde(deserialize_with = "read::flag")]
    valid: Option<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct SourceIn {
    #[serde(alias = "sourceType")]
    source_type: Option<Value>,
    #[serde(alias = "sourceId")]
    source_id: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct FeedbackIn {
    value: Value,
    error: Option<Failure>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct ExpectationIn {
    value: Option<Value>,
    #[serde(alias = "serializedValue")]
    serialized_value: Option<SerializedIn>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct SerializedIn {
    #[serde(alias = "serializationFormat")]
    serialization_format: Option<String>,
    value: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct IssueIn {
    #[serde(alias = "issueName")]
    issue_name: Option<String>,
}

impl SourceIn {
    fn read(self) -> Result<Source> {
        let kind = match self.source_type {
            None => SOURCES[0].to_owned(),
            Some(Value::Number(number)) => {
                let at = number.as_u64().and_then(|at| usize::try_from(at).ok());
                let name = at.and_then(|at| SOURCES.get(at));
                let unknown = || unknown_source(&Value::Number(number.clone()));
                name.map(|name| (*name).to_owned()).ok_or_else(unknown)?
            }
            Some(Value::String(text)) => match SOURCES.iter().find(|name| **name == text) {
                Some(name) => (*name).to_owned(),
                // What judges were called before.
                None if text == "AI_JUDGE" => "LLM_JUDGE".to_owned(),
                None => return Err(unknown_source(&json!(text))),
            },
            Some(other) => return Err(unknown_source(&other)),
        };
        Ok(Source { source_type: kind, source_id: self.source_id })
    }
}

fn unknown_source(value: &Value) -> falaj_base::Error {
    let why = "allowed: HUMAN, LLM_JUDGE, CODE, SOURCE_TYPE_UNSPECIFIED";
    invalid("assessment.source.source_type", value, why)
}

impl ExpectationIn {
    fn read(self) -> Result<Value> {
        if let Some(serialized) = self.serialized_value {
            let format = serialized.serialization_format.unwrap_or_default();
            if format != JSON_FORMAT {
                let why = "Only JSON_FORMAT is supported";
                return Err(invalid("serialization_format", &json!(format), why));
            }
            let text = serialized.value.unwrap_or_default();
            return serde_json::from_str(&text).map_err(|cause| {
                invalid("expectation.serialized_value", &json!(text), &cause.to_string())
            });
        }
        self.value
            .filter(|value| !value.is_null())
            .ok_or_else(|| refused("The `value` field must be specified.").at("expectation.value"))
    }
}

impl AssessmentIn {
    fn said(
        feedback: Option<FeedbackIn>,
        expectation: Option<ExpectationIn>,
        issue: Option<IssueIn>,
    ) -> Result<Option<Said>> {
        Ok(match (feedback, expectation, issue) {
            (None, None, None) => None,
            (Some(feedback), None, None) => {
                Some(Said::Feedback { value: feedback.value, error: feedback.error })
            }
            (None, Some(expectation), None) => {
                Some(Said::Expectation { value: expectation.read()? })
            }
            (None, None, Some(issue)) => {
                Some(Said::Issue { name: issue.issue_name.unwrap_or_default() })
            }
            _ => {
                return Err(refused(
                    "Exactly one of `expectation`, `feedback`, or `issue` should be specified.",
                ));
            }
        })
    }

    /// A new assessment of a trace.
    pub(crate) fn read(self, trace: &str, now: i64) -> Result<Assessment> {
        if self.trace_id.is_some_and(|id| !id.is_empty() && id != trace) {
            return Err(refused("`assessment.trace_id` is not the trace of the request"));
        }
        let said = Self::said(self.feedback, self.expectation, self.issue)?;
        let moment = |name, text: Option<String>| -> Result<i64> {
            text.map_or(Ok(now), |text| milliseconds(name, &text))
        };
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let id = given(self.assessment_id);
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if let Some(id) = id.as_ref().filter(|id| id.len() > 50 || !id.bytes().all(word)) {
            let why = "an id has 1 to 50 letters, digits, `-` and `_`";
            return Err(invalid("assessment.assessment_id", &json!(id), why));
        }
        Ok(Assessment {
            id: id.unwrap_or_else(Assessment::new_id),
            name: required_text("assessment.assessment_name", self.assessment_name)?,
            source: self.source.unwrap_or_default().read()?,
            said: said.ok_or_else(|| refused("Unknown assessment type: None"))?,
            span: given(self.span_id),
            rationale: given(self.rationale),
            metadata: self.metadata,
            created_at: moment("assessment.create_time", self.create_time)?,
            updated_at: moment("assessment.last_update_time", self.last_update_time)?,
            overrides: given(self.overrides),
            valid: self.valid.unwrap_or(true),
        })
    }

    /// The fields that the mask names.
    pub(crate) fn change(self, mask: &str) -> Result<Change> {
        let mut change = Change::default();
        let (mut feedback, mut expectation) = (None, None);
        for path in mask.split(',').map(str::trim).filter(|path| !path.is_empty()) {
            match path {
                "assessment_name" | "assessmentName" => {
                    change.name = Some(self.assessment_name.clone().unwrap_or_default());
                }
                "rationale" => change.rationale = Some(self.rationale.clone().unwrap_or_default()),
                "metadata" => change.metadata = Some(self.metadata.clone()),
                "feedback" => feedback = Some(()),
                "expectation" => expectation = Some(()),
                "valid" => {}
                other => {
                    let why =
                        "allowed: assessment_name, expectation, feedback, rationale, metadata";
                    return Err(invalid("update_mask", &json!(other), why));
                }
            }
        }
        if feedback.is_some() && expectation.is_some() {
            return Err(refused("Cannot specify both `expectation` and `feedback` parameters."));
        }
        let feedback = feedback.and(Some(self.feedback.unwrap_or_default()));
        let expectation = expectation.and(Some(self.expectation.unwrap_or_default()));
        change.said = Self::said(feedback, expectation, None)?;
        Ok(change)
    }
}

/// The body of a request about one assessment.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Body {
    assessment: Option<AssessmentIn>,
    #[serde(alias = "updateMask")]
    update_mask: Option<String>,
}

impl Body {
    pub(crate) fn assessment(self, trace: &str, now: i64) -> Result<Assessment> {
        self.assessment.ok_or_else(|| missing("assessment"))?.read(trace, now)
    }

    pub(crate) fn change(self) -> Result<Change> {
        let assessment = self.assessment.ok_or_else(|| missing("assessment"))?;
        assessment.change(&required_text("update_mask", self.update_mask)?)
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AssessmentShape {
    assessment_id: String,
    assessment_name: String,
    trace_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<String>,
    source: SourceShape,
    create_time: String,
    last_update_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    feedback: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expectation: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issue: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rationale: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overrides: Option<String>,
    valid: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SourceShape {
    source_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_id: Option<String>,
}

impl AssessmentShape {
    pub(crate) fn new(trace: &str, assessment: Assessment) -> Self {
        let (mut feedback, mut expectation, mut issue) = (None, None, None);
        match assessment.said {
            Said::Feedback { value, error: None } => feedback = Some(json!({ "value": value })),
            Said::Feedback { value, error } => {
                feedback = Some(json!({ "value": value, "error": error }));
            }
            Said::Expectation { value } => expectation = Some(expected(value)),
            Said::Issue { name } => issue = Some(json!({ "issue_name": name })),
        }
        Self {
            assessment_id: assessment.id,
            assessment_name: assessment.name,
            trace_id: trace.to_owned(),
            span_id: assessment.span,
            source: SourceShape {
                source_type: assessment.source.source_type,
                source_id: assessment.source.source_id,
            },
            create_time: time(assessment.created_at),
            last_update_time: time(assessment.updated_at),
            feedback,
            expectation,
            issue,
            rationale: assessment.rationale,
            metadata: assessment.metadata,
            overrides: assessment.overrides,
            valid: assessment.valid,
        }
    }
}

/// Lists and objects are told as text, as MLflow does.
fn expected(value: Value) -> Value {
    match value {
        Value::Array(_) | Value::Object(_) => json!({
            "serialized_value": {"serialization_format": JSON_FORMAT, "value": value.to_string()}
        }),
        plain => json!({ "value": plain }),
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Shown {
    pub(crate) assessment: AssessmentShape,
}
