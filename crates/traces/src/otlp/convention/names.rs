//! What each tracing library calls MLflow's attributes, in the order in which MLflow asks them. A
//! library that needs more than names is in [`special`](super::special).

use super::said::Said;
use crate::otlp::message::Any;

/// One library's names.
pub(super) struct Names {
    /// The attributes that say what kind of span it is.
    pub kind: &'static [&'static str],
    /// What they say, and what MLflow calls it.
    pub kinds: &'static [(&'static str, &'static str)],
    /// Under which names token counts stand: input, output, total, read from and put into a cache.
    pub tokens: [&'static [&'static str]; 5],
    pub inputs: &'static [&'static str],
    pub outputs: &'static [&'static str],
    pub models: &'static [&'static str],
    pub provider: &'static [&'static str],
    pub tools: &'static [&'static str],
}

pub(super) const NONE: Names = Names {
    kind: &[],
    kinds: &[],
    tokens: [&[], &[], &[], &[], &[]],
    inputs: &[],
    outputs: &[],
    models: &[],
    provider: &[],
    tools: &[],
};

pub(super) const OPEN_INFERENCE: Names = Names {
    kind: &["openinference.span.kind"],
    kinds: &[
        ("TOOL", "TOOL"),
        ("CHAIN", "CHAIN"),
        ("LLM", "LLM"),
        ("RETRIEVER", "RETRIEVER"),
        ("EMBEDDING", "EMBEDDING"),
        ("AGENT", "AGENT"),
        ("RERANKER", "RERANKER"),
        ("UNKNOWN", "UNKNOWN"),
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
    provider: &["llm.provider"],
    ..NONE
};

/// OpenTelemetry's own, for generative AI.
pub(super) const GEN_AI: Names = Names {
    kind: &["gen_ai.operation.name"],
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
    provider: &["gen_ai.provider.name"],
    tools: &["gen_ai.tool.definitions"],
};

/// Its numbered names, such as `gen_ai.prompt.0.content`, are in [`special`](super::special).
pub(super) const TRACELOOP: Names = Names {
    kind: &["traceloop.span.kind"],
    kinds: &[
        ("workflow", "WORKFLOW"),
        ("task", "TASK"),
        ("agent", "AGENT"),
        ("tool", "TOOL"),
        ("unknown", "UNKNOWN"),
    ],
    tokens: [
        &["gen_ai.usage.prompt_tokens"],
        &["gen_ai.usage.completion_tokens"],
        &["llm.usage.total_tokens"],
        &["gen_ai.usage.cache_read_input_tokens"],
        &["gen_ai.usage.cache_creation_input_tokens"],
    ],
    inputs: &["traceloop.entity.input"],
    outputs: &["traceloop.entity.output"],
    provider: &["gen_ai.system"],
    ..NONE
};

pub(super) const GOOGLE_ADK: Names = Names {
    inputs: &["gcp.vertex.agent.llm_request", "gcp.vertex.agent.tool_call_args"],
    outputs: &["gcp.vertex.agent.llm_response", "gcp.vertex.agent.tool_response"],
    ..NONE
};

pub(super) const VERCEL: Names = Names {
    kind: &["ai.operationId"],
    kinds: &[
        ("ai.generateText", "LLM"),
        ("ai.generateText.doGenerate", "LLM"),
        ("ai.toolCall", "TOOL"),
        ("ai.streamText", "LLM"),
        ("ai.streamText.doStream", "LLM"),
        ("ai.generateObject", "LLM"),
        ("ai.generateObject.doGenerate", "LLM"),
        ("ai.streamObject", "LLM"),
        ("ai.streamObject.doStream", "LLM"),
        ("ai.embed", "EMBEDDING"),
        ("ai.embed.doEmbed", "EMBEDDING"),
        ("ai.embedMany", "EMBEDDING"),
    ],
    inputs: &["ai.prompt", "ai.toolCall.args", "ai.value", "ai.values"],
    outputs: &[
        "ai.response.text",
        "ai.toolCall.result",
        "ai.response.object",
        "ai.embedding",
        "ai.embeddings",
    ],
    ..NONE
};

/// A child has its parent's `entity.type`, so `span.type` is asked first.
pub(super) const VOLTAGENT: Names = Names {
    kind: &["span.type", "entity.type"],
    kinds: &[("agent", "AGENT"), ("llm", "LLM"), ("tool", "TOOL"), ("memory", "MEMORY")],
    tokens: [
        &["usage.prompt_tokens", "llm.usage.prompt_tokens"],
        &["usage.completion_tokens", "llm.usage.completion_tokens"],
        &["usage.total_tokens", "llm.usage.total_tokens"],
        &[],
        &[],
    ],
    inputs: &["agent.messages", "llm.messages", "input"],
    outputs: &["output"],
    ..NONE
};

pub(super) const LIVEKIT: Names = Names {
    inputs: &["lk.user_input", "lk.user_transcript", "lk.chat_ctx", "lk.input_text"],
    outputs: &["lk.response.text", "lk.response.function_calls"],
    ..GEN_AI
};

pub(super) const LAMINAR: Names = Names {
    kind: &["lmnr.span.type"],
    kinds: &[
        ("LLM", "LLM"),
        ("TOOL", "TOOL"),
        ("DEFAULT", "CHAIN"),
        ("PIPELINE", "CHAIN"),
        ("EXECUTOR", "AGENT"),
        ("EVALUATOR", "EVALUATOR"),
        ("HUMAN_EVALUATOR", "EVALUATOR"),
        ("EVALUATION", "EVALUATOR"),
        ("CACHED", "LLM"),
    ],
    inputs: &["lmnr.span.input"],
    outputs: &["lmnr.span.output"],
    provider: &["gen_ai.system"],
    ..NONE
};

pub(super) const LANGFUSE: Names = Names {
    kind: &["langfuse.observation.type"],
    kinds: &[
        ("generation", "LLM"),
        ("embedding", "EMBEDDING"),
        ("tool", "TOOL"),
        ("retriever", "RETRIEVER"),
        ("agent", "AGENT"),
        ("chain", "CHAIN"),
        ("evaluator", "EVALUATOR"),
        ("guardrail", "GUARDRAIL"),
        ("span", "UNKNOWN"),
    ],
    inputs: &["langfuse.observation.input"],
    outputs: &["langfuse.observation.output"],
    ..NONE
};

impl Names {
    pub(super) fn span_type(&self, said: &Said<'_>) -> Option<&'static str> {
        self.kind.iter().find_map(|key| {
            let word = said.word(key)?;
            self.kinds.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind)
        })
    }

    pub(super) fn counts(&self, said: &Said<'_>) -> [Option<i64>; 5] {
        self.tokens.map(|names| names.iter().find_map(|name| said.count(name)))
    }

    pub(super) fn inputs(&self, said: &Said<'_>) -> Option<Any> {
        said.first(self.inputs)
    }

    pub(super) fn outputs(&self, said: &Said<'_>) -> Option<Any> {
        said.first(self.outputs)
    }
}
