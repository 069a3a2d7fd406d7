"""The clients of KServe, REST and gRPC. They need an environment of their own: the same protobuf names are theirs
and Triton's client's."""

import asyncio
import sys

import numpy as np
import pytest

# It reads the command line when it is imported.
arguments, sys.argv = sys.argv, sys.argv[:1]
from kserve import InferInput, InferRequest, InferResponse  # noqa: E402
from kserve.inference_client import InferenceGRPCClient, InferenceRESTClient, RESTConfig  # noqa: E402
from kserve.protocol.infer_type import RequestedOutput  # noqa: E402
from kserve.protocol.rest.v2_datamodels import InferenceRequest  # noqa: E402, F401

sys.argv = arguments

from tensors import COUNT, ONES, SAMPLES, same  # noqa: E402


def request(model, tensors, binary=False, outputs=None, **options):
    inputs = []
    for name, array, datatype in tensors:
        made = InferInput(name, list(array.shape), datatype)
        made.set_data_from_numpy(array, binary_data=binary)
        inputs.append(made)
    return InferRequest(model_name=model, infer_inputs=inputs, request_outputs=outputs, **options)


def both():
    return [("INPUT0", COUNT, "INT32"), ("INPUT1", ONES, "INT32")]


def rest(target, act, protocol="v2"):
    """Asks over REST, in the version of the protocol that is meant here."""
    async def run():
        config = RESTConfig(protocol=protocol, timeout=30, retries=0)
        client = InferenceRESTClient(config)
        try:
            return await act(client, f"http://{target.http}", target.headers)
        finally:
            await client.close()
    return asyncio.run(run())


def grpc(target, act):
    async def run():
        client = InferenceGRPCClient(url=target.host)
        try:
            return await act(client, list(target.metadata.items()))
        finally:
            await client.close()
    return asyncio.run(run())


def test_health_over_rest(target):
    async def act(client, base, headers):
        assert await client.is_server_live(base, headers=headers) is True
        assert await client.is_server_ready(base, headers=headers) is True
        assert await client.is_model_ready(base, "simple", headers=headers) is True
        assert await client.is_model_ready(base, "nothing", headers=headers) is False
    rest(target, act)


@pytest.mark.parametrize("datatype", SAMPLES)
@pytest.mark.parametrize("binary", [False, True])
def test_every_type_over_rest(target, datatype, binary):
    if datatype == "FP16" and not binary:
        pytest.skip("half floats travel raw")
    array = SAMPLES[datatype]
    wanted = [RequestedOutput("y", parameters={"binary_data": binary})]

    async def act(client, base, headers):
        ask = request(f"echo-{datatype.lower()}", [("x", array, datatype)], binary, wanted)
        return await client.infer(base, ask, headers=headers, model_name=f"echo-{datatype.lower()}")
    answer = rest(target, act)
    assert isinstance(answer, InferResponse) and answer.model_name == f"echo-{datatype.lower()}"
    got = answer.outputs[0].as_numpy()
    if datatype == "BYTES":
        got = np.vectorize(lambda text: text if isinstance(text, bytes) else text.encode(), otypes=[object])(got)
    assert same(array, got), f"{array} became {got}"


def test_missing_numbers_over_rest(target):
    async def act(client, base, headers):
        ask = request("echo-fp32", [("x", np.array([[np.nan, 1.0]], np.float32), "FP32")])
        return await client.infer(base, ask, headers=headers, model_name="echo-fp32")
    got = rest(target, act).outputs[0].as_numpy()
    assert np.isnan(got[0, 0]) and got[0, 1] == 1.0


def test_several_tensors_over_rest(target):
    async def act(client, base, headers):
        ask = request("simple", both(), request_id="seven")
        return await client.infer(base, ask, headers=headers, model_name="simple")
    answer = rest(target, act)
    assert answer.id == "seven"
    named = {output.name: output.as_numpy() for output in answer.outputs}
    assert same(COUNT + ONES, named["OUTPUT0"]) and same(COUNT - ONES, named["OUTPUT1"])


def test_mistakes_over_rest_are_told(target):
    import httpx

    async def act(client, base, headers):
        with pytest.raises(httpx.HTTPStatusError) as refusal:
            await client.infer(base, request("simple", both()[:1]), headers=headers, model_name="simple")
        assert refusal.value.response.status_code == 400 and "INPUT1" in str(refusal.value)
        with pytest.raises(httpx.HTTPStatusError) as refusal:
            await client.infer(base, request("simple", both()), headers=headers, model_name="nothing")
        assert refusal.value.response.status_code == 404
    rest(target, act)


def test_the_first_version_of_the_protocol(target):
    async def act(client, base, headers):
        answer = await client.infer(base, {"instances": [[1.0, 2.0, 3.0, 4.0]]}, headers=headers, model_name="total")
        assert answer == {"predictions": [[10.0]]}
    rest(target, act, protocol="v1")


def test_health_over_grpc(target):
    async def act(client, metadata):
        assert await client.is_server_live(headers=metadata) is True
        assert await client.is_server_ready(headers=metadata) is True
        assert await client.is_model_ready("simple", headers=metadata) is True
        assert await client.is_model_ready("nothing", headers=metadata) is False
    grpc(target, act)


@pytest.mark.parametrize("datatype", SAMPLES)
@pytest.mark.parametrize("binary", [False, True])
def test_every_type_over_grpc(target, datatype, binary):
    if datatype == "FP16" and not binary:
        pytest.skip("half floats travel raw")
    array = SAMPLES[datatype]

    async def act(client, metadata):
        ask = request(f"echo-{datatype.lower()}", [("x", array, datatype)], binary)
        return await client.infer(ask, headers=metadata)
    answer = grpc(target, act)
    assert same(array, answer.outputs[0].as_numpy())


def test_mistakes_over_grpc_are_told(target):
    import grpc as library

    async def act(client, metadata):
        with pytest.raises(library.RpcError) as refusal:
            await client.infer(request("simple", both()[:1]), headers=metadata)
        assert refusal.value.code() == library.StatusCode.INVALID_ARGUMENT
        assert "INPUT1" in refusal.value.details()
        with pytest.raises(library.RpcError) as refusal:
            await client.infer(request("nothing", both()), headers=metadata)
        assert refusal.value.code() == library.StatusCode.NOT_FOUND
    grpc(target, act)
