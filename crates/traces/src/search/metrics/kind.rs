//! Which metrics there are. Names, dimensions and aggregations are MLflow's.

use falaj_base::Result;
use falaj_mlflow::error::{invalid, refused};
use serde_json::{Value, json};

use super::group::Aggregation;

/// What is counted over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Traces,
    Spans,
    Assessments,
}

impl View {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Traces, "TRACES"), (Self::Spans, "SPANS"), (Self::Assessments, "ASSESSMENTS")];

    /// By its name, or its number.
    pub(crate) fn parse(value: &Value) -> Result<Self> {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let mut numbered = (1..).zip(Self::ALL);
        let found =
            numbered.find(|(number, (_, name))| *name == text || number.to_string() == text);
        found.map(|(_, (view, _))| view).ok_or_else(|| {
            invalid("view_type", &json!(text), "allowed: TRACES, SPANS, ASSESSMENTS")
        })
    }
}

/// One metric of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Metric(&'static Known);

#[derive(Debug, PartialEq, Eq)]
struct Known {
    view: View,
    name: &'static str,
    aggregations: &'static [&'static str],
    dimensions: &'static [&'static str],
}

const COUNT: &[&str] = &["COUNT"];
const SPREAD: &[&str] = &["AVG", "MAX", "MIN", "PERCENTILE"];
const SUMS: &[&str] = &["AVG", "MAX", "MIN", "PERCENTILE", "SUM"];
const BY_NAME: &[&str] = &["trace_name"];
const BY_MODEL: &[&str] = &["span_model_name", "span_model_provider"];

const fn known(
    view: View,
    name: &'static str,
    aggregations: &'static [&'static str],
    dimensions: &'static [&'static str],
) -> Known {
    Known { view, name, aggregations, dimensions }
}

static KNOWN: [Known; 15] = [
    known(View::Traces, "trace_count", COUNT, &["trace_name", "trace_status"]),
    known(View::Traces, "session_count", COUNT, &[]),
    known(View::Traces, "latency", SPREAD, BY_NAME),
    known(View::Traces, "input_tokens", SUMS, BY_NAME),
    known(View::Traces, "output_tokens", SUMS, BY_NAME),
    known(View::Traces, "total_tokens", SUMS, BY_NAME),
    known(View::Traces, "cache_read_input_tokens", SUMS, BY_NAME),
    known(View::Traces, "cache_creation_input_tokens", SUMS, BY_NAME),
    known(
        View::Spans,
        "span_count",
        COUNT,
        &["span_model_name", "span_model_provider", "span_name", "span_status", "span_type"],
    ),
    known(View::Spans, "latency", SPREAD, &["span_name", "span_status"]),
    known(View::Spans, "input_cost", SUMS, BY_MODEL),
    known(View::Spans, "output_cost", SUMS, BY_MODEL),
    known(View::Spans, "total_cost", SUMS, BY_MODEL),
    known(View::Assessments, "assessment_count", COUNT, &["assessment_name", "assessment_value"]),
    known(View::Assessments, "assessment_value", SPREAD, &["assessment_name"]),
];

impl Metric {
    pub(crate) fn find(view: View, name: &str) -> Result<Self> {
        let of_view = || KNOWN.iter().filter(move |known| known.view == view);
        let found = of_view().find(|known| known.name == name);
        found.map(Self).ok_or_else(|| {
            let names: Vec<&str> = of_view().map(|known| known.name).collect();
            let name: String = name.chars().take(100).collect();
            refused(format!("metric_name must be one of {names:?}, got '{name}'")).at("metric_name")
        })
    }

    pub(crate) fn view(self) -> View {
        self.0.view
    }

    pub(crate) fn name(self) -> &'static str {
        self.0.name
    }

    pub(crate) fn aggregations(self) -> &'static [&'static str] {
        self.0.aggregations
    }

    pub(crate) fn takes(self, aggregation: &Aggregation) -> bool {
        self.0.aggregations.contains(&aggregation.word())
    }

    pub(crate) fn dimension(self, name: &str) -> Result<&'static str> {
        let found = self.0.dimensions.iter().find(|dimension| **dimension == name);
        found.copied().ok_or_else(|| {
            let name: String = name.chars().take(100).collect();
            refused(format!(
                "Found invalid dimension(s): ['{name}']. Supported dimensions: {:?}",
                self.0.dimensions
            ))
            .at("dimensions")
        })
    }
}
