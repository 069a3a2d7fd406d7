"""Endpoints for tests: registered models made of bytes, and one on a server in this process."""

import contextlib
import http.server
import json
import struct
import threading
import time

from onnx_model import one_operator

ROWS = {"inputs": [{"name": "X", "shape": [1, 3], "datatype": "FP32", "data": [1.0, 2.0, 3.0]}]}
TURNED = [-1.0, -2.0, -3.0]


def until(what, within=60.0, every=0.05):
    """Waits for something to be true, and gives it back."""
    deadline = time.monotonic() + within
    while True:
        found = what()
        if found or time.monotonic() > deadline:
            assert found, "it did not come to pass"
            return found
        time.sleep(every)


def register(admin, name, columns=3):
    """Another version of a model that turns the sign of its numbers; answers with its number."""
    def post(path, body):
        answer = admin.post(f"/api/2.0/mlflow/{path}", json=body)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        return answer.json()

    known = admin.get(f"/api/2.0/mlflow/experiments/get-by-name?experiment_name={name}")
    experiment = (known.json()["experiment"] if known.status_code == 200 else
                  post("experiments/create", {"name": name}))["experiment_id"]
    run = post("runs/create", {"experiment_id": experiment})["run"]["info"]["run_id"]
    put = admin.put(f"/api/2.0/mlflow-artifacts/artifacts/{experiment}/{run}/artifacts/served/model.onnx",
                    data=one_operator("Neg", columns=columns))
    assert put.status_code == 200, put.text
    admin.post("/api/2.0/mlflow/registered-models/create", json={"name": name})
    return int(post("model-versions/create", {"name": name, "source": f"runs:/{run}/served", "run_id": run})
               ["model_version"]["version"])


def place(name, tenant="default", project="default"):
    return f"/v1/tenants/{tenant}/projects/{project}/endpoints/{name}"


def deploy(admin, name, variant=None, within=60.0, **spec):
    """Deploys the newest version of a model of the same name, or another variant."""
    spec = {"variants": [{"name": "main"} | (variant or {"model": name})]} | spec

    def attempt():
        answer = admin.put(place(name), json={"spec": spec})
        # The version must be signed first, which a worker does.
        assert answer.status_code in (200, 409, 503), answer.text
        return answer.status_code == 200 and answer.json()

    return until(attempt, within, every=0.3)


class Far(http.server.ThreadingHTTPServer):
    """A server of the Open Inference Protocol with one model, `far`, which turns the sign of `X`.

    What it does with the next questions stands in `script`: `busy`, `bad`, `broken`, or seconds to wait."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Far)
        self.script, self.asked, self.headers_seen = [], 0, []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_):
        pass


class _Far(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        value = lambda name: {"name": name, "datatype": "FP32", "shape": [-1, 3]}
        if self.path != "/v2/models/far":
            return self.reply(404, b'{"error": "nothing here"}')
        told = {"name": "far", "platform": "test", "inputs": [value("X")], "outputs": [value("Y")]}
        self.reply(200, json.dumps(told).encode())

    def do_POST(self):
        self.server.asked += 1
        self.server.headers_seen.append(dict(self.headers))
        body = self.rfile.read(int(self.headers["content-length"]))
        step = self.server.script.pop(0) if self.server.script else "ok"
        if step == "busy":
            return self.reply(503, b'{"error": "busy"}', retry_after="1")
        if step == "bad":
            return self.reply(400, b'{"error": "these numbers are not to my liking"}')
        if step == "broken":
            return self.reply(500, b"{}")
        if not isinstance(step, str):
            time.sleep(step)
        length = int(self.headers["inference-header-content-length"])
        shape = json.loads(body[:length])["inputs"][0]["shape"]
        count = len(body[length:]) // 4
        turned = struct.pack(f"<{count}f", *(-n for n in struct.unpack(f"<{count}f", body[length:])))
        told = {"model_name": "far", "model_version": "7", "outputs": [
            {"name": "Y", "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": len(turned)}}]}
        told = json.dumps(told).encode()
        with contextlib.suppress(OSError):
            self.reply(200, told + turned, inference_header_content_length=str(len(told)))


class Listener(http.server.ThreadingHTTPServer):
    """Takes what is sent to it; the first `refusals` requests are answered with 503."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Listener)
        self.received, self.refusals = [], 0
        self.url = f"http://127.0.0.1:{self.server_port}/done"


class _Listener(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.server.refusals:
            self.server.refusals -= 1
            status = 503
        else:
            self.server.received.append((dict(self.headers), body))
            status = 204
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()


@contextlib.contextmanager
def running(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
