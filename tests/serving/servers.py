"""Falaj with the models of `models.py`, in each way that it can serve them."""

import contextlib
import glob
import os
import pathlib
import subprocess
import sys
import time

import requests

import models
from server import READY_WITHIN, Server, binary, environment

TENANT, PROJECT = "acme", "vision"


def library():
    """The library of ONNX Runtime: of this environment, or of the one the other tests use."""
    pythons = [sys.executable, os.environ.get("FALAJ_TEST_PYTHON", "")]
    for python in filter(None, pythons):
        root = pathlib.Path(python).parent.parent
        found = glob.glob(str(root / "lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*"))
        if found:
            return found[0]
    raise AssertionError("no library of ONNX Runtime: set FALAJ_TEST_PYTHON")


class Target:
    """A server as the clients see it."""

    host: str
    token: str
    # Before the path, for REST.
    prefix = ""
    # Beside the token, for gRPC.
    project = None

    @property
    def http(self):
        """Where the REST side begins, as clients of Triton write it."""
        return self.host + self.prefix

    @property
    def headers(self):
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def metadata(self):
        """What gRPC calls headers."""
        metadata = {"authorization": f"Bearer {self.token}"}
        return metadata | ({"x-falaj-project": self.project} if self.project else {})

    def request(self, method, path, **options):
        headers = self.headers | options.pop("headers", {})
        return requests.request(method, f"http://{self.http}{path}", headers=headers, timeout=30, **options)


class Edge(Target):
    """A folder of models, without a database."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.server = Server(folder)
        self.host = f"127.0.0.1:{self.server.port}"

    def start(self):
        token = self.folder / "token"
        command = [binary(), "serve-edge", models.write(self.folder / "models"), "--token-file", token,
                   "--listen", self.host, "--onnxruntime", library()]
        with open(self.server.log, "ab") as log:
            self.server.process = subprocess.Popen(command, env=environment(), stdin=subprocess.DEVNULL,
                                                   stdout=log, stderr=log)
        deadline = time.monotonic() + READY_WITHIN
        while time.monotonic() < deadline:
            assert self.server.process.poll() is None, f"it ended:\n{self.server.tail()}"
            with contextlib.suppress(requests.ConnectionError):
                if requests.get(f"http://{self.host}/v2/health/ready", timeout=5).status_code == 200:
                    self.token = token.read_text().strip()
                    return self
            time.sleep(0.02)
        raise AssertionError(f"not ready after {READY_WITHIN} s:\n{self.server.tail()}")

    def stop(self):
        self.server.stop()


class Platform(Target):
    """The whole platform: every model registered and deployed in a project of its own."""

    prefix = f"/t/{TENANT}/{PROJECT}"
    project = f"{TENANT}/{PROJECT}"

    def __init__(self, folder):
        self.server = Server(folder, FALAJ_SERVING_ONNXRUNTIME=library())
        self.host = f"127.0.0.1:{self.server.port}"

    def start(self):
        self.server.start()
        self.token = self.server.admin_token()
        admin = self.server.client(self.token)
        admin.created("/v1/tenants", {"name": TENANT})
        admin.created(f"/v1/tenants/{TENANT}/projects", {"name": PROJECT})
        experiment = self.mlflow("experiments/create", name="models")["experiment_id"]
        for model in models.all_models():
            self.mlflow("registered-models/create", name=model.name)
            for _ in range(model.versions):
                self.register(experiment, model)
            self.deploy(model)
        return self

    def mlflow(self, call, **body):
        answer = self.request("POST", f"/api/2.0/mlflow/{call}", json=body)
        assert answer.status_code == 200, f"{call}: {answer.status_code} {answer.text}"
        return answer.json()

    def register(self, experiment, model):
        """What MLflow's client does, call by call."""
        run = self.mlflow("runs/create", experiment_id=experiment, start_time=0)["run"]["info"]
        place = run["artifact_uri"].split(":", 1)[1].lstrip("/")
        put = self.request("PUT", f"/api/2.0/mlflow-artifacts/artifacts/{place}/model/model.onnx",
                           data=model.proto.SerializeToString())
        assert put.status_code == 200, put.text
        self.mlflow("model-versions/create", name=model.name, run_id=run["run_id"],
                    source=f"{run['artifact_uri']}/model")

    def deploy(self, model):
        latest = {"name": "main", "model": model.name, "version": model.versions}
        variants = [latest] + [{"name": f"v{old}", "model": model.name, "version": old, "weight": 0}
                               for old in range(1, model.versions)]
        place = f"/v1/tenants/{TENANT}/projects/{PROJECT}/endpoints/{model.name}"
        deadline = time.monotonic() + READY_WITHIN
        while True:
            answer = self.server.client(self.token).put(place, json={"spec": {"variants": variants}})
            if answer.status_code == 200:
                return
            # A version must be signed first, which a worker does.
            assert time.monotonic() < deadline, f"{model.name}: {answer.status_code} {answer.text}"
            time.sleep(0.2)

    def stop(self):
        self.server.stop()


TARGETS = {"edge": Edge, "platform": Platform}
