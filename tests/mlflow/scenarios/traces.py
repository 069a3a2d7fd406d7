"""Traces: started over REST, sent over OTLP, tagged, assessed, searched, deleted."""

import hashlib
import json

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from recorder import scenario

V3 = "/api/3.0/mlflow/traces"
UNKNOWN = "tr-" + "0" * 32
# Where a span is, and what it cost by a list of prices.
UNTOLD = {"mlflow.traceRequestId", "mlflow.experimentId", "mlflow.llm.cost"}
PROTOBUF = {"Content-Type": "application/x-protobuf"}


def trace_id(s, name):
    return "tr-" + hashlib.md5(s.unique(name).encode()).hexdigest()


def start(s, experiment, name, label="", **fields):
    """Starts a trace over REST; returns its id."""
    info = {"trace_id": trace_id(s, name), "trace_location": {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}},
            "request_time": "2001-01-01T00:00:01Z", "execution_duration": "1.5s", "state": "OK", "request_preview": f"ask {name}", "response_preview": f"told {name}",
            "tags": {"mlflow.traceName": name, "kind": "test"}, "trace_metadata": {"mlflow.trace_schema.version": "3", "mlflow.trace.user": "ada"}} | fields
    s.send("POST", V3, label or "start", json={"trace": {"trace_info": info}})
    return info["trace_id"]


@scenario
def life(s):
    trace = start(s, s.experiment(), "one")
    s.send("GET", f"{V3}/{trace}", "started")
    s.send("PATCH", f"{V3}/{trace}/tags", "set", json={"key": "team", "value": "vision"})
    s.send("PATCH", f"{V3}/{trace}/tags", "again", json={"key": "team", "value": "speech"})
    s.send("PATCH", f"{V3}/{trace}/tags", "no key", json={"value": "speech"})
    s.send("PATCH", f"{V3}/{UNKNOWN}/tags", "unknown", json={"key": "team", "value": "speech"})
    s.send("DELETE", f"{V3}/{trace}/tags", "delete", params={"key": "kind"})
    s.send("DELETE", f"{V3}/{trace}/tags", "delete again", params={"key": "kind"})
    s.send("GET", f"{V3}/{trace}", "tagged")
    s.send("GET", f"{V3}/{UNKNOWN}", "unknown")


@scenario
def assessments(s):
    trace = start(s, s.experiment(), "one")
    path = f"{V3}/{trace}/assessments"
    feedback = {"assessment_name": "helpful", "trace_id": trace, "source": {"source_type": "HUMAN", "source_id": "ada"}, "feedback": {"value": True}, "rationale": "clear", "metadata": {"a": "b"}}

    def keep(step):
        """The id is random on both sides."""
        if "assessment" in (step.body if isinstance(step.body, dict) else {}):
            step.body["assessment"].pop("create_time", None), step.body["assessment"].pop("last_update_time", None)
        return step

    first = keep(s.send("POST", path, "feedback", json={"assessment": feedback}))["assessment"]["assessment_id"]
    expectation = keep(s.send("POST", path, "expectation", json={"assessment": {"assessment_name": "answer", "trace_id": trace, "source": {"source_type": "HUMAN", "source_id": "ada"}, "expectation": {"value": "42"}}}))
    keep(s.send("POST", path, "no name", json={"assessment": {k: v for k, v in feedback.items() if k != "assessment_name"}}))
    keep(s.send("POST", path, "no value", json={"assessment": {k: v for k, v in feedback.items() if k != "feedback"}}))
    keep(s.send("POST", f"{V3}/{UNKNOWN}/assessments", "unknown trace", json={"assessment": feedback | {"trace_id": UNKNOWN}}))

    def one(method, id, label, **options):
        return keep(s.send(method, f"{path}/{id}", label, **options))

    one("GET", first, "first")
    one("PATCH", first, "changed", json={"assessment": {"feedback": {"value": False}, "rationale": "no"}, "update_mask": "feedback,rationale"})
    one("GET", first, "after the change")
    one("DELETE", expectation["assessment"]["assessment_id"], "second")
    one("GET", expectation["assessment"]["assessment_id"], "deleted")
    one("GET", "a-" + "0" * 32, "unknown")


def found(step):
    if step.status == 200:
        step.body = {"found": [trace.get("tags", {}).get("mlflow.traceName") for trace in step.get("traces", [])]} | (
            {"next_page_token": step.body["next_page_token"]} if "next_page_token" in step.body else {})
    return step


@scenario
def search(s):
    experiment = s.experiment()
    run = s.start(experiment)
    for index, name in enumerate(["alpha", "beta", "gamma"]):
        start(s, experiment, name, name, request_time=f"2001-01-01T00:00:0{index + 1}Z", execution_duration=f"{index}.5s", state=["OK", "ERROR", "IN_PROGRESS"][index],
              tags={"mlflow.traceName": name, "team": "vision" if index else "speech"}, trace_metadata={"mlflow.trace_schema.version": "3", "mlflow.sourceRun": run if index else "x"})
    where = [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}}]
    for filter in ["", "status = 'OK'", "trace.status = 'ERROR'", "status != 'OK'", "attributes.status = 'OK'", "name = 'alpha'", "trace.name = 'beta'", "tags.team = 'vision'", "tag.team != 'vision'", "tags.`mlflow.traceName` = 'gamma'",
                   "timestamp_ms > 978307201000", "trace.timestamp >= 978307202000", "execution_time_ms > 1000", "trace.execution_time < 1000", "metadata.mlflow.sourceRun = 'x'", "request_metadata.`mlflow.sourceRun` = 'x'", f"trace.run_id = 'x'",
                   "status = 'OK' AND tags.team = 'speech'", "nothing = 'x'", "status > 'OK'", "status = 'OK' OR status = 'ERROR'", "(status = 'OK')", "!!", "timestamp_ms = 'x'", "name LIKE 'a%'", "tags.team LIKE 'v%'", "tags.team ILIKE 'V%'", "tags.nothing IS NULL"]:
        found(s.send("POST", f"{V3}/search", filter or "all", json={"locations": where, "filter": filter}))
    for order in (["timestamp_ms"], ["timestamp_ms DESC"], ["timestamp ASC"], ["execution_time DESC"], ["status"], ["name DESC"], ["tags.team", "timestamp_ms"], ["nothing"], ["timestamp_ms sideways"]):
        found(s.send("POST", f"{V3}/search", f"ordered {order}", json={"locations": where, "order_by": order}))
    for label, more in {"zero": {"max_results": 0}, "negative": {"max_results": -1}, "largest": {"max_results": 500}, "too many": {"max_results": 501}, "bad token": {"page_token": "!!"}, "no location": {"locations": []}}.items():
        found(s.send("POST", f"{V3}/search", label, json={"locations": where} | more))
    first = found(s.send("POST", f"{V3}/search", "page 1", json={"locations": where, "max_results": 2}))
    found(s.send("POST", f"{V3}/search", "page 2", json={"locations": where, "max_results": 2, "page_token": first["next_page_token"]}))


@scenario
def deleting(s):
    experiment = s.experiment()
    kept = [start(s, experiment, f"t{n}", request_time=f"2001-01-01T00:00:0{n}Z") for n in range(1, 6)]
    path = "/api/2.0/mlflow/traces/delete-traces"
    s.send("POST", path, "by id", json={"experiment_id": experiment, "request_ids": kept[:1]})
    s.send("POST", path, "unknown", json={"experiment_id": experiment, "request_ids": [UNKNOWN]})
    s.send("POST", path, "by age", json={"experiment_id": experiment, "max_timestamp_millis": 978307203000, "max_traces": 1})
    s.send("POST", path, "nothing named", json={"experiment_id": experiment})
    s.send("POST", path, "both", json={"experiment_id": experiment, "max_timestamp_millis": 5, "request_ids": kept[1:]})
    s.send("POST", path, "no experiment", json={"request_ids": kept[1:]})
    found(s.send("POST", f"{V3}/search", "after", json={"locations": [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}}]}))


def spans(s, name):
    """An OTLP request with a root span and a child."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add()
    scope.resource.attributes.append(KeyValue(key="service.name", value=AnyValue(string_value="shop")))
    id = hashlib.md5(s.unique(name).encode()).digest()
    for index, (title, parent) in enumerate([("root", b""), ("child", b"\0" * 7 + b"\1")]):
        span = scope.scope_spans.add().spans.add(trace_id=id, span_id=b"\0" * 7 + bytes([index + 1]), parent_span_id=parent, name=title,
                                                 start_time_unix_nano=978307200_000_000_000 + index, end_time_unix_nano=978307201_000_000_000 + index)
        span.attributes.append(KeyValue(key="mlflow.spanType", value=AnyValue(string_value='"TOOL"')))
        span.attributes.append(KeyValue(key="mlflow.spanInputs", value=AnyValue(string_value='{"q": 1}')))
        span.status.code = 1
    return "tr-" + id.hex(), request.SerializeToString()


@scenario
def otlp(s):
    experiment = s.experiment()
    trace, body = spans(s, "one")
    where = {"x-mlflow-experiment-id": experiment}
    s.send("POST", "/v1/traces", "sent", data=body, headers=PROTOBUF | where).body = "<accepted>"
    info = s.send("GET", f"{V3}/{trace}", "info")
    if info.status == 200:
        kept = info.body["trace"]["trace_info"]
        info.body = {key: kept.get(key) for key in ("trace_id", "state", "request_time", "execution_duration", "trace_location")}
    got = s.send("GET", f"{V3}/get", "spans", params={"trace_id": trace})
    if got.status == 200:
        got.body = sorted((span["name"], span.get("parent_span_id")) for span in got.body["trace"].get("spans", []))
    s.send("POST", "/v1/traces", "no experiment", data=body, headers=PROTOBUF)
    s.send("POST", "/v1/traces", "unknown experiment", data=body, headers=PROTOBUF | {"x-mlflow-experiment-id": "987654321"})
    s.send("POST", "/v1/traces", "not protobuf", data=b"\xff\xff\xff", headers=PROTOBUF | where)
    s.send("POST", "/v1/traces", "no type", data=body, headers={"Content-Type": "text/plain"} | where)
    s.send("POST", "/v1/traces", "empty", data=b"", headers=PROTOBUF | where)


def message(text):
    return f'[{{"role": "user", "content": "{text}"}}]'


# How other libraries write what MLflow keeps under names of its own: attributes, and events.
LIBRARIES = {
    "openinference": ({"openinference.span.kind": "LLM", "input.value": "hi", "output.value": '{"a": 1}', "llm.model_name": "m", "llm.token_count.prompt": 1, "llm.token_count.completion": 2}, []),
    "genai": ({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.provider.name": "acme", "gen_ai.usage.input_tokens": 1, "gen_ai.usage.output_tokens": 2,
               "gen_ai.usage.cache_read.input_tokens": 3, "gen_ai.input.messages": message("hi"), "gen_ai.output.messages": message("ho"), "gen_ai.tool.definitions": '[{"name": "f"}]'}, []),
    "genai model only": ({"gen_ai.request.model": "m"}, []),
    "empty": ({"openinference.span.kind": "UNKNOWN", "input.value": "{}", "langfuse.observation.input": "x", "output.value": "null"}, []),
    "traceloop": ({"traceloop.span.kind": "task", "gen_ai.prompt.0.content": "hi", "gen_ai.completion.0.content": "ho", "llm.usage.total_tokens": 7, "gen_ai.system": "acme"}, []),
    "traceloop calls": ({"traceloop.span.kind": "tool", "gen_ai.completion.0.tool_calls.0.arguments": '{"a": 1}'}, []),
    "gemini": ({"gen_ai.agent.name": "gemini-cli", "gen_ai.operation.name": "llm_call", "gen_ai.input.messages": '[{"role": "user", "parts": [{"text": "hi"}]}]',
                "gen_ai.output.messages": '[{"role": "model", "parts": [{"text": "h"}]}, {"role": "model", "parts": [{"text": "o"}]}]'}, []),
    "gemini system": ({"gen_ai.agent.name": "gemini-cli", "gen_ai.operation.name": "system_prompt", "gen_ai.input.messages": '[{"role": "user", "parts": [{"text": "be"}]}]'}, []),
    "gemini text": ({"gen_ai.agent.name": "gemini-cli", "gen_ai.operation.name": "user_prompt", "gen_ai.input.messages": "hi"}, []),
    "claude request": ({"span.type": "claude_code.llm_request", "input_tokens": 1, "output_tokens": 2, "cache_read_tokens": 3, "cache_creation_tokens": 4, "new_context": "hi", "response.model_output": "<REDACTED>"}, []),
    "claude interaction": ({"span.type": "interaction", "user_prompt": "<REDACTED>", "new_context": "hi"}, []),
    "claude tool": ({"span.type": "claude_code.tool", "full_command": "ls", "file_path": "<REDACTED>"}, [("tool.output", {"output": "<REDACTED>", "content": "a b"})]),
    "spring": ({"gen_ai.operation.name": "chat"}, [("gen_ai.content.prompt", {"gen_ai.prompt": "hi"}), ("gen_ai.content.completion", {"gen_ai.completion": "ho"})]),
    "genai events": ({"gen_ai.operation.name": "chat"}, [("gen_ai.system.message", {"content": "be"}), ("gen_ai.user.message", {"content": "hi"}), ("gen_ai.choice", {"content": "ho"})]),
    "adk": ({"gcp.vertex.agent.llm_request": "{}", "gcp.vertex.agent.tool_call_args": '{"a": 1}', "gcp.vertex.agent.tool_response": '{"b": 2}'}, []),
    "vercel": ({"ai.operationId": "ai.generateText", "ai.prompt": '{"prompt": "hi"}', "ai.response.text": "ho"}, []),
    "vercel call": ({"ai.operationId": "ai.generateText.doGenerate", "ai.prompt.messages": message("hi"), "ai.prompt.toolChoice": '{"type": "auto"}', "ai.response.text": "ho", "ai.response.model": "m"}, []),
    "vercel embedding": ({"ai.operationId": "ai.embed", "ai.value": "hi", "ai.embedding": "[0.5, 1.5]"}, []),
    "voltagent": ({"entity.type": "agent", "voltagent.operation_id": "1", "agent.messages": message("hi"), "output": "ho", "usage.prompt_tokens": 1, "usage.completion_tokens": 2, "usage.total_tokens": 3}, []),
    "voltagent child": ({"entity.type": "agent", "span.type": "memory", "input": "hi"}, []),
    "livekit": ({"lk.agent_name": "a", "lk.user_input": "hi", "lk.response.text": "ho"}, []),
    "livekit tool": ({"lk.function_tool.name": "f", "lk.room_name": "r"}, []),
    "livekit speech": ({"lk.input_text": "hi"}, []),
    "laminar": ({"lmnr.span.type": "EXECUTOR", "lmnr.span.input": message("hi"), "lmnr.span.output": "ho", "gen_ai.system": "acme", "gen_ai.response.model": "m"}, []),
    "langfuse": ({"langfuse.observation.type": "generation", "langfuse.observation.input": '{"args": [2, 3]}', "langfuse.observation.output": "5"}, []),
    "langfuse span": ({"langfuse.observation.type": "span"}, []),
    "own inputs": ({"mlflow.spanInputs": '{"model": "m"}', "input.value": "other"}, []),
    "nobody": ({"http.method": "GET"}, []),
}


def any_value(value):
    return AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)


def pairs(attributes):
    return [KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


def decoded(value):
    """An attribute as a client reads it, whether its JSON is a text or not."""
    (kind, inside), = value.items() or [(None, None)]
    if kind == "array_value":
        return [decoded(item) for item in inside.get("values", [])]
    if kind == "kvlist_value":
        return {pair["key"]: decoded(pair["value"]) for pair in inside.get("values", [])}
    if kind == "int_value":
        return int(inside)
    if kind == "string_value":
        try:
            return json.loads(inside)
        except ValueError:
            return inside
    return inside


@scenario
def other_libraries(s):
    experiment = s.experiment()
    where = {"x-mlflow-experiment-id": experiment}
    for name, (attributes, events) in LIBRARIES.items():
        request = ExportTraceServiceRequest()
        id = hashlib.md5(s.unique(name).encode()).digest()
        span = request.resource_spans.add().scope_spans.add().spans.add(
            trace_id=id, span_id=b"\0" * 7 + b"\1", name="work", start_time_unix_nano=978307200_000_000_000, end_time_unix_nano=978307201_000_000_000)
        span.attributes.extend(pairs(attributes))
        for title, said in events:
            span.events.add(name=title, time_unix_nano=978307200_500_000_000).attributes.extend(pairs(said))
        s.send("POST", "/v1/traces", name, data=request.SerializeToString(), headers=PROTOBUF | where).body = "<accepted>"
        got = s.send("GET", f"{V3}/get", name, params={"trace_id": "tr-" + id.hex()})
        if got.status == 200:
            kept = got.body["trace"]["spans"][0]["attributes"]
            got.body = {pair["key"]: decoded(pair["value"]) for pair in kept if pair["key"].startswith("mlflow.") and pair["key"] not in UNTOLD}
