"""`falaj predict` against a running server: one request, and every row of a file.

It stands here because this environment has PyArrow."""

import json
import os
import signal
import subprocess
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onnx_model import one_operator
from server import binary, environment

ROWS, GROUP = 5000, 1000


@pytest.fixture(scope="session")
def endpoint(server, admin):
    """An endpoint that turns the sign of three numbers."""
    post = lambda path, body: admin.post(f"/api/2.0/mlflow/{path}", json=body)
    experiment = post("experiments/create", {"name": "predicted"}).json()["experiment_id"]
    run = post("runs/create", {"experiment_id": experiment}).json()["run"]["info"]["run_id"]
    put = admin.put(f"/api/2.0/mlflow-artifacts/artifacts/{experiment}/{run}/artifacts/served/model.onnx",
                    data=one_operator("Neg", columns=3))
    assert put.status_code == 200, put.text
    post("registered-models/create", {"name": "turned"})
    made = post("model-versions/create", {"name": "turned", "source": f"runs:/{run}/served", "run_id": run})
    assert made.status_code == 200, made.text
    spec = {"variants": [{"name": "main", "model": "turned", "version": 1}]}
    place = "/v1/tenants/default/projects/default/endpoints/turned"
    deadline = time.monotonic() + 60
    while True:
        # The version must be signed first, which a worker does.
        answer = admin.put(place, json={"spec": spec})
        if answer.status_code == 200 or time.monotonic() > deadline:
            assert answer.status_code == 200, answer.text
            return "turned"
        time.sleep(0.5)


@pytest.fixture
def command(server, tmp_path):
    env = environment(FALAJ_URL=server.url, FALAJ_TOKEN=server.admin_token(), HOME=str(tmp_path),
                      XDG_CONFIG_HOME=str(tmp_path / "config"))
    return lambda *arguments: ([binary(), "predict", *map(str, arguments)], env)


@pytest.fixture
def predict(command):
    def run(*arguments, status=0):
        arguments, env = command(*arguments)
        done = subprocess.run(arguments, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              timeout=120)
        assert done.returncode == status, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done
    return run


@pytest.fixture
def table(tmp_path):
    numbers = list(range(ROWS))
    made = pa.table({
        "id": pa.array([f"row {n}" for n in numbers]),
        "a": pa.array([float(n) for n in numbers], pa.float64()),
        "b": pa.array(numbers, pa.int64()),
        "c": pa.array([n / 4 for n in numbers], pa.float32()),
    })
    path = tmp_path / "in.parquet"
    pq.write_table(made, path, row_group_size=GROUP)
    return path


def check(path, kept=("id",)):
    found = pq.read_table(path)
    assert found.num_rows == ROWS
    assert found.schema.names == [*kept, "Y"]
    assert found["Y"].to_pylist() == [[-float(n), -float(n), -n / 4] for n in range(ROWS)]
    if "id" in kept:
        assert found["id"].to_pylist() == [f"row {n}" for n in range(ROWS)]


def test_one_request(predict, endpoint):
    request = {"inputs": [{"name": "X", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}
    answer = json.loads(predict(endpoint, "--json", json.dumps(request)).stdout)
    assert answer["outputs"][0]["data"] == [-1, -2, -3]
    assert answer["model_version"] == "1"
    wrong = {"inputs": [{"name": "Z", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}
    assert "Z" in predict(endpoint, "--json", json.dumps(wrong), status=1).stderr
    assert "not JSON" in predict(endpoint, "--json", "{", status=2).stderr


def test_every_row_of_a_file(predict, endpoint, table, tmp_path):
    out = tmp_path / "out.parquet"
    done = predict(endpoint, "--batch", table, "--out", out, "--keep", "id", "--rows-at-once", 128)
    assert f"wrote {ROWS} rows" in done.stdout + done.stderr
    check(out)
    assert pq.read_metadata(out).metadata[b"falaj.model_versions"] == b"1"
    assert pq.read_schema(out).field("Y").type.list_size == 3
    assert not (tmp_path / "out.parquet.parts").exists()
    # Nothing but the numbers, in another order of rows at once and requests in flight.
    plain = tmp_path / "plain.parquet"
    predict(endpoint, "--batch", table, "--out", plain, "--rows-at-once", 1000, "--in-flight", 1)
    check(plain, kept=())


def test_columns_are_named_or_fit(predict, endpoint, table, tmp_path):
    out = tmp_path / "out.parquet"
    predict(endpoint, "--batch", table, "--out", out, "--column", "c", "--column", "b", "--column", "a")
    assert pq.read_table(out)["Y"].to_pylist()[4] == [-1.0, -4.0, -4.0]
    few = predict(endpoint, "--batch", table, "--out", tmp_path / "x", "--column", "a", status=1)
    assert "3 columns" in few.stderr
    unknown = predict(endpoint, "--batch", table, "--out", tmp_path / "x", "--keep", "nobody", status=1)
    assert "nobody" in unknown.stderr
    none = predict("nowhere", "--batch", table, "--out", tmp_path / "x", status=5)
    assert "nowhere" in none.stderr
    assert not (tmp_path / "x").exists()


def test_what_was_interrupted_goes_on(command, predict, endpoint, table, tmp_path):
    out, parts = tmp_path / "out.parquet", tmp_path / "out.parquet.parts"
    job = (endpoint, "--batch", table, "--out", out, "--keep", "id", "--rows-at-once", 5, "--in-flight", 1)
    arguments, env = command(*job)
    process = subprocess.Popen(arguments, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(parts.glob("group-*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    finished = len(list(parts.glob("group-*.parquet")))
    assert 1 <= finished < ROWS // GROUP
    assert not out.exists()
    # Another job does not take them for its own.
    other = predict(endpoint, "--batch", table, "--out", out, status=2)
    assert "--restart" in other.stderr
    done = predict(*job)
    assert f"{finished * GROUP} of them by an earlier run" in done.stdout + done.stderr
    check(out)
    assert sorted(os.listdir(tmp_path))[:2] == ["in.parquet", "out.parquet"]
