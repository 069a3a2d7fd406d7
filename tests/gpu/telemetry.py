"""A server on a machine with a GPU: what jobs use of it is seen, an idle one is told of and gives it up.

Not part of the test suite, which runs on machines without a GPU: `python3 tests/gpu/telemetry.py PATH/TO/falaj`.
Needs nothing but Python; ends with 0 and says so where there is no GPU. Prints what it found as JSON."""

import ctypes
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).parent
API = "/t/default/default/api"
SETTINGS = {
    "FALAJ_TRAINING_TELEMETRY_EVERY": "1s", "FALAJ_TRAINING_TELEMETRY_WRITE_EVERY": "2s",
    "FALAJ_TRAINING_TELEMETRY_IDLE_AFTER": "10s", "FALAJ_TRAINING_TELEMETRY_IDLE_PAUSE": "5s",
    "FALAJ_TRAINING_GRACE": "3s", "FALAJ_TRAINING_PRICES_GPU": "4.0", "FALAJ_SERVER_DRAIN_GRACE": "0s",
}


class Server:
    def __init__(self, falaj, folder, **settings):
        self.falaj, self.data = falaj, pathlib.Path(folder) / "data"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("FALAJ_")}
        self.environment = clean | SETTINGS | settings
        self.process = subprocess.Popen(
            [falaj, "serve", "--data-dir", self.data, "--listen", self.url.removeprefix("http://")],
            env=self.environment, stdout=open(pathlib.Path(folder) / "log", "ab"), stderr=subprocess.STDOUT)
        until(self.is_ready, 60, "the server")
        self.token = (self.data / "admin.token").read_text().strip()

    def is_ready(self):
        try:
            return urllib.request.urlopen(f"{self.url}/health/ready", timeout=5).status == 200
        except OSError:
            return False

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
        return json.loads(text) if answer.headers.get_content_type() == "application/json" else text

    def cli(self, *words):
        settings = self.environment | {"FALAJ_URL": self.url, "FALAJ_TOKEN": self.token, "FALAJ_DATA_DIR": str(self.data)}
        return subprocess.run([self.falaj, *words], env=settings, capture_output=True, text=True, timeout=60).stdout

    def submit(self, name, *words, **more):
        body = {"name": name, "command": [sys.executable, str(HERE / "load.py"), *words],
                "resources": {"cpu": 1.0, "memory": "4GiB", "gpus": 1}} | more
        return self.call("POST", f"{API}/jobs", body)["id"]

    def job(self, id):
        return self.call("GET", f"{API}/jobs/{id}")

    def telemetry(self, id):
        return self.call("GET", f"{API}/jobs/{id}/telemetry")["starts"]

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def until(check, within, what):
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        found = check()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError(f"{what} did not happen within {within} s")


def gpu_of(server, id, least_memory):
    def read():
        for start in server.telemetry(id):
            for gpu in (start.get("now") or {}).get("gpus", []):
                if gpu["memory_used_bytes"] >= least_memory:
                    return gpu
        return None
    return until(read, 60, "a reading of its GPU")


def main():
    falaj = str(pathlib.Path(sys.argv[1]).resolve())
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        print(f"skipped: no GPU here ({error})")
        return
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        server = Server(falaj, folder)
        try:
            found["doctor"] = [line for line in server.cli("doctor").splitlines() if " GPUs " in f" {line} "]
            node = server.call("GET", f"{API}/pools")["items"][0]["nodes"][0]
            busy = server.submit("busy", "20", "25", "busy")
            gpu = gpu_of(server, busy, 20 << 30)
            until(lambda: (gpu_of(server, busy, 20 << 30).get("utilization") or 0) > 50, 40, "a busy GPU")
            time.sleep(5)
            found["busy"] = gpu_of(server, busy, 20 << 30)
            found["busy_cli"] = server.cli("job", "telemetry", busy).splitlines()
            node = server.call("GET", f"{API}/pools")["items"][0]["nodes"][0]
            found["node"] = {key: node.get(key) for key in ("gpus", "gpu_type", "gpu_memory_mib")}
            found["metrics"] = [line for line in server.call("GET", "/metrics").splitlines()
                                if line.startswith(("falaj_gpu_", "falaj_job_gpu_"))]
            until(lambda: server.job(busy)["state"] == "SUCCEEDED", 60, "its end")
            found["busy_summary"] = server.telemetry(busy)[0]["summary"]
            run = server.call("GET", f"/t/default/default/api/2.0/mlflow/runs/get?run_id={server.job(busy)['run_id']}")
            found["run_metrics"] = {metric["key"]: metric["value"] for metric in run["run"]["data"]["metrics"]}
            idle = server.submit("idle", "10", "60", "idle")
            began = time.monotonic()
            until(lambda: "idle_since" in server.job(idle), 60, "idleness")
            found["idle_seen_after_s"] = round(time.monotonic() - began, 1)
            found["idle"] = gpu_of(server, idle, 10 << 30)
            found["idle_list"] = server.cli("job", "list", "--idle").splitlines()
            server.call("POST", f"{API}/jobs/{idle}/cancel", {})
            until(lambda: server.job(idle)["state"] == "CANCELLED", 30, "its end")
            # Two that share the GPU: each is told by its own processes, where the driver knows them.
            half = {"cpu": 1.0, "memory": "4GiB", "gpu_fraction": 0.5}
            pair = [server.submit(f"half-{at}", str(gib), "20", how, resources=half)
                    for at, (gib, how) in enumerate([(8, "busy"), (4, "idle")])]
            time.sleep(12)
            found["shared"] = [((server.telemetry(id) or [{}])[0].get("now") or {}).get("gpus") for id in pair]
            for id in pair:
                until(lambda id=id: server.job(id)["state"] == "SUCCEEDED", 60, "its end")
        finally:
            server.stop()
    with tempfile.TemporaryDirectory() as folder:
        server = Server(falaj, folder, FALAJ_TRAINING_TELEMETRY_IDLE_ACTION="reclaim")
        try:
            idle = server.submit("idle", "10", "600", "idle")
            until(lambda: server.job(idle)["state"] == "PREEMPTED", 60, "giving the GPU up")
            found["reclaimed"] = json.loads(server.cli("job", "why", idle, "--history", "--output", "json"))
            until(lambda: server.job(idle)["state"] == "RUNNING", 60, "its second start")
            server.call("POST", f"{API}/jobs/{idle}/cancel", {})
            until(lambda: server.job(idle)["state"] == "CANCELLED", 30, "its end")
            for _ in range(3):
                id = server.submit("small", "4", "3", "idle")
                until(lambda id=id: server.job(id)["state"] == "SUCCEEDED", 60, "its end")
            time.sleep(3)
            found["hints"] = [hint["text"] for hint in server.call("GET", f"{API}/jobs/{id}/hints")["hints"]]
        finally:
            server.stop()
    print(json.dumps(found, indent=1))


main()
