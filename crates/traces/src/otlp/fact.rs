//! What a trace takes from one of its spans.

use serde_json::{Map, Value};

use super::convention::{INPUTS, OUTPUTS, TOKENS, object};
use super::message::{Any, Span, attribute};
use super::value::{compared, dumped};
use crate::span::preview::preview;

const COST: &str = "mlflow.llm.cost";
const TRACE_TAG: &str = "mlflow.traceTag.";
const SESSIONS: [&str; 2] = ["session.id", "gen_ai.conversation.id"];
const USER: &str = "user.id";
const ERROR: i32 = 2;

/// The few facts of a span that its trace shows or adds up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    pub failed: bool,
    pub tokens: Option<Map<String, Value>>,
    pub cost: Option<Map<String, Value>>,
    pub session: Option<String>,
    pub user: Option<String>,
    /// Only of a span without a parent.
    pub root: Option<Root>,
}

/// What the first span says of the whole trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Root {
    pub request: Option<String>,
    pub response: Option<String>,
    pub tags: Vec<(String, String)>,
}

impl Facts {
    #[must_use]
    pub fn of(span: &Span, is_root: bool) -> Self {
        let text = |key: &str| attribute(&span.attributes, key).map(compared);
        let shown = |key: &str, role: &str| {
            let value = attribute(&span.attributes, key)?;
            Some(preview(&dumped(Some(value)), role))
        };
        let tags = || {
            let tagged = span.attributes.iter().filter_map(|pair| {
                let key = pair.key.strip_prefix(TRACE_TAG).filter(|key| !key.is_empty())?;
                Some((key.to_owned(), compared(pair.value()?)))
            });
            tagged.collect()
        };
        Self {
            failed: span.status.as_ref().is_some_and(|status| status.code == ERROR),
            tokens: object(&span.attributes, TOKENS),
            cost: object(&span.attributes, COST),
            session: SESSIONS.iter().find_map(|key| text(key)).filter(|text| !text.is_empty()),
            user: text(USER).filter(|text| !text.is_empty()),
            root: is_root.then(|| Root {
                request: shown(INPUTS, "user"),
                response: shown(OUTPUTS, "assistant"),
                tags: tags(),
            }),
        }
    }
}

/// The type of a span, such as `TOOL`.
pub(crate) fn span_type(span: &Span) -> Option<&str> {
    match attribute(&span.attributes, super::convention::SPAN_TYPE) {
        Some(Any::Text(text)) => Some(text),
        _ => None,
    }
}
