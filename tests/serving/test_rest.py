"""What no stock client sends: bodies by hand, and MLflow's scoring."""

import gzip
import json
import zlib

import pytest

ROW = [1.0, 2.0, 3.0, 4.0]


def ask(target, model, body, **options):
    return target.request("POST", f"/v2/models/{model}/infer", data=body, **options)


def request(**members):
    tensor = {"name": "X", "shape": [1, 4], "datatype": "FP32", "data": ROW}
    return json.dumps({"inputs": [tensor | members]})


def test_no_content_type_is_needed(target):
    for headers in ({}, {"Content-Type": "application/json"}, {"Content-Type": "application/octet-stream"},
                    {"Content-Type": "text/plain"}):
        answer = ask(target, "total", request(), headers=headers)
        assert answer.status_code == 200, f"{headers}: {answer.text}"
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.json()["outputs"] == [
            {"name": "variable", "datatype": "FP32", "shape": [1, 1], "data": [10.0]}]


@pytest.mark.parametrize("path", ["/v2", "/v2/"])
def test_both_spellings_of_the_root(target, path):
    assert target.request("GET", path).json()["name"] == "falaj"


def test_health_has_a_body(target):
    assert target.request("GET", "/v2/health/live").json() == {"live": True}
    assert target.request("GET", "/v2/health/ready").json()["ready"] is True
    ready = target.request("GET", "/v2/models/total/ready")
    assert ready.status_code == 200 and ready.json()["ready"] is True
    assert target.request("GET", "/v2/models/nothing/ready").status_code == 404
    assert "total" in target.request("GET", "/v2/models").json()["models"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_compressed_json(target, encoding):
    packed = {"gzip": gzip.compress, "deflate": zlib.compress}[encoding](request().encode())
    answer = ask(target, "total", packed, headers={"Content-Encoding": encoding, "Accept-Encoding": encoding})
    assert answer.status_code == 200, answer.text
    assert answer.json()["outputs"][0]["data"] == [10.0]
    broken = ask(target, "total", packed[:-4], headers={"Content-Encoding": encoding})
    assert broken.status_code == 400 and broken.json()["error"], broken.text


HOSTILE = {
    "nothing": b"",
    "not JSON": b"inputs",
    "not UTF-8": b"{\"inputs\":\"\xff\"}",
    "a list": b"[]",
    "no inputs": b"{}",
    "cut": request().encode()[:-3],
    "too deep": b"{\"x\":" + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep data": request(data=None).encode().replace(b"null", b"[" * 1000 + b"]" * 1000),
    "huge shape": request(shape=[2**62, 2**62]),
    "large shape": request(shape=[2**30]),
    "negative shape": request(shape=[-1, 4]),
    "too few": request(data=[1.0]),
    "too many": request(data=ROW * 2),
    "ragged": request(data=[[1.0, 2.0], [3.0]]),
    "text for a number": request(data=["1", "2", "3", "4"]),
    "beyond a float": request().replace("4.0", "1e999"),
    "unknown type": request(datatype="FLOAT"),
    "another type": request(datatype="INT64", data=[1, 2, 3, 4]),
    "another rank": request(shape=[4]),
    "another name": request(name="Y"),
    "raw without a header": request(data=None, parameters={"binary_data_size": 16}).replace(', "data": null', ""),
    "an unknown output": request()[:-1] + ', "outputs": [{"name": "other"}]}',
    "a sequence": request()[:-1] + ', "parameters": {"sequence_id": 3}}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bodies_are_the_callers_fault(target, name):
    answer = ask(target, "total", HOSTILE[name])
    wanted = 413 if name == "large shape" else 400
    assert answer.status_code == wanted, f"{answer.status_code} {answer.text}"
    assert answer.json().keys() == {"error"} and answer.json()["error"]


@pytest.mark.parametrize("length", ["-1", "x", "0", "1", "99999999999999999999", "1000000"])
def test_hostile_lengths_are_the_callers_fault(target, length):
    answer = ask(target, "total", request(), headers={"Inference-Header-Content-Length": length})
    assert answer.status_code == 400 and answer.json()["error"], answer.text


def test_paths_that_are_not_there(target):
    for method, path in [("GET", "/v2/nothing"), ("GET", "/v2/models/total/nothing"), ("GET", "/v2/trace/setting"),
                         ("POST", "/v2/models/total/generate"), ("GET", "/v2/logging"),
                         ("GET", "/v2/systemsharedmemory/status"), ("POST", "/v2/cudasharedmemory/unregister")]:
        answer = target.request(method, path)
        assert answer.status_code in (404, 405, 501), f"{path}: {answer.status_code}"
        assert answer.json()["error"], answer.text
    assert target.request("GET", "/v2/models/total/infer").status_code == 405


def score(target, model, body, kind="application/json"):
    data = body if isinstance(body, (str, bytes)) else json.dumps(body)
    return target.request("POST", f"/endpoints/{model}/invocations", data=data, headers={"Content-Type": kind})


COLUMNS = ["a", "b", "c", "d"]
FRAMES = {
    "split": ("application/json", {"dataframe_split": {"columns": COLUMNS, "data": [ROW, [0, 0, 1, 9]]}}),
    "records": ("application/json", {"dataframe_records": [dict(zip(COLUMNS, ROW)), dict(zip(COLUMNS, [0, 0, 1, 9]))]}),
    "csv": ("text/csv", "a,b,c,d\n1.0,2.0,3.0,4.0\n0,0,1,9\n"),
}


@pytest.mark.parametrize("frame", FRAMES)
def test_frames_are_answered_by_records(target, frame):
    kind, body = FRAMES[frame]
    answer = score(target, "total", body, kind)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"predictions": [{"variable": 10.0}, {"variable": 10.0}]}
    answer = score(target, "pets", body, kind).json()["predictions"]
    assert answer == [{"label": "eel", "probabilities": {"cat": 1.0, "dog": 2.0, "eel": 7.0}},
                      {"label": "eel", "probabilities": {"cat": 0.0, "dog": 0.0, "eel": 10.0}}]


@pytest.mark.parametrize("body", [{"instances": [ROW]}, {"inputs": [ROW]}, {"inputs": {"X": [ROW]}},
                                  {"instances": [{"X": ROW}]}])
def test_tensors_are_answered_by_tensors(target, body):
    assert score(target, "total", body).json() == {"predictions": {"variable": [[10.0]]}}


def test_scoring_refuses_what_does_not_fit(target):
    for body in ({}, {"inputs": [ROW], "instances": [ROW]}, {"inputs": ["a"]}, {"inputs": {"Y": [ROW]}},
                 {"dataframe_split": {"columns": COLUMNS, "data": [[1]]}}, "[", {"inputs": [[1, 2]]}):
        answer = score(target, "total", body)
        assert answer.status_code == 400, f"{body}: {answer.status_code} {answer.text}"
    assert score(target, "total", "x", "application/xml").status_code in (400, 415)
    assert score(target, "nothing", {"inputs": [ROW]}).status_code == 404
