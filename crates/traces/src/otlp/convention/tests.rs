use serde_json::json;

use super::*;

fn attributes(of: &Value) -> Vec<KeyValue> {
    let fields = of.as_object().unwrap();
    fields
        .iter()
        .map(|(key, value)| KeyValue { key: key.clone(), value: Some(any(value)) })
        .collect()
}

fn events(of: &Value) -> Vec<Event> {
    let event = |event: &Value| Event {
        name: event["name"].as_str().unwrap().into(),
        attributes: attributes(&event["attributes"]),
        ..Event::default()
    };
    of.as_array().unwrap().iter().map(event).collect()
}

/// What is added to a span that says this.
fn added(said: &Value, told: &Value) -> Value {
    let mut all = attributes(said);
    let before = all.len();
    let changed = translate(&mut all, &events(told));
    assert_eq!(changed, all.len() > before, "{said}");
    let mut again = all.clone();
    assert!(!translate(&mut again, &events(told)), "once is enough: {said}");
    let pairs = all[before..].iter().map(|pair| (pair.key.clone(), plain(pair.value())));
    Value::Object(pairs.collect())
}

fn check(said: &Value, expected: &Value) {
    assert_eq!(added(said, &json!([])), *expected, "{said}");
}

#[test]
fn other_names_become_ours() {
    check(
        &json!({
            "gen_ai.operation.name": "chat", "gen_ai.request.model": "m-1",
            "gen_ai.usage.input_tokens": 3, "gen_ai.usage.output_tokens": "4",
            "gen_ai.input.messages": "[{\"role\": \"user\"}]", "mlflow.spanType": "UNKNOWN",
            "gen_ai.tool.definitions": "[{\"name\": \"f\"}]",
        }),
        &json!({
            "mlflow.spanType": "CHAT_MODEL", "mlflow.llm.model": "m-1",
            "mlflow.spanInputs": [{"role": "user"}], "mlflow.chat.tools": [{"name": "f"}],
            "mlflow.chat.tokenUsage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
        }),
    );
    check(
        &json!({"langfuse.observation.type": "generation",
                "langfuse.observation.input": "{\"args\": [2]}", "langfuse.observation.output": "5"}),
        &json!({"mlflow.spanType": "LLM", "mlflow.spanInputs": {"args": [2]},
                "mlflow.spanOutputs": "5"}),
    );
    check(
        &json!({"lmnr.span.type": "EXECUTOR", "lmnr.span.input": "go", "gen_ai.system": "acme"}),
        &json!({"mlflow.spanType": "AGENT", "mlflow.spanInputs": "go",
                "mlflow.llm.provider": "acme", "mlflow.message.format": "openai"}),
    );
    check(
        &json!({"gcp.vertex.agent.llm_request": "{}", "gcp.vertex.agent.tool_call_args": "{\"a\": 1}"}),
        &json!({"mlflow.spanInputs": {"a": 1}}),
    );
    check(
        &json!({"traceloop.span.kind": "task", "gen_ai.prompt.0.content": "hi",
                "gen_ai.completion.0.content": "ho"}),
        &json!({"mlflow.spanType": "TASK", "mlflow.spanInputs": "hi", "mlflow.spanOutputs": "ho"}),
    );
    check(
        &json!({"span.type": "memory", "entity.type": "agent", "voltagent.operation_id": "1",
                "llm.messages": "[{\"role\": \"user\"}]", "usage.prompt_tokens": 2}),
        &json!({"mlflow.spanType": "MEMORY", "mlflow.spanInputs": [{"role": "user"}],
                "mlflow.message.format": "voltagent",
                "mlflow.chat.tokenUsage": {"input_tokens": 2}}),
    );
    check(
        &json!({"lk.agent_name": "a", "lk.user_input": "hi", "lk.response.text": "ho"}),
        &json!({"mlflow.spanType": "AGENT", "mlflow.spanInputs": "hi", "mlflow.spanOutputs": "ho",
                "mlflow.message.format": "livekit"}),
    );
}

#[test]
fn our_own_names_stay() {
    check(&json!({"mlflow.spanType": "TOOL", "a": "b"}), &json!({}));
    check(&json!({"mlflow.spanType": "TOOL", "openinference.span.kind": "LLM"}), &json!({}));
    check(&json!({"mlflow.spanInputs": "x", "input.value": "y"}), &json!({}));
    check(&json!({"langfuse.observation.type": "span"}), &json!({"mlflow.spanType": "UNKNOWN"}));
    check(&json!({"langfuse.observation.type": "span", "mlflow.spanType": "UNKNOWN"}), &json!({}));
}

#[test]
fn what_says_nothing_is_passed_over() {
    check(&json!({"input.value": "null"}), &json!({"mlflow.spanInputs": "null"}));
    for empty in ["", "{}", "[]", "\"\""] {
        check(
            &json!({"input.value": empty, "langfuse.observation.input": "x"}),
            &json!({"mlflow.spanInputs": "x"}),
        );
    }
}

#[test]
fn a_model_that_only_the_inputs_tell() {
    check(&json!({"mlflow.spanInputs": "{\"model\": \"m\"}"}), &json!({"mlflow.llm.model": "m"}));
    check(&json!({"mlflow.spanOutputs": {"model": "m"}}), &json!({"mlflow.llm.model": "m"}));
    check(&json!({"mlflow.spanInputs": "{\"model\": 5}"}), &json!({}));
    check(&json!({"mlflow.spanInputs": "the \"model\""}), &json!({}));
}

#[test]
fn one_call_of_vercels_sdk_is_put_together() {
    check(
        &json!({
            "ai.operationId": "ai.generateText.doGenerate",
            "ai.prompt.messages": "[{\"role\": \"user\"}]", "ai.prompt.tools": ["{\"name\": \"f\"}"],
            "ai.response.text": "ho", "ai.response.model": "m",
        }),
        &json!({
            "mlflow.spanType": "LLM", "mlflow.message.format": "vercel_ai", "mlflow.llm.model": "m",
            "mlflow.spanInputs": {"messages": [{"role": "user"}], "tools": [{"name": "f"}]},
            "mlflow.spanOutputs": {"text": "ho", "model": "m"},
        }),
    );
}

#[test]
fn coding_agents_have_their_own_manner() {
    check(
        &json!({
            "gen_ai.agent.name": "gemini-cli", "gen_ai.operation.name": "llm_call",
            "gen_ai.input.messages": "[{\"role\": \"user\", \"parts\": [1]}]",
            "gen_ai.output.messages": "[{\"parts\": [1]}, {\"parts\": [2]}]",
        }),
        &json!({
            "mlflow.spanType": "LLM", "mlflow.message.format": "gemini",
            "mlflow.spanInputs": {"contents": [{"role": "user", "parts": [1]}]},
            "mlflow.spanOutputs": {"candidates": [{"content": {"role": "model", "parts": [1, 2]}}]},
        }),
    );
    check(
        &json!({
            "span.type": "claude_code.llm_request", "input_tokens": 1, "output_tokens": 2,
            "cache_read_tokens": 3, "cache_creation_tokens": 4, "new_context": "<REDACTED>",
            "response.model_output": "ho",
        }),
        &json!({
            "mlflow.spanType": "LLM", "mlflow.spanOutputs": "ho",
            "mlflow.chat.tokenUsage": {"input_tokens": 8, "output_tokens": 2, "total_tokens": 10,
                "cache_read_input_tokens": 3, "cache_creation_input_tokens": 4},
        }),
    );
    let tool = json!({"span.type": "tool", "full_command": "ls", "file_path": "<REDACTED>"});
    let told =
        json!([{"name": "tool.output", "attributes": {"output": "<REDACTED>", "diff": "+a"}}]);
    assert_eq!(
        added(&tool, &told),
        json!({"mlflow.spanType": "TOOL", "mlflow.spanInputs": {"full_command": "ls"},
               "mlflow.spanOutputs": "+a"})
    );
}

#[test]
fn events_tell_messages() {
    let said = json!({"gen_ai.operation.name": "chat"});
    let spring = json!([
        {"name": "gen_ai.content.prompt", "attributes": {"gen_ai.prompt": "hi"}},
        {"name": "gen_ai.content.completion", "attributes": {"gen_ai.completion": "ho"}},
    ]);
    assert_eq!(
        added(&said, &spring),
        json!({"mlflow.spanType": "CHAT_MODEL", "mlflow.spanInputs": "hi", "mlflow.spanOutputs": "ho"})
    );
    let messages = json!([
        {"name": "gen_ai.system.message", "attributes": {"content": "be"}},
        {"name": "gen_ai.user.message", "attributes": {"content": ""}},
        {"name": "gen_ai.user.message", "attributes": {"content": "hi"}},
        {"name": "gen_ai.choice", "attributes": {"content": "ho"}},
    ]);
    assert_eq!(
        added(&json!({}), &messages),
        json!({
            "mlflow.spanInputs": [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}],
            "mlflow.spanOutputs": [{"role": "assistant", "content": "ho"}],
        })
    );
}
