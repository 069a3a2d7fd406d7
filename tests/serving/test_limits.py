"""What a caller is told over gRPC that asks too often."""

import grpc
import numpy
import pytest
import requests
import tritonclient.grpc as triton

import models
from servers import PROJECT, TENANT


def test_too_often(target):
    if target.project is None:
        pytest.skip("a folder of models limits nobody")
    place = f"{target.server.url}/v1/tenants/{TENANT}/projects/{PROJECT}/endpoints/limited"
    model = models.all_models()[0].name
    spec = {"variants": [{"name": "main", "model": model, "version": 1}], "rate": {"per_second": 0.01, "burst": 2}}
    made = requests.put(place, json={"spec": spec}, headers=target.headers, timeout=60)
    assert made.status_code == 200, made.text
    client = triton.InferenceServerClient(target.host)
    rows = triton.InferInput("nothing of the kind", [1, 1], "FP32")
    rows.set_data_from_numpy(numpy.zeros((1, 1), "float32"))
    told = []
    for _ in range(3):
        with pytest.raises(triton.InferenceServerException) as error:
            client.infer("limited", [rows], headers=target.metadata)
        told.append(error.value.status())
    # The first two were heard, and did not fit the model.
    assert told == ["StatusCode.INVALID_ARGUMENT"] * 2 + [str(grpc.StatusCode.RESOURCE_EXHAUSTED)]
    assert client.get_model_metadata("limited", headers=target.metadata).name == "limited"
    requests.delete(place, headers=target.headers, timeout=60)
