//! What other tracing libraries call MLflow's attributes. A span that says `gen_ai.request.model`
//! gets `mlflow.llm.model` beside it, so that token counts add up and clients show it as theirs.

use serde_json::Value;

use super::message::{Any, KeyValue, attribute};
use super::value::{any, plain};

pub(super) const SPAN_TYPE: &str = "mlflow.spanType";
pub(super) const INPUTS: &str = "mlflow.spanInputs";
pub(super) const OUTPUTS: &str = "mlflow.spanOutputs";
pub(super) const TOKENS: &str = "mlflow.chat.tokenUsage";
const MODEL: &str = "mlflow.llm.model";
const PROVIDER: &str = "mlflow.llm.provider";

/// One library's names.
struct Convention {
    kind: &'static str,
    kinds: &'static [(&'static str, &'static str)],
    /// Under which names token counts stand: input, output, total, read from and put into a cache.
    tokens: [&'static [&'static str]; 5],
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
    models: &'static [&'static str],
    provider: &'static str,
}

const COUNTS: [&str; 5] = [
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
];

const CONVENTIONS: &[Convention] = &[
    // OpenInference
    Convention {
        kind: "openinference.span.kind",
        kinds: &[
            ("TOOL", "TOOL"),
            ("CHAIN", "CHAIN"),
            ("LLM", "LLM"),
            ("RETRIEVER", "RETRIEVER"),
            ("EMBEDDING", "EMBEDDING"),
            ("AGENT", "AGENT"),
            ("RERANKER", "RERANKER"),
            ("GUARDRAIL", "GUARDRAIL"),
            ("EVALUATOR", "EVALUATOR"),
        ],
        tokens: [
            &["llm.token_count.prompt"],
            &["llm.token_count.completion"],
            &["llm.token_count.total"],
            &["llm.token_count.prompt_details.cache_read"],
            &["llm.token_count.prompt_details.cache_write"],
        ],
        inputs: &["input.value"],
        outputs: &["output.value"],
        models: &[
            "llm.response.model_name",
            "llm.model_name",
            "llm.request.model_name",
            "embedding.model_name",
        ],
        provider: "llm.provider",
    },
    // OpenTelemetry's own, for generative AI
    Convention {
        kind: "gen_ai.operation.name",
        kinds: &[
            ("chat", "CHAT_MODEL"),
            ("create_agent", "AGENT"),
            ("embeddings", "EMBEDDING"),
            ("execute_tool", "TOOL"),
            ("generate_content", "LLM"),
            ("invoke_agent", "AGENT"),
            ("text_completion", "LLM"),
            ("response", "LLM"),
        ],
        tokens: [
            &["gen_ai.usage.input_tokens"],
            &["gen_ai.usage.output_tokens"],
            &[],
            &["gen_ai.usage.cache_read.input_tokens"],
            &["gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.cache_creation.input_tokens"],
        ],
        inputs: &["gen_ai.input.messages", "gen_ai.tool.call.arguments"],
        outputs: &["gen_ai.output.messages", "gen_ai.tool.call.result"],
        models: &["gen_ai.response.model", "gen_ai.request.model"],
        provider: "gen_ai.provider.name",
    },
    // Traceloop
    Convention {
        kind: "traceloop.span.kind",
        kinds: &[("workflow", "WORKFLOW"), ("task", "TASK"), ("agent", "AGENT"), ("tool", "TOOL")],
        tokens: [
            &["gen_ai.usage.prompt_tokens"],
            &["gen_ai.usage.completion_tokens"],
            &["llm.usage.total_tokens"],
            &["gen_ai.usage.cache_read_input_tokens"],
            &["gen_ai.usage.cache_creation_input_tokens"],
        ],
        inputs: &["traceloop.entity.input"],
        outputs: &["traceloop.entity.output"],
        models: &[],
        provider: "gen_ai.system",
    },
];

/// Adds MLflow's names for what is said in another library's; whether anything was added. What
/// already has MLflow's name stays as it is.
pub(super) fn translate(attributes: &mut Vec<KeyValue>) -> bool {
    let known = attributes.iter().any(|pair| {
        ["gen_ai.", "openinference.", "llm.", "traceloop.", "input.", "output.", "embedding."]
            .iter()
            .any(|prefix| pair.key.starts_with(prefix))
    });
    if !known {
        return false;
    }
    let mut added = Vec::new();
    let missing = |key: &str| attribute(attributes, key).is_none();
    let untyped = match attribute(attributes, SPAN_TYPE) {
        None => true,
        Some(Any::Text(text)) => text == "UNKNOWN",
        Some(_) => false,
    };
    if untyped && let Some(kind) = CONVENTIONS.iter().find_map(|c| c.span_type(attributes)) {
        added.push(KeyValue::text(SPAN_TYPE, kind));
    }
    let first = |names: fn(&Convention) -> &'static [&'static str]| {
        let mut names = CONVENTIONS.iter().flat_map(names);
        names.find_map(|name| attribute(attributes, name))
    };
    for (key, found) in [
        (INPUTS, first(|c| c.inputs).map(unpacked)),
        (OUTPUTS, first(|c| c.outputs).map(unpacked)),
        (MODEL, first(|c| c.models).cloned()),
        (PROVIDER, CONVENTIONS.iter().find_map(|c| attribute(attributes, c.provider)).cloned()),
    ] {
        if let Some(value) = found.filter(|_| missing(key)) {
            added.push(KeyValue::any(key, value));
        }
    }
    if missing(TOKENS)
        && let Some(counts) = CONVENTIONS.iter().find_map(|c| c.counts(attributes))
    {
        added.push(KeyValue { key: TOKENS.to_owned(), value: Some(any(&counts)) });
    }
    let changed = !added.is_empty();
    attributes.extend(added);
    changed
}

impl Convention {
    fn span_type(&self, attributes: &[KeyValue]) -> Option<&'static str> {
        let Some(Any::Text(said)) = attribute(attributes, self.kind) else { return None };
        self.kinds.iter().find(|(name, _)| name == said).map(|(_, kind)| *kind)
    }

    fn counts(&self, attributes: &[KeyValue]) -> Option<Value> {
        let count = |names: &&'static [&'static str]| {
            names.iter().find_map(|name| whole(attribute(attributes, name)?))
        };
        let mut found = self.tokens.each_ref().map(count);
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
        Some(Value::Object(given.collect()))
    }
}

fn whole(value: &Any) -> Option<i64> {
    match value {
        Any::Int(number) => Some(*number),
        Any::Text(text) => text.parse().ok(),
        _ => None,
    }
}

/// Libraries put JSON into texts; MLflow keeps what the text says.
fn unpacked(value: &Any) -> Any {
    let Any::Text(text) = value else { return value.clone() };
    match serde_json::from_str::<Value>(text) {
        Ok(inside @ (Value::Object(_) | Value::Array(_))) => {
            any(&inside).value.unwrap_or_else(|| value.clone())
        }
        _ => value.clone(),
    }
}

/// An attribute that is an object, also one written as text.
pub(super) fn object(attributes: &[KeyValue], key: &str) -> Option<serde_json::Map<String, Value>> {
    let value = match attribute(attributes, key)? {
        Any::Text(text) => serde_json::from_str(text).ok()?,
        other => plain(Some(other)),
    };
    match value {
        Value::Object(fields) => Some(fields),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_become_ours() {
        let mut attributes = vec![
            KeyValue::text("gen_ai.operation.name", "chat"),
            KeyValue::text("gen_ai.request.model", "m-1"),
            KeyValue::any("gen_ai.usage.input_tokens", Any::Int(3)),
            KeyValue::any("gen_ai.usage.output_tokens", Any::Int(4)),
            KeyValue::text("gen_ai.input.messages", "[{\"role\": \"user\"}]"),
            KeyValue::text(SPAN_TYPE, "UNKNOWN"),
        ];
        assert!(translate(&mut attributes));
        let text = |key| plain(attribute(&attributes, key)).to_string();
        assert_eq!(text(SPAN_TYPE), "\"CHAT_MODEL\"");
        assert_eq!(text(MODEL), "\"m-1\"");
        assert_eq!(text(INPUTS), "[{\"role\":\"user\"}]");
        let tokens = object(&attributes, TOKENS).unwrap();
        assert_eq!(tokens["total_tokens"], 7);
        let before = attributes.len();
        assert!(!translate(&mut attributes), "once is enough");
        assert_eq!(attributes.len(), before);
    }

    #[test]
    fn our_own_names_stay() {
        let mut plain = vec![KeyValue::text(SPAN_TYPE, "TOOL"), KeyValue::text("a", "b")];
        assert!(!translate(&mut plain));
        let mut both = vec![
            KeyValue::text(SPAN_TYPE, "TOOL"),
            KeyValue::text("openinference.span.kind", "LLM"),
        ];
        assert!(!translate(&mut both));
    }
}
