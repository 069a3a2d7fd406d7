//! What other tracing libraries call MLflow's attributes. A span that says `gen_ai.request.model`
//! gets `mlflow.llm.model` beside it, so that token counts add up and clients show it as theirs.
//!
//! MLflow's names, where they are there, stay as they are, and nothing that a library said is taken
//! away. Prices are not here: the server knows none.

mod event;
mod names;
mod said;
mod special;
#[cfg(test)]
mod tests;

use names::Names;
use said::Said;
use serde_json::{Map, Value};
use special::Claude;

use super::message::{Any, Event, KeyValue, attribute};
use super::value::{any, plain};

pub(super) const SPAN_TYPE: &str = "mlflow.spanType";
pub(super) const INPUTS: &str = "mlflow.spanInputs";
pub(super) const OUTPUTS: &str = "mlflow.spanOutputs";
pub(super) const TOKENS: &str = "mlflow.chat.tokenUsage";
const MODEL: &str = "mlflow.llm.model";
const PROVIDER: &str = "mlflow.llm.provider";
const FORMAT: &str = "mlflow.message.format";
const TOOLS: &str = "mlflow.chat.tools";
/// The type of a span that nobody knows.
const UNKNOWN: &str = "UNKNOWN";

const COUNTS: [&str; 5] = [
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
];

/// A library whose names are known.
#[derive(Clone, Copy, Debug)]
enum Library {
    OpenInference,
    GeminiCli,
    ClaudeCode,
    GenAi,
    Traceloop,
    GoogleAdk,
    Vercel,
    VoltAgent,
    LiveKit,
    Laminar,
    Langfuse,
}

/// In the order in which MLflow asks them: the first that says something counts.
const LIBRARIES: [Library; 11] = [
    Library::OpenInference,
    Library::GeminiCli,
    Library::ClaudeCode,
    Library::GenAi,
    Library::Traceloop,
    Library::GoogleAdk,
    Library::Vercel,
    Library::VoltAgent,
    Library::LiveKit,
    Library::Laminar,
    Library::Langfuse,
];

/// How the names of these libraries begin. A span that has none of them is not looked at further.
const BEGINNINGS: [&str; 17] = [
    "agent.messages",
    "ai.",
    "embedding.",
    "entity.type",
    "gcp.vertex.agent.",
    "gen_ai.",
    "input",
    "langfuse.",
    "lk.",
    "llm.",
    "lmnr.",
    "openinference.",
    "output",
    "span.type",
    "traceloop.",
    "usage.",
    "voltagent.",
];

/// Adds MLflow's names for what is said in another library's; whether anything was added.
pub(super) fn translate(attributes: &mut Vec<KeyValue>, events: &[Event]) -> bool {
    let mut added = translated(&Said(attributes), events);
    if let Some(model) = unnamed_model(attributes, &added) {
        added.push(KeyValue::text(MODEL, model));
    }
    let changed = !added.is_empty();
    attributes.extend(added);
    changed
}

fn translated(said: &Said<'_>, events: &[Event]) -> Vec<KeyValue> {
    let mut added = Vec::new();
    let known = said.keys().any(|key| BEGINNINGS.iter().any(|begin| key.starts_with(begin)))
        || events.iter().any(|event| event.name.starts_with("gen_ai."));
    if !known {
        return added;
    }
    let current = said.word(SPAN_TYPE);
    if current.as_deref().is_none_or(|current| current == UNKNOWN)
        && (current.is_some() || !said.has(SPAN_TYPE))
        && let Some(kind) = LIBRARIES.iter().find_map(|library| library.span_type(said))
        && current.as_deref() != Some(kind)
    {
        added.push(KeyValue::text(SPAN_TYPE, kind));
    }
    let all = |ask: &dyn Fn(Library) -> Option<Any>| LIBRARIES.iter().find_map(|one| ask(*one));
    let mut add = |key: &str, find: &dyn Fn() -> Option<Any>| {
        if !said.has(key)
            && let Some(value) = find()
        {
            added.push(KeyValue::any(key, value));
        }
    };
    add(INPUTS, &|| all(&|library| library.inputs(said)).or_else(|| event::inputs(events)));
    add(OUTPUTS, &|| {
        all(&|library| library.outputs(said)).or_else(|| event::outputs(events, said))
    });
    add(MODEL, &|| all(&|library| said.first(library.names().models)));
    add(PROVIDER, &|| all(&|library| said.first(library.names().provider)));
    add(TOOLS, &|| all(&|library| said.first(library.names().tools)));
    add(FORMAT, &|| all(&|library| library.format(said).map(|name| Any::Text(name.to_owned()))));
    add(TOKENS, &|| all(&|library| counted(library.counts(said))));
    added
}

impl Library {
    /// What it can be translated by without knowing more.
    fn names(self) -> &'static Names {
        match self {
            Self::OpenInference => &names::OPEN_INFERENCE,
            Self::GenAi => &names::GEN_AI,
            Self::Traceloop => &names::TRACELOOP,
            Self::GoogleAdk => &names::GOOGLE_ADK,
            Self::Vercel => &names::VERCEL,
            Self::VoltAgent => &names::VOLTAGENT,
            Self::LiveKit => &names::LIVEKIT,
            Self::Laminar => &names::LAMINAR,
            Self::Langfuse => &names::LANGFUSE,
            Self::GeminiCli | Self::ClaudeCode => &names::NONE,
        }
    }

    fn span_type(self, said: &Said<'_>) -> Option<&'static str> {
        match self {
            Self::GeminiCli => special::gemini_type(said),
            Self::ClaudeCode => Claude::of(said).map(Claude::span_type),
            Self::LiveKit => special::livekit_type(said),
            _ => self.names().span_type(said),
        }
    }

    fn inputs(self, said: &Said<'_>) -> Option<Any> {
        match self {
            Self::GeminiCli => special::gemini_inputs(said),
            Self::ClaudeCode => Claude::of(said)?.inputs(said),
            Self::Vercel if special::is_vercel_chat(said) => special::below(said, "ai.prompt."),
            Self::Traceloop => self.names().inputs(said).or_else(|| {
                special::numbered(said, &["gen_ai.prompt.", ".content"]).or_else(|| {
                    let call = ["gen_ai.completion.", ".tool_calls.", ".arguments"];
                    special::numbered(said, &call)
                })
            }),
            _ => self.names().inputs(said),
        }
    }

    fn outputs(self, said: &Said<'_>) -> Option<Any> {
        match self {
            Self::GeminiCli => special::gemini_outputs(said),
            Self::ClaudeCode => Claude::of(said)?.outputs(said),
            Self::Vercel if special::is_vercel_chat(said) => special::below(said, "ai.response."),
            Self::Traceloop => {
                let numbered = || special::numbered(said, &["gen_ai.completion.", ".content"]);
                self.names().outputs(said).or_else(numbered)
            }
            _ => self.names().outputs(said),
        }
    }

    fn counts(self, said: &Said<'_>) -> [Option<i64>; 5] {
        match self {
            Self::ClaudeCode => Claude::of(said).map_or([None; 5], |kind| kind.counts(said)),
            _ => self.names().counts(said),
        }
    }

    /// How clients show its messages as a conversation.
    fn format(self, said: &Said<'_>) -> Option<&'static str> {
        let (format, is) = match self {
            Self::GeminiCli => ("gemini", special::is_gemini(said)),
            Self::Vercel => ("vercel_ai", special::is_vercel_chat(said) && !said.has(INPUTS)),
            Self::VoltAgent => {
                let own = ["voltagent.operation_id", "voltagent.conversation_id"];
                ("voltagent", own.iter().any(|key| said.has(key)))
            }
            Self::LiveKit => ("livekit", said.keys().any(|key| key.starts_with("lk."))),
            Self::Laminar => ("openai", said.has("lmnr.span.type")),
            _ => return None,
        };
        is.then_some(format)
    }
}

/// The counts under MLflow's names; the total is added up where it is not told.
fn counted(mut found: [Option<i64>; 5]) -> Option<Any> {
    if found[2].is_none()
        && let (Some(input), Some(output)) = (found[0], found[1])
    {
        found[2] = input.checked_add(output);
    }
    if found[..3].iter().all(Option::is_none) {
        return None;
    }
    let pairs = COUNTS.iter().zip(found);
    let given = pairs.filter_map(|(name, count)| Some(((*name).to_owned(), count?.into())));
    any(&Value::Object(given.collect::<Map<_, _>>())).value
}

/// A model that nobody named, but that the inputs or outputs tell.
fn unnamed_model(attributes: &[KeyValue], added: &[KeyValue]) -> Option<String> {
    let get = |key: &str| attribute(attributes, key).or_else(|| attribute(added, key));
    if get(MODEL).is_some() {
        return None;
    }
    [INPUTS, OUTPUTS].iter().find_map(|key| {
        let model = match get(key)? {
            // Most spans say nothing of a model: only those that may are read.
            Any::Text(text) if text.contains("\"model\"") => {
                serde_json::from_str::<Value>(text).ok()?.get("model").cloned()
            }
            Any::Map(map) => attribute(&map.values, "model").map(|model| plain(Some(model))),
            _ => None,
        };
        match model {
            Some(Value::String(model)) if !model.is_empty() => Some(model),
            _ => None,
        }
    })
}

/// An attribute that is an object, also one written as text.
pub(super) fn object(attributes: &[KeyValue], key: &str) -> Option<Map<String, Value>> {
    let value = match attribute(attributes, key)? {
        Any::Text(text) => serde_json::from_str(text).ok()?,
        other => plain(Some(other)),
    };
    match value {
        Value::Object(fields) => Some(fields),
        _ => None,
    }
}
