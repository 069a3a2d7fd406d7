//! Conditions on what is counted: `trace.status = "OK"`, one in each text.

use falaj_base::Result;
use falaj_mlflow::error::refused;

use crate::assessment::{Assessment, Said};
use crate::otlp::message::Span;
use crate::otlp::span_type;
use crate::span::shape;
use crate::trace::Trace;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    on: On,
    value: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum On {
    State,
    Tag(String),
    Metadata(String),
    SpanName,
    SpanStatus,
    SpanType,
    AssessmentName,
    AssessmentType,
}

impl Condition {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let shown = || text.chars().take(200).collect::<String>();
        let bad =
            |why: &str| refused(format!("Invalid filter: '{}'. {why}", shown())).at("filters");
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| bad("Expected one filter clause with the '=' operator."))?;
        let name = name.trim();
        if name.ends_with(['!', '<', '>']) {
            return Err(bad("Only the '=' operator is supported."));
        }
        let value = unquoted(value.trim(), &['\'', '"'])
            .ok_or_else(|| bad("Expected a quoted string value (e.g. 'my-value')."))?;
        let mut parts = name.splitn(3, '.');
        let view = parts.next().unwrap_or_default();
        let (entity, key) = (parts.next().unwrap_or_default(), parts.next());
        let key = key.map(|key| unquoted(key, &['`', '\'', '"']).unwrap_or(key).to_owned());
        let on = match (view, entity, key) {
            ("trace", "status", None) => On::State,
            ("trace", "tag", Some(key)) => On::Tag(key),
            ("trace", "metadata", Some(key)) => On::Metadata(key),
            ("span", "name", None) => On::SpanName,
            ("span", "status", None) => On::SpanStatus,
            ("span", "type", None) => On::SpanType,
            ("assessment", "name", None) => On::AssessmentName,
            ("assessment", "type", None) => On::AssessmentType,
            _ => {
                return Err(bad(
                    "Allowed: trace.status, trace.tag.<key>, trace.metadata.<key>, span.name, \
                     span.status, span.type, assessment.name, assessment.type.",
                ));
            }
        };
        Ok(Self { on, value: value.to_owned() })
    }

    pub(crate) fn holds_of_trace(&self, trace: &Trace) -> bool {
        let found = match &self.on {
            On::State => Some(trace.state.as_str()),
            On::Tag(key) => trace.tags.get(key).map(String::as_str),
            On::Metadata(key) => trace.metadata.get(key).map(String::as_str),
            _ => return true,
        };
        found == Some(self.value.as_str())
    }

    pub(crate) fn holds_of_span(&self, span: &Span) -> bool {
        let found = match &self.on {
            On::SpanName => Some(span.name.as_str()),
            On::SpanStatus => Some(shape::status_word(span)),
            On::SpanType => span_type(span),
            _ => return true,
        };
        found == Some(self.value.as_str())
    }

    pub(crate) fn holds_of_assessment(&self, assessment: &Assessment) -> bool {
        let kind = match &assessment.said {
            Said::Feedback { .. } => "feedback",
            Said::Expectation { .. } => "expectation",
            Said::Issue { .. } => "issue",
        };
        match &self.on {
            On::AssessmentName => assessment.name == self.value,
            On::AssessmentType => kind == self.value,
            _ => true,
        }
    }
}

fn unquoted<'a>(text: &'a str, quotes: &[char]) -> Option<&'a str> {
    let first = text.chars().next().filter(|first| quotes.contains(first))?;
    text.strip_prefix(first)?.strip_suffix(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_clause_each() {
        for (text, on, value) in [
            ("trace.status = \"OK\"", On::State, "OK"),
            ("trace.tag.`a.b`='x=y'", On::Tag("a.b".into()), "x=y"),
            ("span.type = 'LLM'", On::SpanType, "LLM"),
        ] {
            assert_eq!(Condition::parse(text).unwrap(), Condition { on, value: value.into() });
        }
        for bad in [
            "",
            "trace.status",
            "trace.status != 'x'",
            "trace.status = x",
            "a.b = 'c'",
            "trace.tag = 'x'",
            "trace.status.x = 'y'",
            "span.cost = '1'",
        ] {
            assert!(Condition::parse(bad).is_err(), "{bad}");
        }
    }
}
