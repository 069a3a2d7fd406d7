"""Every call of `tritonclient.grpc`."""

import queue

import grpc
import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from tensors import COUNT, ONES, SAMPLES, same


@pytest.fixture(scope="module")
def client(target):
    client = triton.InferenceServerClient(target.host)
    yield client
    client.close()


@pytest.fixture
def headers(target):
    return target.metadata


def sent(name, array, datatype):
    sent = triton.InferInput(name, list(array.shape), datatype)
    sent.set_data_from_numpy(array)
    return sent


def both():
    return [sent("INPUT0", COUNT, "INT32"), sent("INPUT1", ONES, "INT32")]


def refused(call, *arguments, status, says=None, **options):
    with pytest.raises(InferenceServerException) as refusal:
        call(*arguments, **options)
    error = refusal.value
    assert error.status() == f"StatusCode.{status}", f"{error.status()}: {error}"
    if says:
        assert says in error.message(), error.message()


def test_health(client, headers):
    assert client.is_server_live(headers=headers) and client.is_server_ready(headers=headers)
    assert client.is_model_ready("simple", headers=headers)
    assert client.is_model_ready("simple", "1", headers=headers)
    assert not client.is_model_ready("simple", "9", headers=headers)
    assert not client.is_model_ready("nothing", headers=headers)


def test_metadata(client, headers):
    server = client.get_server_metadata(headers=headers)
    assert server.name == "falaj" and "binary_tensor_data" in server.extensions
    model = client.get_model_metadata("simple", headers=headers, as_json=True)
    assert set(model["versions"]) == {"1", "2"}
    assert model["inputs"][1] == {"name": "INPUT1", "datatype": "INT32", "shape": ["-1", "16"]}
    refused(client.get_model_metadata, "nothing", headers=headers, status="NOT_FOUND")
    refused(client.get_model_metadata, "simple", "9", headers=headers, status="NOT_FOUND")


def test_configuration(client, headers):
    config = client.get_model_config("simple", headers=headers).config
    assert config.name == "simple" and config.input[0].name == "INPUT0"
    assert config.instance_group[0].count >= 1
    as_json = client.get_model_config("simple", headers=headers, as_json=True)["config"]
    assert as_json["output"][0]["data_type"] == "TYPE_INT32"
    refused(client.get_model_config, "nothing", headers=headers, status="NOT_FOUND")


def test_statistics_count_rows_and_runs(client, headers):
    def count():
        return client.get_inference_statistics("simple", "2", headers=headers).model_stats[0]

    client.infer("simple", both(), headers=headers)
    before = count()
    rows = [sent(f"INPUT{n}", np.ones((3, 16), np.int32), "INT32") for n in (0, 1)]
    client.infer("simple", rows, headers=headers)
    after = count()
    assert after.inference_count - before.inference_count == 3
    assert after.execution_count - before.execution_count == 1
    assert after.inference_stats.success.count == before.inference_stats.success.count + 1
    assert after.inference_stats.compute_infer.ns > before.inference_stats.compute_infer.ns
    everything = client.get_inference_statistics(headers=headers).model_stats
    assert {"simple", "pets"} <= {model.name for model in everything}
    refused(client.get_inference_statistics, "nothing", headers=headers, status="NOT_FOUND")


def test_repository(client, headers):
    models = client.get_model_repository_index(headers=headers).models
    assert ("pets", "1", "READY") in {(model.name, model.version, model.state) for model in models}
    client.unload_model("pets", headers=headers)
    try:
        assert not client.is_model_ready("pets", headers=headers)
        rows = [sent("X", np.ones((1, 4), np.float32), "FP32")]
        refused(client.infer, "pets", rows, headers=headers, status="UNAVAILABLE")
    finally:
        client.load_model("pets", headers=headers)
    assert client.is_model_ready("pets", headers=headers)
    refused(client.load_model, "nothing", headers=headers, status="NOT_FOUND")
    refused(client.unload_model, "nothing", headers=headers, status="NOT_FOUND")
    refused(client.load_model, "pets", config="{}", headers=headers, status="INVALID_ARGUMENT", says="config")


def test_what_belongs_to_one_machine_is_refused_clearly(client, headers):
    calls = [
        (client.get_trace_settings, ()),
        (client.update_trace_settings, ("simple", {"trace_rate": "1"})),
        (client.get_log_settings, ()),
        (client.update_log_settings, ({"log_verbose_level": 1},)),
        (client.get_system_shared_memory_status, ()),
        (client.register_system_shared_memory, ("region", "/key", 64)),
        (client.unregister_system_shared_memory, ("region",)),
        (client.get_cuda_shared_memory_status, ()),
        (client.register_cuda_shared_memory, ("region", b"aGFuZGxl", 0, 64)),
        (client.unregister_cuda_shared_memory, ("region",)),
    ]
    for call, arguments in calls:
        refused(call, *arguments, headers=headers, status="UNIMPLEMENTED")


@pytest.mark.parametrize("datatype", SAMPLES)
def test_every_type_comes_back_as_it_went(client, headers, datatype):
    array = SAMPLES[datatype]
    answer = client.infer(f"echo-{datatype.lower()}", [sent("x", array, datatype)], request_id="seven",
                          headers=headers)
    response = answer.get_response()
    assert (response.id, response.model_version, response.outputs[0].datatype) == ("seven", "1", datatype)
    assert same(array, answer.as_numpy("y"))


def test_brain_floats_come_back_as_they_went(client, headers):
    array = np.array([[1.5, -2.0]], ml_dtypes.bfloat16)
    assert same(array, client.infer("echo-bf16", [sent("x", array, "BF16")], headers=headers).as_numpy("y"))


def typed(datatype, array):
    """A request whose elements stand in the typed fields, as other clients write them."""
    request = service_pb2.ModelInferRequest(model_name=f"echo-{datatype.lower()}")
    tensor = request.inputs.add(name="x", datatype=datatype, shape=array.shape)
    field = {"BOOL": "bool", "UINT64": "uint64", "INT64": "int64", "FP32": "fp32", "FP64": "fp64",
             "BYTES": "bytes"}.get(datatype, "uint" if datatype.startswith("U") else "int")
    getattr(tensor.contents, f"{field}_contents").extend(array.flatten().tolist())
    return request


@pytest.mark.parametrize("datatype", [name for name in SAMPLES if name != "FP16"])
def test_typed_contents_are_read(client, headers, datatype):
    array = SAMPLES[datatype]
    metadata = list(headers.items())
    response = client._client_stub.ModelInfer(typed(datatype, array), metadata=metadata)
    assert same(array, triton.InferResult(response).as_numpy("y"))


def test_empty_tensors_and_what_is_no_number(client, headers):
    empty = client.infer("echo-fp32", [sent("x", np.zeros((0, 3), np.float32), "FP32")], headers=headers)
    assert list(empty.get_response().outputs[0].shape) == [0, 3]
    array = np.array([[np.nan, np.inf, -np.inf]], np.float32)
    assert same(array, client.infer("echo-fp32", [sent("x", array, "FP32")], headers=headers).as_numpy("y"))


def test_outputs_and_versions_can_be_asked_for(client, headers):
    wanted = [triton.InferRequestedOutput("OUTPUT1")]
    answer = client.infer("simple", both(), outputs=wanted, model_version="1", headers=headers)
    assert same(COUNT - ONES, answer.as_numpy("OUTPUT1")) and answer.as_numpy("OUTPUT0") is None
    assert answer.get_response().model_version == "1"
    refused(client.infer, "simple", both(), model_version="9", headers=headers, status="NOT_FOUND")


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_compressed_messages(client, headers, compression):
    rows = [sent(f"INPUT{n}", np.ones((200, 16), np.int32), "INT32") for n in (0, 1)]
    answer = client.infer("simple", rows, headers=headers, compression_algorithm=compression)
    assert same(np.full((200, 16), 2, np.int32), answer.as_numpy("OUTPUT0"))


def test_asking_without_waiting(client, headers):
    answers = queue.Queue()
    for n in range(20):
        client.async_infer("simple", both(), callback=lambda result, error: answers.put((result, error)),
                           request_id=str(n), headers=headers)
    got = [answers.get(timeout=30) for _ in range(20)]
    assert all(error is None for _, error in got), got
    assert {result.get_response().id for result, _ in got} == {str(n) for n in range(20)}


def test_a_stream_of_requests(client, headers):
    answers = queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put((result, error)), headers=headers)
    try:
        for n in range(5):
            client.async_stream_infer("simple", both(), request_id=str(n))
        for n in range(5):
            result, error = answers.get(timeout=30)
            assert error is None, error
            assert result.get_response().id == str(n) and same(COUNT + ONES, result.as_numpy("OUTPUT0"))
        # A request that cannot be answered does not end the stream.
        client.async_stream_infer("simple", both()[:1])
        _, error = answers.get(timeout=30)
        assert error is not None and "INPUT1" in error.message()
        client.async_stream_infer("simple", both(), request_id="after")
        result, error = answers.get(timeout=30)
        assert error is None and result.get_response().id == "after"
    finally:
        client.stop_stream()


def test_classes(client, headers):
    rows = sent("X", np.array([[3.0, 1.0, 0.0, 0.5]], np.float32), "FP32")
    wanted = [triton.InferRequestedOutput("probabilities", class_count=3)]
    answer = client.infer("pets", [rows], outputs=wanted, headers=headers)
    assert answer.as_numpy("probabilities").tolist() == [[b"3:0:cat", b"1:1:dog", b"0.5:2:eel"]]


def test_parameters(client, headers):
    answer = client.infer("simple", both(), headers=headers, priority=2, timeout=5_000_000,
                          parameters={"routing_key": "me", "number": 1.5, "flag": True})
    assert same(COUNT + ONES, answer.as_numpy("OUTPUT0"))
    refused(client.infer, "simple", both(), headers=headers, sequence_id=7, status="INVALID_ARGUMENT",
            says="sequence_id")
    shared = triton.InferInput("INPUT0", [1, 16], "INT32")
    shared.set_shared_memory("region", 64)
    refused(client.infer, "simple", [shared, both()[1]], headers=headers, status="INVALID_ARGUMENT",
            says="shared_memory")


def test_mistakes_are_the_callers(client, headers):
    float_rows = sent("INPUT0", COUNT.astype(np.float32), "FP32")
    cases = [
        (("nothing", both()), "NOT_FOUND", "nothing"),
        (("simple", both()[:1]), "INVALID_ARGUMENT", "INPUT1"),
        (("simple", [*both(), sent("INPUT2", ONES, "INT32")]), "INVALID_ARGUMENT", "INPUT2"),
        (("simple", [both()[0], both()[0]]), "INVALID_ARGUMENT", "once"),
        (("simple", [float_rows, both()[1]]), "INVALID_ARGUMENT", "INT32"),
        (("simple", [sent("INPUT0", COUNT[:, :8], "INT32"), both()[1]]), "INVALID_ARGUMENT", "16"),
    ]
    for arguments, status, says in cases:
        refused(client.infer, *arguments, headers=headers, status=status, says=says)


def test_without_a_token_nothing_is_told(client):
    calls = [(client.get_server_metadata, ()), (client.get_model_metadata, ("simple",)),
             (client.infer, ("simple", both())), (client.get_model_repository_index, ()),
             (client.load_model, ("simple",)), (client.unload_model, ("simple",))]
    for call, arguments in calls:
        refused(call, *arguments, status="UNAUTHENTICATED")


def test_asynchronous_client(target):
    import asyncio

    import tritonclient.grpc.aio as aio

    async def ask():
        async with aio.InferenceServerClient(target.host) as client:
            assert await client.is_model_ready("simple", headers=target.metadata)
            answer = await client.infer("simple", both(), headers=target.metadata)
            return answer.as_numpy("OUTPUT0")

    assert same(COUNT + ONES, asyncio.run(ask()))


MALFORMED = {
    "cut": b"\x0a\x05ab",
    "not a message": b"\xff" * 20,
    "a name that is no text": b"\x0a\x01\xff",
    "no inputs": b"\x0a\x06simple",
}
# Few bytes that stand for many parts.
SWOLLEN = {
    "inputs": b"\x0a\x06simple" + b"\x2a\x00" * 1_000_000,
    "raw inputs": b"\x0a\x06simple" + b"\x3a\x00" * 1_000_000,
    "parameters": b"\x0a\x06simple" + b"\x22\x00" * 1_000_000,
}


@pytest.mark.parametrize("name", [*MALFORMED, *SWOLLEN])
def test_hostile_messages_are_the_callers_fault(target, headers, name):
    with grpc.insecure_channel(target.host) as channel:
        ask = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError) as refusal:
            ask((MALFORMED | SWOLLEN)[name], metadata=list(headers.items()), timeout=30)
    wanted = grpc.StatusCode.INVALID_ARGUMENT if name in MALFORMED else grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refusal.value.code() == wanted, refusal.value
    assert refusal.value.details()
