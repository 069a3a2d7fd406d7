"""Tracing with the stock MLflow client and the stock OpenTelemetry exporter: on the original to show that the
test is right, and on Falaj."""

import gzip
import json
import threading
import time

import mlflow
import pytest
import requests
from mlflow.entities import AssessmentSource, SpanType
from mlflow.exceptions import MlflowException
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.trace import Status, StatusCode


def found(experiment, filter="", **options):
    """The names of the traces that a search finds."""
    traces = mlflow.search_traces(locations=[experiment], return_type="list", filter_string=filter, **options)
    return [trace.info.tags["mlflow.traceName"] for trace in traces]


@pytest.fixture
def made(experiment):
    """Three traces, one after the other: an agent with a tool and a model, a failure, and an answer to a user."""
    with mlflow.start_span("agent", span_type=SpanType.AGENT) as agent:
        agent.set_inputs({"messages": [{"role": "user", "content": "what is the weather"}]})
        with mlflow.start_span("look", span_type=SpanType.TOOL) as tool:
            tool.set_inputs({"city": "Al Ain"})
            tool.set_outputs({"degrees": 41})
        with mlflow.start_span("ask", span_type=SpanType.CHAT_MODEL) as model:
            model.set_attribute("mlflow.chat.tokenUsage", {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12})
        mlflow.update_current_trace(tags={"team": "vision"}, metadata={"mlflow.trace.user": "ada"})
    mlflow.flush_trace_async_logging()
    time.sleep(0.01)
    with pytest.raises(ValueError):
        with mlflow.start_span("broken"):
            raise ValueError("on purpose")
    mlflow.flush_trace_async_logging()
    time.sleep(0.01)
    with mlflow.start_span("answer") as answer:
        mlflow.update_current_trace(tags={"team": "speech"}, session_id="s-1", user="bob")
        answer.set_outputs("é 日本")
    mlflow.flush_trace_async_logging()
    return {"agent": agent.trace_id, "broken": None, "answer": answer.trace_id}


def test_spans_nest_and_come_back_whole(tracking, made):
    trace = mlflow.get_trace(made["agent"])
    spans = {span.name: span for span in trace.data.spans}
    assert [span.name for span in trace.data.spans] == ["agent", "look", "ask"]
    assert spans["look"].parent_id == spans["ask"].parent_id == spans["agent"].span_id and spans["agent"].parent_id is None
    assert spans["look"].inputs == {"city": "Al Ain"} and spans["look"].outputs == {"degrees": 41}
    assert spans["agent"].span_type == "AGENT" and spans["look"].span_type == "TOOL"
    assert trace.info.request_preview == "what is the weather"
    assert trace.info.token_usage == {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}
    assert trace.info.trace_metadata["mlflow.trace.user"] == "ada"
    assert mlflow.get_trace(made["answer"]).data.spans[0].outputs == "é 日本"
    assert trace.search_spans(span_type="TOOL")[0].name == "look"


def test_a_failure_is_told(tracking, experiment, made):
    broken = mlflow.search_traces(locations=[experiment], return_type="list", filter_string="trace.status = 'ERROR'")[0]
    root = broken.data.spans[0]
    assert broken.info.state == "ERROR" and root.status.status_code == "ERROR"
    assert root.events[0].name == "exception" and "on purpose" in root.events[0].attributes["exception.message"]


@pytest.mark.parametrize("filter, names", [
    ("", ["answer", "broken", "agent"]),
    ("name = 'agent'", ["agent"]),
    ("trace.name LIKE 'a%'", ["answer", "agent"]),
    ("tags.team != 'vision'", ["answer"]),
    ("tags.team IS NULL", ["broken"]),
    ("status IN ('OK', 'IN_PROGRESS') AND execution_time_ms >= 0", ["answer", "agent"]),
    ("timestamp_ms > 5", ["answer", "broken", "agent"]),
    ("metadata.`mlflow.trace.user` = 'ada'", ["agent"]),
    ("request_metadata.mlflow.trace.session = 's-1'", ["answer"]),
    ("span.name = 'look' AND span.type = 'TOOL'", ["agent"]),
    ("span.name = 'look' AND span.type = 'AGENT'", []),
    ("span.type IN ('TOOL', 'CHAIN')", ["agent"]),
    ("span.status = 'ERROR'", ["broken"]),
    ("span.attributes.`mlflow.spanInputs` LIKE '%Al Ain%'", ["agent"]),
    ("trace.text LIKE '%Al Ain%'", ["agent"]),
    ("trace.text ILIKE '%ON PURPOSE%'", ["broken"]),
    ("trace.text LIKE '%日本%'", ["answer"]),
])
def test_filters(tracking, experiment, made, filter, names):
    assert found(experiment, filter) == names


def test_orderings_and_pages(tracking, experiment, made):
    assert found(experiment, order_by=["timestamp_ms ASC"]) == ["agent", "broken", "answer"]
    assert found(experiment, order_by=["name DESC"]) == ["broken", "answer", "agent"]
    assert found(experiment, order_by=["tags.team"])[:2] == ["answer", "agent"]
    for order in (None, ["name DESC"]):
        names, token = [], None
        for _ in range(3):
            page = tracking.search_traces(locations=[experiment], max_results=1, order_by=order, page_token=token)
            names += [trace.info.tags["mlflow.traceName"] for trace in page]
            token = page.token
        assert names == (["answer", "broken", "agent"] if order is None else ["broken", "answer", "agent"])
    with pytest.raises(MlflowException, match="Invalid"):
        found(experiment, "nonsense")


def test_what_people_think(tracking, experiment, made):
    trace = made["agent"]
    human = AssessmentSource(source_type="HUMAN", source_id="ada")
    feedback = mlflow.log_feedback(trace_id=trace, name="score", value=4, source=human, rationale="nice", metadata={"a": "b"})
    mlflow.log_feedback(trace_id=trace, name="judged", error=RuntimeError("no judge"))
    mlflow.log_expectation(trace_id=trace, name="answer", value=["41", "42"], source=human)
    span = mlflow.get_trace(trace).data.spans[1]
    mlflow.log_feedback(trace_id=trace, name="tool", value="good", span_id=span.span_id)
    said = {one.name: one for one in mlflow.get_trace(trace).info.assessments}
    assert said["score"].value == 4 and said["score"].rationale == "nice" and said["score"].metadata == {"a": "b"}
    assert said["answer"].value == ["41", "42"] and said["judged"].error.error_message == "no judge"
    assert said["tool"].span_id == span.span_id
    for filter, names in [("feedback.score > 3", ["agent"]), ("feedback.score >= 5", []), ("feedback.tool = 'good'", ["agent"]),
                          ("feedback.nothing IS NOT NULL", []), ("expectation.answer IS NOT NULL", ["agent"])]:
        assert found(experiment, filter) == names, filter
    better = mlflow.override_feedback(trace_id=trace, assessment_id=feedback.assessment_id, value=2)
    assert found(experiment, "feedback.score > 3") == []
    assert mlflow.get_assessment(trace, feedback.assessment_id).valid is False
    mlflow.delete_assessment(trace, better.assessment_id)
    assert mlflow.get_assessment(trace, feedback.assessment_id).valid is True
    with pytest.raises(MlflowException, match="not found"):
        mlflow.get_assessment(trace, "a-" + "0" * 32)


def test_traces_of_a_run(target, tracking, experiment):
    with mlflow.start_run() as run:
        with mlflow.start_span("inside"):
            pass
    with mlflow.start_span("outside") as outside:
        pass
    mlflow.flush_trace_async_logging()
    tracking.link_traces_to_run([outside.trace_id], run.info.run_id)
    assert sorted(found(experiment, run_id=run.info.run_id)) == ["inside", "outside"]
    if target.token:  # The original ties traces to runs that are not there.
        with pytest.raises(MlflowException, match="not found"):
            tracking.link_traces_to_run([outside.trace_id], "0" * 32)


def test_tags_and_deleting(tracking, experiment, made):
    mlflow.set_trace_tag(made["agent"], "k", "v")
    assert found(experiment, "tags.k = 'v'") == ["agent"]
    mlflow.delete_trace_tag(made["agent"], "k")
    with pytest.raises(MlflowException, match="No trace tag"):
        mlflow.delete_trace_tag(made["agent"], "k")
    assert tracking.delete_traces(experiment, max_timestamp_millis=int(1e15), max_traces=1) == 1
    assert found(experiment) == ["answer", "broken"]
    assert tracking.delete_traces(experiment, trace_ids=[made["answer"], made["agent"]]) == 1
    assert tracking.delete_traces(experiment, max_timestamp_millis=int(1e15)) == 1
    assert found(experiment) == []
    with pytest.raises(MlflowException):
        tracking.delete_traces(experiment)


def test_many_threads(tracking, experiment):
    @mlflow.trace
    def work(n):
        with mlflow.start_span(f"part {n}"):
            return n

    threads = [threading.Thread(target=lambda: [work(n) for n in range(5)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    mlflow.flush_trace_async_logging()
    traces = mlflow.search_traces(locations=[experiment], return_type="list")
    assert len(traces) == 20 and all(len(trace.data.spans) == 2 for trace in traces)


def headers(target, experiment):
    return {"x-mlflow-experiment-id": experiment} | ({"Authorization": f"Bearer {target.token}"} if target.token else {})


@pytest.mark.parametrize("compression", ["none", "gzip", "deflate"])
def test_the_opentelemetry_exporter(target, tracking, experiment, compression):
    from opentelemetry.exporter.otlp.proto.http import Compression
    exporter = OTLPSpanExporter(endpoint=f"{target.url}/v1/traces", headers=headers(target, experiment),
                                compression=Compression(compression))
    results = []
    export = exporter.export
    exporter.export = lambda spans: results.append(export(spans)) or results[-1]
    provider = TracerProvider(resource=Resource({"service.name": "shop"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("buy") as root:
        root.set_attribute("gen_ai.operation.name", "invoke_agent")
        root.set_attribute("session.id", "s-9")
        with tracer.start_as_current_span("chat") as chat:
            chat.set_attributes({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 3,
                                 "gen_ai.usage.output_tokens": 4, "list": ["a", "b"], "flag": True, "ratio": 0.5})
            chat.add_event("token", {"n": 1})
        root.set_status(Status(StatusCode.ERROR, "out of stock"))
    provider.shutdown()
    assert results == [SpanExportResult.SUCCESS] * 2
    trace = mlflow.search_traces(locations=[experiment], return_type="list")[0]
    assert trace.info.trace_id == f"tr-{root.get_span_context().trace_id:032x}" and trace.info.state == "ERROR"
    assert trace.info.tags["service.name"] == "shop" and trace.info.trace_metadata["mlflow.trace.session"] == "s-9"
    assert trace.info.token_usage == {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    spans = {span.name: span for span in trace.data.spans}
    assert spans["chat"].attributes["list"] == ["a", "b"] and spans["chat"].attributes["flag"] is True
    assert spans["chat"].span_type == "CHAT_MODEL" and spans["chat"].events[0].attributes == {"n": 1}
    assert spans["buy"].status.description == "out of stock" and spans["chat"].parent_id == spans["buy"].span_id


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_the_opentelemetry_exporter_over_grpc(target, tracking, experiment, compression):
    """The original does not speak gRPC."""
    if not target.token:
        pytest.skip("the original takes spans over HTTP only")
    import grpc
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc
    packed = {None: None, "gzip": grpc.Compression.Gzip, "deflate": grpc.Compression.Deflate}[compression]
    sent = {key.lower(): value for key, value in headers(target, experiment).items()}
    exporter = OverGrpc(endpoint=target.url, insecure=True, headers=sent, compression=packed, timeout=30)
    provider = TracerProvider(resource=Resource({"service.name": "shop"}))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("buy") as root:
        with tracer.start_as_current_span("chat") as chat:
            chat.set_attributes({"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 3, "list": ["a", "b"]})
    assert exporter.export([chat, root]) == SpanExportResult.SUCCESS
    trace = mlflow.get_trace(f"tr-{root.get_span_context().trace_id:032x}")
    assert [span.name for span in trace.data.spans] == ["buy", "chat"] and trace.info.tags["service.name"] == "shop"
    assert trace.data.spans[1].attributes["list"] == ["a", "b"] and trace.data.spans[1].span_type == "CHAT_MODEL"


@pytest.mark.parametrize("change, code", [
    ({"authorization": None}, "UNAUTHENTICATED"), ({"authorization": "Bearer falaj_nonsense"}, "UNAUTHENTICATED"),
    ({"x-mlflow-experiment-id": None}, "INVALID_ARGUMENT"), ({"x-mlflow-experiment-id": "987654"}, "NOT_FOUND"),
    ({"x-mlflow-experiment-id": "x"}, "INVALID_ARGUMENT"), ({"x-falaj-project": "default/none"}, "NOT_FOUND"),
])
def test_refusals_over_grpc(target, experiment, change, code):
    status, _ = over_grpc(target, experiment, request(span_id=b"\1" * 8), change)
    assert status == code, status


@pytest.mark.parametrize("body", [b"", b"\xff" * 9, b"\x0a\x7f", b"\x0a\x04\x12\x02\x12\x00", bytes(1 << 20)])
def test_hostile_messages_over_grpc(target, experiment, body):
    assert over_grpc(target, experiment, body)[0] == "INVALID_ARGUMENT"


def test_one_bad_span_does_not_spoil_a_request_over_grpc(target, experiment):
    import grpc
    status, reply = over_grpc(target, experiment, request(span_id=b"\2" * 8) + request(span_id=b""))
    assert status == "OK" and b"span_id" in reply and reply.startswith(b"\x0a")
    bomb = request(span_id=b"\3" * 8, name="x" * (80 << 20))
    status, _ = over_grpc(target, experiment, bomb, compression=grpc.Compression.Gzip)
    assert status in ("OUT_OF_RANGE", "RESOURCE_EXHAUSTED", "INTERNAL"), status
    assert over_grpc(target, experiment, request(span_id=b"\4" * 8))[0] == "OK", "the server goes on"


def request(span_id, name="work"):
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    message = ExportTraceServiceRequest()
    message.resource_spans.add().scope_spans.add().spans.add(
        trace_id=b"\7" * 16, span_id=span_id, name=name, start_time_unix_nano=10**9, end_time_unix_nano=2 * 10**9)
    return message.SerializeToString()


def over_grpc(target, experiment, body, change=None, compression=None):
    """The status of a call, and the bytes of its reply."""
    if not target.token:
        pytest.skip("the original takes spans over HTTP only")
    import grpc
    sent = {key.lower(): value for key, value in headers(target, experiment).items()} | (change or {})
    with grpc.insecure_channel(target.url.removeprefix("http://")) as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        try:
            reply = export(body, timeout=60, metadata=[pair for pair in sent.items() if pair[1]], compression=compression)
            return "OK", reply
        except grpc.RpcError as error:
            return error.code().name, error.details()


def span(n, **fields):
    return {"traceId": f"{n:032x}", "spanId": f"{n:016x}", "name": f"s{n}", "startTimeUnixNano": "1000000000",
            "endTimeUnixNano": "2000000000"} | fields


def otlp(target, experiment, spans, **more):
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
    sent = headers(target, experiment) | {"Content-Type": "application/json"} | more
    if "Content-Encoding" in more:
        body = gzip.compress(body)
    return requests.post(f"{target.url}/v1/traces", data=body, headers=sent, timeout=30)


def test_spans_as_json(target, tracking, experiment):
    attributes = [{"key": "deep", "value": {"kvlistValue": {"values": [{"key": "a", "value": {"intValue": "7"}}]}}}]
    assert otlp(target, experiment, [span(101, attributes=attributes)]).status_code == 200
    assert otlp(target, experiment, [span(102)], **{"Content-Encoding": "gzip"}).status_code == 200
    trace = mlflow.get_trace(f"tr-{101:032x}")
    assert trace.data.spans[0].attributes["deep"] == {"a": 7} and trace.info.execution_duration == 1000


def test_one_bad_span_does_not_spoil_a_request(target, tracking, experiment):
    """The original refuses the whole request."""
    if not target.token:
        pytest.skip("the original knows no partial success")
    answer = otlp(target, experiment, [span(201), span(202, spanId="")])
    assert answer.status_code == 200 and answer.json()["partialSuccess"]["rejectedSpans"] == "1"
    assert "span_id" in answer.json()["partialSuccess"]["errorMessage"]
    assert otlp(target, experiment, [span(203, spanId="")]).status_code == 422
    assert otlp(target, experiment, [span(n) for n in range(1, 10_050)]).status_code == 413
    assert otlp(target, experiment, [{**span(204), "traceId": "xyz"}]).status_code == 422
