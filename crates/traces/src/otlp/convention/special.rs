//! Libraries that MLflow cannot translate by names alone: how they are known, and how what they say
//! is put together.

use serde_json::{Map, Value, json};

use super::names::GEN_AI;
use super::said::{Said, opened};
use crate::otlp::message::Any;
use crate::otlp::value::{any, plain};

/// What a coding agent writes where its user did not allow the content to be sent.
const REDACTED: &str = "<REDACTED>";

pub(super) fn is_gemini(said: &Said<'_>) -> bool {
    said.word("gen_ai.agent.name").is_some_and(|name| name == "gemini-cli")
}

pub(super) fn gemini_type(said: &Said<'_>) -> Option<&'static str> {
    let operation = said.word("gen_ai.operation.name").filter(|_| is_gemini(said))?;
    match operation.as_ref() {
        "llm_call" => Some("LLM"),
        "tool_call" => Some("TOOL"),
        "agent_call" => Some("AGENT"),
        _ => None,
    }
}

/// In the form of Gemini's own interface, which clients show as a conversation.
pub(super) fn gemini_inputs(said: &Said<'_>) -> Option<Any> {
    let value = GEN_AI.inputs(said).filter(|_| is_gemini(said))?;
    match plain(Some(&value)) {
        contents @ (Value::Array(_) | Value::String(_)) => {
            any(&json!({ "contents": contents })).value
        }
        _ => Some(value),
    }
}

/// It sends one piece for each step of a stream; together they are one answer.
pub(super) fn gemini_outputs(said: &Said<'_>) -> Option<Any> {
    let value = GEN_AI.outputs(said).filter(|_| is_gemini(said))?;
    let Value::Array(pieces) = plain(Some(&value)) else { return Some(value) };
    let parts: Vec<Value> =
        pieces.iter().filter_map(|piece| piece["parts"].as_array()).flatten().cloned().collect();
    if parts.is_empty() {
        return Some(value);
    }
    any(&json!({ "candidates": [{ "content": { "role": "model", "parts": parts } }] })).value
}

/// What a span of Claude Code is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claude {
    Interaction,
    Request,
    Tool,
}

impl Claude {
    /// Some of its versions write the name of the product before it, some do not.
    pub(super) fn of(said: &Said<'_>) -> Option<Self> {
        let kind = said.word("span.type")?;
        match kind.strip_prefix("claude_code.").unwrap_or(&kind) {
            "interaction" => Some(Self::Interaction),
            "llm_request" => Some(Self::Request),
            "tool" => Some(Self::Tool),
            _ => None,
        }
    }

    pub(super) fn span_type(self) -> &'static str {
        match self {
            Self::Interaction => "AGENT",
            Self::Request => "LLM",
            Self::Tool => "TOOL",
        }
    }

    /// It counts what came from a cache beside the input; MLflow counts it as input, too.
    pub(super) fn counts(self, said: &Said<'_>) -> [Option<i64>; 5] {
        if self != Self::Request {
            return [None; 5];
        }
        let read = said.count("cache_read_tokens");
        let made = said.count("cache_creation_tokens");
        let input = said.count("input_tokens").and_then(|input| {
            input.checked_add(read.unwrap_or_default())?.checked_add(made.unwrap_or_default())
        });
        [input, said.count("output_tokens"), None, read, made]
    }

    pub(super) fn inputs(self, said: &Said<'_>) -> Option<Any> {
        match self {
            Self::Interaction => shown(said, "user_prompt").or_else(|| shown(said, "new_context")),
            Self::Request => shown(said, "new_context"),
            Self::Tool => shown(said, "tool_input").or_else(|| {
                let details = ["full_command", "file_path", "skill_name", "subagent_type"];
                let given = details
                    .iter()
                    .filter_map(|key| Some(((*key).to_owned(), plain(Some(&shown(said, key)?)))));
                let given: Map<String, Value> = given.collect();
                if given.is_empty() { None } else { any(&Value::Object(given)).value }
            }),
        }
    }

    pub(super) fn outputs(self, said: &Said<'_>) -> Option<Any> {
        match self {
            Self::Interaction => None,
            Self::Request => shown(said, "response.model_output"),
            Self::Tool => shown(said, "new_context"),
        }
    }
}

/// The content of an attribute, unless it is hidden.
pub(super) fn shown(said: &Said<'_>, key: &str) -> Option<Any> {
    said.content(key).filter(|value| !matches!(value, Any::Text(text) if text == REDACTED))
}

/// Whether it is one call of a model within the Vercel AI SDK, whose messages are in many attributes.
pub(super) fn is_vercel_chat(said: &Said<'_>) -> bool {
    let operation = said.word("ai.operationId");
    operation.is_some_and(|name| {
        ["ai.generateText.doGenerate", "ai.streamText.doStream"].contains(&name.as_ref())
    })
}

/// All attributes below a prefix, as one object.
pub(super) fn below(said: &Said<'_>, prefix: &str) -> Option<Any> {
    let mut found = Map::new();
    for pair in said.0 {
        if let (Some(name), Some(value)) = (pair.key.strip_prefix(prefix), pair.value()) {
            found.insert(name.to_owned(), opened(value));
        }
    }
    // Each tool is JSON in a text of its own.
    if let Some(Value::Array(tools)) = found.get_mut("tools") {
        for tool in tools {
            let inside = match tool {
                Value::String(text) => serde_json::from_str(text).ok(),
                _ => None,
            };
            if let Some(inside) = inside {
                *tool = inside;
            }
        }
    }
    if found.is_empty() { None } else { any(&Value::Object(found)).value }
}

pub(super) fn livekit_type(said: &Said<'_>) -> Option<&'static str> {
    if said.has("gen_ai.request.model") {
        return Some("LLM");
    }
    if let Some(operation) = said.word("gen_ai.operation.name") {
        let operation = operation.to_lowercase();
        if let Some((_, kind)) = GEN_AI.kinds.iter().find(|(name, _)| *name == operation) {
            return Some(kind);
        }
    }
    said.keys().find_map(|key| match key {
        "lk.retry_count" => Some("LLM"),
        "lk.agent_name" | "lk.instructions" | "lk.generation_id" => Some("AGENT"),
        "lk.input_text"
        | "lk.user_transcript"
        | "lk.transcript_confidence"
        | "lk.transcription_delay" => Some("UNKNOWN"),
        _ if key.starts_with("lk.function_tool") => Some("TOOL"),
        _ if key.starts_with("lk.tts") => Some("UNKNOWN"),
        _ => None,
    })
}

/// The first attribute with a number in its name that says something: Traceloop writes one for each
/// message. `["a.", ".b"]` stands for `a.0.b`, `a.1.b` and so on.
pub(super) fn numbered(said: &Said<'_>, name: &[&str]) -> Option<Any> {
    said.keys().filter(|key| is_numbered(key, name)).find_map(|key| said.content(key))
}

fn is_numbered(key: &str, name: &[&str]) -> bool {
    let mut rest = key;
    for (at, part) in name.iter().enumerate() {
        if at > 0 {
            let behind = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            if behind.len() == rest.len() {
                return false;
            }
            rest = behind;
        }
        let Some(behind) = rest.strip_prefix(part) else { return false };
        rest = behind;
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_numbers() {
        let call = ["c.", ".calls.", ".arguments"];
        for (key, name, fits) in [
            ("p.0.content", &["p.", ".content"][..], true),
            ("p.12.content", &["p.", ".content"], true),
            ("p..content", &["p.", ".content"], false),
            ("p.x.content", &["p.", ".content"], false),
            ("p.0.contents", &["p.", ".content"], false),
            ("c.0.calls.1.arguments", &call, true),
            ("c.0.calls..arguments", &call, false),
        ] {
            assert_eq!(is_numbered(key, name), fits, "{key}");
        }
    }
}
