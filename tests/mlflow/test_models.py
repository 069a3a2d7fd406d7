"""A model's way with the stock client, the command line and the stock `model-signing` tool: registered, signed,
fetched, verified, promoted with four eyes, rolled back, and told to a webhook."""

import base64
import hashlib
import hmac
import http.server
import json
import os
import queue
import subprocess
import sys
import threading

import mlflow
import pytest
import sklearn
from mlflow import MlflowClient
from mlflow.entities.webhook import WebhookEvent
from mlflow.exceptions import MlflowException
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from server import Server, binary, environment

SECRET = "a secret of the two of us"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("models"), FALAJ_REGISTRY_WEBHOOKS_ALLOWED_HOSTS="http://127.0.0.1",
                    FALAJ_REGISTRY_WEBHOOKS_ALLOW_PRIVATE_ADDRESSES="true").start()
    yield server
    server.stop()


@pytest.fixture
def client(server, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", server.admin_token())
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    needs = [f"scikit-learn=={sklearn.__version__}"]
    monkeypatch.setattr(mlflow.models, "infer_pip_requirements", lambda *_, **__: needs)
    mlflow.set_tracking_uri(server.url)
    mlflow.set_registry_uri(server.url)
    mlflow.set_experiment("models")
    yield MlflowClient()
    while mlflow.active_run():
        mlflow.end_run()
    mlflow.tracking.fluent._active_experiment_id = None


@pytest.fixture
def falaj(server, tmp_path):
    """Runs the command line; answers with what it printed."""
    def run(*arguments, token=None, code=0):
        env = environment(FALAJ_URL=server.url, FALAJ_TOKEN=token or server.admin_token(), HOME=str(tmp_path))
        done = subprocess.run([binary(), *map(str, arguments)], env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout if code == 0 else done.stderr
    return run


def registered(name):
    data, target = load_iris(return_X_y=True)
    with mlflow.start_run() as run:
        mlflow.log_param("c", 0.5)
        model = LogisticRegression(C=0.5, max_iter=200).fit(data, target)
        mlflow.sklearn.log_model(model, name="model", registered_model_name=name, input_example=data[:2])
    return run.info.run_id


def stock(*arguments):
    """The stock tool, which knows nothing of Falaj."""
    python = os.environ.get("FALAJ_TEST_PYTHON", sys.executable)
    return subprocess.run([python, "-m", "model_signing", *map(str, arguments)], capture_output=True,
                          text=True, timeout=120)


def test_the_stock_tool_verifies_what_was_downloaded(client, falaj, tmp_path):
    registered("signed")
    client.set_registered_model_alias("signed", "champion", 1)
    folder, key = tmp_path / "copy", tmp_path / "key.pub"
    falaj("model", "download", "signed", 1, folder)
    key.write_text(falaj("model", "key"))
    check = ["verify", "key", folder, "--signature", folder / "model.sig", "--public_key", key]
    done = stock(*check)
    assert done.returncode == 0, done.stdout + done.stderr
    falaj("model", "verify", "signed", 1, "--dir", folder)
    # What was fetched is a model.
    assert mlflow.sklearn.load_model(str(folder)).C == 0.5
    (folder / "MLmodel").write_text("flavors: {}\n")
    assert stock(*check).returncode != 0
    assert "MLmodel" in falaj("model", "verify", "signed", 1, "--dir", folder, code=8)
    falaj("model", "download", "signed", 1, folder, code=2)


def test_what_a_version_is(client, falaj):
    run = registered("described")
    falaj("model", "card", "edit", "described", 1, "--set", "owner=team", "--set", "licence=MIT")
    bom = json.loads(falaj("model", "bom", "described", 1))
    assert bom["metadata"]["component"]["licenses"] == [{"license": {"name": "MIT"}}]
    assert any(part.get("purl") == f"pkg:pypi/scikit-learn@{sklearn.__version__}" for part in bom["components"])
    scan = json.loads(falaj("model", "scan", "described", 1, "--output", "json"))
    assert {file["path"] for file in scan["files"]} >= {"MLmodel", "requirements.txt", "input_example.json"}
    lineage = json.loads(falaj("model", "lineage", "described", 1, "--output", "json"))
    assert lineage["run"]["run_id"] == run and lineage["run"]["params"]["c"] == "0.5"
    assert lineage["model"]["signature"]["inputs"]
    assert lineage["model"]["input_example"]["path"] == "input_example.json"
    for arguments in (["list"], ["show", "described"], ["versions", "described"], ["card", "show", "described", 1]):
        assert "described" in falaj("model", *arguments) or "team" in falaj("model", *arguments) or \
            "models:/" in falaj("model", *arguments)


def test_four_eyes(client, falaj, server):
    falaj("project", "create", "guarded")
    admin = server.client(server.admin_token())
    token = {}
    for name in ("ann", "ben"):
        admin.created("/v1/service-accounts", {"name": name, "tenant": "default"})
        admin.created("/v1/role-bindings", {"principal": name, "role": "contributor", "tenant": "default"})
        made = admin.created("/v1/tokens", {"owner": name, "role": "contributor", "tenant": "default"})
        token[name] = made["secret"]
    place = ["-p", "guarded"]
    falaj("model", "policy", "set", "--protect", "production", "--require", "owner", "--four-eyes", *place)
    for version in (1, 2):
        falaj("model", "register", "net", f"s3://bucket/{version}", *place, token=token["ann"])
        falaj("model", "card", "edit", "net", version, "--set", "owner=ann", *place, token=token["ann"])
    refusal = falaj("model", "alias", "set", "net", "production", 1, *place, token=token["ann"], code=6)
    assert "nobody else has approved it" in refusal
    for version in (1, 2):
        asked = json.loads(falaj("model", "request", "net", version, "--alias", "production", "--output", "json",
                                 *place, token=token["ann"]))
        assert "somebody else" in falaj("model", "approve", asked["id"], *place, token=token["ann"], code=6)
        falaj("model", "approve", asked["id"], "--reason", "fine", *place, token=token["ben"])
        falaj("model", "alias", "set", "net", "production", version, *place, token=token["ann"])
    assert "used" in falaj("model", "requests", *place)
    rolled = json.loads(falaj("model", "alias", "rollback", "net", "production", "--output", "json", *place))
    assert rolled["version"] == "1" and rolled["from"] == "2"
    moves = json.loads(falaj("model", "alias", "history", "net", "--alias", "production", "--output", "json", *place))
    assert [(move["by_name"], move["to"]) for move in moves] == [("admin", "1"), ("ann", "2"), ("ann", "1")]
    falaj("model", "stage", "net", 2, "Staging", *place)
    falaj("model", "delete", "net", "--version", 2, "--yes", *place)
    falaj("model", "delete", "net", "--yes", *place)


class Receiver(http.server.BaseHTTPRequestHandler):
    arrived = queue.Queue()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.arrived.put((dict(self.headers), body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_webhook(client, falaj):
    receiver = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{receiver.server_port}/hook"
    hook = client.create_webhook("told", url, [WebhookEvent.from_str("registered_model.created")], secret=SECRET)
    assert hook.secret is None
    client.create_registered_model("told-of", description="why")
    headers, body = Receiver.arrived.get(timeout=20)
    headers = {name.lower(): value for name, value in headers.items()}
    signed = b".".join([headers["x-mlflow-delivery-id"].encode(), headers["x-mlflow-timestamp"].encode(), body])
    expected = base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
    assert headers["x-mlflow-signature"] == f"v1,{expected}"
    assert json.loads(body)["data"] == {"name": "told-of", "tags": {}, "description": "why"}
    falaj("webhook", "test", hook.webhook_id)
    assert json.loads(Receiver.arrived.get(timeout=20)[1])["data"]["name"] == "example_model"
    assert "told" in falaj("webhook", "list")
    falaj("webhook", "update", hook.webhook_id, "--status", "DISABLED")
    assert client.get_webhook(hook.webhook_id).status == "DISABLED"
    with pytest.raises(MlflowException, match="allowed_hosts"):
        client.create_webhook("stray", "https://elsewhere.example/", [WebhookEvent.from_str("prompt.created")])
    falaj("webhook", "delete", hook.webhook_id, "--yes")
    receiver.shutdown()
