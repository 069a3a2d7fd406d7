"""Every call of `tritonclient.http`."""

import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from tensors import COUNT, ONES, SAMPLES, same


@pytest.fixture(scope="module")
def client(target):
    client = triton.InferenceServerClient(target.http, concurrency=4)
    yield client
    client.close()


@pytest.fixture
def headers(target):
    return target.headers


def sent(name, array, datatype, binary=True):
    sent = triton.InferInput(name, list(array.shape), datatype)
    sent.set_data_from_numpy(array, binary_data=binary)
    return sent


def both(binary=True):
    return [sent("INPUT0", COUNT, "INT32", binary), sent("INPUT1", ONES, "INT32", binary)]


def refused(call, *arguments, status=None, says=None, **options):
    # The client writes into the headers it is given, so each call gets its own.
    if "headers" in options:
        options["headers"] = dict(options["headers"])
    with pytest.raises(InferenceServerException) as refusal:
        call(*arguments, **options)
    error = refusal.value
    assert error.status() is not None and error.status().startswith("4"), f"{error.status()}: {error}"
    if status:
        assert error.status() == str(status), f"{error.status()}: {error}"
    if says:
        assert says in error.message(), error.message()
    return error


def test_health(client, headers):
    assert client.is_server_live(headers=headers) and client.is_server_ready(headers=headers)
    assert client.is_model_ready("simple", headers=headers)
    assert client.is_model_ready("simple", "1", headers=headers)
    assert not client.is_model_ready("simple", "9", headers=headers)
    assert not client.is_model_ready("nothing", headers=headers)
    assert not client.is_model_ready("../simple", headers=headers)


def test_metadata(client, headers):
    server = client.get_server_metadata(headers=headers)
    assert server["name"] == "falaj" and server["version"]
    assert {"binary_tensor_data", "classification", "model_configuration", "model_repository", "schedule_policy",
            "statistics"} <= set(server["extensions"])
    model = client.get_model_metadata("simple", headers=headers)
    assert model["name"] == "simple" and set(model["versions"]) == {"1", "2"} and model["platform"]
    assert model["inputs"] == [{"name": f"INPUT{n}", "datatype": "INT32", "shape": [-1, 16]} for n in (0, 1)]
    assert model["outputs"] == [{"name": f"OUTPUT{n}", "datatype": "INT32", "shape": [-1, 16]} for n in (0, 1)]
    assert client.get_model_metadata("simple", "1", headers=headers)["inputs"] == model["inputs"]
    refused(client.get_model_metadata, "nothing", headers=headers, status=404)
    refused(client.get_model_metadata, "simple", "9", headers=headers, status=404)


def test_configuration(client, headers):
    config = client.get_model_config("simple", headers=headers)
    assert config["name"] == "simple" and isinstance(config["max_batch_size"], int)
    dims = [16] if config["max_batch_size"] else [-1, 16]
    assert config["input"][0] == {"name": "INPUT0", "data_type": "TYPE_INT32", "dims": dims}
    assert client.get_model_config("simple", "1", headers=headers)["name"] == "simple"
    refused(client.get_model_config, "nothing", headers=headers, status=404)


def test_statistics_count_rows_and_runs(client, headers):
    def count():
        stats = client.get_inference_statistics("simple", "2", headers=headers)["model_stats"]
        assert [(model["name"], model["version"]) for model in stats] == [("simple", "2")]
        return stats[0]

    client.infer("simple", both(), headers=headers)
    before = count()
    rows = [sent(f"INPUT{n}", np.ones((3, 16), np.int32), "INT32") for n in (0, 1)]
    client.infer("simple", rows, headers=headers)
    after = count()
    assert after["inference_count"] - before["inference_count"] == 3
    assert after["execution_count"] - before["execution_count"] == 1
    assert after["last_inference"] >= before["last_inference"] > 1_600_000_000_000
    for part in ("success", "queue", "compute_infer"):
        assert after["inference_stats"][part]["count"] > before["inference_stats"][part]["count"], part
    everything = client.get_inference_statistics(headers=headers)["model_stats"]
    assert {"simple", "pets", "total"} <= {model["name"] for model in everything}
    assert client.get_inference_statistics("simple", headers=headers)["model_stats"]
    refused(client.get_inference_statistics, "nothing", headers=headers, status=404)


def test_repository(client, headers):
    index = client.get_model_repository_index(headers=headers)
    states = {(model["name"], model["version"]): model["state"] for model in index}
    assert states["total", "1"] == "READY" and states["simple", "2"] == "READY"
    client.unload_model("total", headers=headers)
    try:
        assert not client.is_model_ready("total", headers=headers)
        index = client.get_model_repository_index(headers=headers)
        total = next(model for model in index if model["name"] == "total")
        assert total["state"] == "UNAVAILABLE" and total["reason"]
        with pytest.raises(InferenceServerException):
            client.infer("total", [sent("X", np.ones((1, 4), np.float32), "FP32")], headers=headers)
    finally:
        client.load_model("total", headers=headers)
    assert client.is_model_ready("total", headers=headers)
    answer = client.infer("total", [sent("X", np.ones((1, 4), np.float32), "FP32")], headers=headers)
    assert answer.as_numpy("variable").tolist() == [[4.0]]
    refused(client.load_model, "nothing", headers=headers, status=404)
    refused(client.unload_model, "nothing", headers=headers, status=404)
    refused(client.load_model, "total", config="{}", headers=headers, status=400, says="config")
    refused(client.load_model, "total", files={"file:1/model.onnx": b"x"}, config="{}", headers=headers)


def test_an_empty_body_is_enough_for_the_repository(target):
    answer = target.request("POST", "/v2/repository/index")
    assert answer.status_code == 200 and answer.json(), answer.text
    ready = target.request("POST", "/v2/repository/index", json={"ready": True}).json()
    assert all(model["state"] == "READY" for model in ready)
    assert target.request("POST", "/v2/repository/models/total/load").status_code == 200


def test_what_belongs_to_one_machine_is_refused_clearly(client, headers):
    calls = [
        (client.get_trace_settings, ()),
        (client.get_trace_settings, ("simple",)),
        (client.update_trace_settings, ("simple", {"trace_rate": "1"})),
        (client.get_log_settings, ()),
        (client.update_log_settings, ({"log_verbose_level": 1},)),
        (client.get_system_shared_memory_status, ()),
        (client.register_system_shared_memory, ("region", "/key", 64)),
        (client.unregister_system_shared_memory, ("region",)),
        (client.unregister_system_shared_memory, ()),
        (client.get_cuda_shared_memory_status, ()),
        (client.register_cuda_shared_memory, ("region", b"handle", 0, 64)),
        (client.unregister_cuda_shared_memory, ("region",)),
    ]
    for call, arguments in calls:
        assert refused(call, *arguments, headers=headers).message(), call


@pytest.mark.parametrize("datatype", SAMPLES)
@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_every_type_comes_back_as_it_went(client, headers, datatype, binary_in, binary_out):
    array = SAMPLES[datatype]
    name = f"echo-{datatype.lower()}"
    wanted = [triton.InferRequestedOutput("y", binary_data=binary_out)]
    ask = [sent("x", array, datatype, binary_in)]
    if datatype == "FP16" and not (binary_in and binary_out):
        refused(client.infer, name, ask, outputs=wanted, headers=headers, status=400, says="raw bytes")
        return
    answer = client.infer(name, ask, outputs=wanted, request_id="seven", headers=headers)
    described = answer.get_response()
    assert described["id"] == "seven" and described["model_name"] == name and described["model_version"] == "1"
    assert answer.get_output("y")["datatype"] == datatype
    got = answer.as_numpy("y")
    if datatype == "BYTES":
        # The client gives text for text, and bytes for raw bytes.
        got = np.vectorize(lambda text: text if isinstance(text, bytes) else text.encode(), otypes=[object])(got)
    assert same(array, got), f"{array} became {got}"


def test_brain_floats_travel_raw(client, headers):
    array = np.array([[1.5, -2.0]], ml_dtypes.bfloat16)
    answer = client.infer("echo-bf16", [sent("x", array, "BF16")], headers=headers)
    assert same(array, answer.as_numpy("y"))


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_what_is_no_number_comes_back(client, headers, binary_in, binary_out):
    array = np.array([[np.nan, np.inf], [-np.inf, 1.0]], np.float32)
    wanted = [triton.InferRequestedOutput("y", binary_data=binary_out)]
    answer = client.infer("echo-fp32", [sent("x", array, "FP32", binary_in)], outputs=wanted, headers=headers)
    assert np.array_equal(array, answer.as_numpy("y").astype(np.float32), equal_nan=True)


def test_empty_tensors(client, headers):
    array = np.zeros((0, 3), np.float32)
    answer = client.infer("echo-fp32", [sent("x", array, "FP32", False)], headers=headers)
    assert answer.get_output("y")["shape"] == [0, 3]


def test_inputs_and_outputs_of_both_kinds_in_one_request(client, headers):
    ask = [sent("INPUT0", COUNT, "INT32", True), sent("INPUT1", ONES, "INT32", False)]
    wanted = [triton.InferRequestedOutput("OUTPUT1", binary_data=False), triton.InferRequestedOutput("OUTPUT0")]
    answer = client.infer("simple", ask, outputs=wanted, headers=headers)
    assert same(COUNT + ONES, answer.as_numpy("OUTPUT0")) and same(COUNT - ONES, answer.as_numpy("OUTPUT1"))
    only = client.infer("simple", ask, outputs=wanted[:1], headers=headers)
    assert [output["name"] for output in only.get_response()["outputs"]] == ["OUTPUT1"]


def test_a_version_can_be_asked_for(client, headers):
    for version in ("1", "2"):
        answer = client.infer("simple", both(), model_version=version, headers=headers)
        assert answer.get_response()["model_version"] == version
    assert client.infer("simple", both(), headers=headers).get_response()["model_version"] == "2"
    refused(client.infer, "simple", both(), model_version="9", headers=headers, status=404)


@pytest.mark.parametrize("ask", [None, "gzip", "deflate"])
@pytest.mark.parametrize("answer", [None, "gzip", "deflate"])
def test_compressed_bodies(client, headers, ask, answer):
    rows = [sent(f"INPUT{n}", np.ones((200, 16), np.int32), "INT32") for n in (0, 1)]
    got = client.infer("simple", rows, headers=headers, request_compression_algorithm=ask,
                       response_compression_algorithm=answer)
    assert same(np.full((200, 16), 2, np.int32), got.as_numpy("OUTPUT0"))


def test_asking_without_waiting(client, headers):
    asked = [client.async_infer("simple", both(), request_id=str(n), headers=headers) for n in range(20)]
    for n, answer in enumerate(asked):
        answer = answer.get_result()
        assert answer.get_response()["id"] == str(n) and same(COUNT + ONES, answer.as_numpy("OUTPUT0"))


def test_bodies_made_by_the_client_and_sent_by_others(target):
    body, length = triton.InferenceServerClient.generate_request_body(both(), request_id="by hand")
    answer = target.request("POST", "/v2/models/simple/infer", data=body,
                            headers={"Inference-Header-Content-Length": str(length)})
    assert answer.status_code == 200, answer.text
    length = int(answer.headers["Inference-Header-Content-Length"])
    read = triton.InferenceServerClient.parse_response_body(answer.content, header_length=length)
    assert same(COUNT + ONES, read.as_numpy("OUTPUT0")) and read.get_response()["id"] == "by hand"


def test_classes(client, headers):
    rows = sent("X", np.array([[3.0, 1.0, 0.0, 0.5], [0.0, 0.0, 1.0, 9.0]], np.float32), "FP32")
    for binary in (True, False):
        wanted = [triton.InferRequestedOutput("probabilities", binary_data=binary, class_count=2)]
        answer = client.infer("pets", [rows], outputs=wanted, headers=headers)
        texts = [[text.decode() if isinstance(text, bytes) else text for text in row]
                 for row in answer.as_numpy("probabilities").tolist()]
        assert texts == [["3:0:cat", "1:1:dog"], ["10:2:eel", "0:0:cat"]]
    refused(client.infer, "pets", [rows], headers=headers, status=400, says="classification",
            outputs=[triton.InferRequestedOutput("label", class_count=2)])


def test_parameters(client, headers):
    answer = client.infer("simple", both(), headers=headers, priority=1, timeout=5_000_000,
                          parameters={"routing_key": "me", "number": 1.5, "flag": True})
    assert same(COUNT + ONES, answer.as_numpy("OUTPUT0"))
    refused(client.infer, "simple", both(), headers=headers, sequence_id=7, sequence_start=True, status=400,
            says="sequence_id")
    shared = triton.InferInput("INPUT0", [1, 16], "INT32")
    shared.set_shared_memory("region", 64)
    refused(client.infer, "simple", [shared, both()[1]], headers=headers, status=400, says="shared_memory")
    wanted = triton.InferRequestedOutput("OUTPUT0")
    wanted.set_shared_memory("region", 64)
    refused(client.infer, "simple", both(), outputs=[wanted], headers=headers, status=400, says="shared_memory")


def test_mistakes_are_the_callers(client, headers):
    float_rows = sent("INPUT0", COUNT.astype(np.float32), "FP32")
    narrow = sent("INPUT0", COUNT[:, :8], "INT32")
    cases = [
        (("nothing", both()), 404, "nothing"),
        (("simple", both()[:1]), 400, "INPUT1"),
        (("simple", [*both(), sent("INPUT2", ONES, "INT32")]), 400, "INPUT2"),
        (("simple", [both()[0], both()[0]]), 400, "once"),
        (("simple", [float_rows, both()[1]]), 400, "INT32"),
        (("simple", [narrow, both()[1]]), 400, "16"),
        (("simple", []), 400, "INPUT0"),
    ]
    for arguments, status, says in cases:
        refused(client.infer, *arguments, headers=headers, status=status, says=says)
    refused(client.infer, "simple", both(), headers=headers, status=400, says="OUTPUT9",
            outputs=[triton.InferRequestedOutput("OUTPUT9")])


def test_without_a_token_nothing_is_told(client):
    for call, arguments in [
        (client.get_server_metadata, ()), (client.get_model_metadata, ("simple",)),
        (client.infer, ("simple", both())), (client.get_model_repository_index, ()),
        (client.get_inference_statistics, ()), (client.load_model, ("simple",)), (client.unload_model, ("simple",)),
    ]:
        refused(call, *arguments, status=401)
    assert client.is_server_live() and client.is_server_ready()
