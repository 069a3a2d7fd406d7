"""What jobs use, with the real binary and real processes: telemetry, idle jobs, hints, nodes that come and go."""

import base64
import hashlib
import hmac
import http.server
import json
import threading

import pytest

from engines import ENGINES, OnEngine
from test_training import API, ended, falaj, in_state, job, starts, submit, until

EAGER = {
    "FALAJ_TRAINING_LOCAL_CPU": "4", "FALAJ_TRAINING_LOCAL_MEMORY": "8GiB", "FALAJ_TRAINING_LOCAL_GPUS": "0",
    "FALAJ_TRAINING_GRACE": "3s", "FALAJ_TRAINING_PRICES_CORE": "1.0",
    "FALAJ_TRAINING_TELEMETRY_EVERY": "1s", "FALAJ_TRAINING_TELEMETRY_WRITE_EVERY": "1s",
    "FALAJ_TRAINING_TELEMETRY_IDLE_CPU": "true", "FALAJ_TRAINING_TELEMETRY_IDLE_AFTER": "4s",
}
SPIN = "while :; do :; done"


@pytest.fixture(scope="module", params=ENGINES)
def stage(request, tmp_path_factory):
    server = OnEngine(tmp_path_factory.mktemp(f"telemetry-{request.param}"), request.param, **EAGER).start()
    yield server, server.client(server.admin_token())
    alive, tail = server.process.poll() is None, server.tail()
    server.stop()
    assert alive and "panicked" not in server.log.read_text(errors="replace"), tail


def telemetry(admin, id):
    answer = admin.get(f"{API}/jobs/{id}/telemetry")
    assert answer.status_code == 200, answer.text
    return answer.json()["starts"]


def test_what_a_job_uses_is_seen_while_it_runs_and_after(stage):
    server, admin = stage
    made = submit(admin, f"timeout 900 sh -c '{SPIN}'", resources={"cpu": 1.0, "memory": "256MiB"})

    def busy():
        found = telemetry(admin, made["id"])
        return found and found[0].get("now", {}).get("cpu_cores", 0) > 0.3 and found[0]
    seen = until(busy, what="its cores")
    assert seen["running"] and 0 < seen["now"]["memory_bytes"] < 256 << 20
    assert seen["now"]["cpu_percent"] == pytest.approx(seen["now"]["cpu_cores"] * 100)
    shown = falaj(server, "job", "telemetry", made["id"])
    assert shown["starts"][0]["summary"]["cpu_cores"]["peak"] > 0.3
    assert "CORES" in falaj(server, "job", "telemetry", made["id"], plain=True)
    numbers = admin.get("/metrics").text
    assert f'falaj_job_cpu_cores{{tenant="default",project="default",job="{made["id"]}",task="0"}}' in numbers
    assert "falaj_jobs_sampled" in numbers

    def logged():
        run = admin.get("/t/default/default/api/2.0/mlflow/runs/get", params={"run_id": made["run_id"]}).json()["run"]
        metrics = {metric["key"]: metric["value"] for metric in run["data"].get("metrics", [])}
        return metrics.get("system/cpu_utilization_percentage", 0) > 30 and metrics
    metrics = until(logged, what="metrics of its run")
    assert metrics["system/system_memory_usage_megabytes"] > 0
    history = admin.get("/t/default/default/api/2.0/mlflow/metrics/get-history", params={
        "run_id": made["run_id"], "metric_key": "system/cpu_utilization_percentage"}).json()["metrics"]
    steps = [int(point["step"]) for point in history]
    assert steps == sorted(steps)
    admin.post(f"{API}/jobs/{made['id']}/cancel", json={})
    ended(admin, made["id"], "CANCELLED")
    (after,) = until(lambda: (found := telemetry(admin, made["id"])) and not found[0]["running"] and found)
    assert "now" not in after and after["summary"]["cpu_cores"]["mean"] > 0.1


def test_an_idle_job_is_told_of(stage):
    server, admin = stage
    lazy = submit(admin, "sleep 900", name="lazy")
    busy = submit(admin, f"timeout 900 sh -c '{SPIN}'", name="busy")
    found = until(lambda: "idle_since" in (now := job(admin, lazy["id"])) and now, what="idleness")
    assert found["state"] == "RUNNING"
    assert [it["id"] for it in falaj(server, "job", "list", "--idle")] == [lazy["id"]]
    assert "idle_since" not in job(admin, busy["id"])
    kinds = [event["type"] for event in admin.get("/v1/events", params={"limit": 1000}).json()["items"]]
    assert "falaj.job.idle" in kinds
    for made in (lazy, busy):
        admin.post(f"{API}/jobs/{made['id']}/cancel", json={})
        ended(admin, made["id"], "CANCELLED")
    until(lambda: falaj(server, "job", "list", "--idle") == [], what="nobody to be idle")


def test_what_would_do_is_told(stage):
    server, admin = stage
    for _ in range(3):
        made = submit(admin, "sleep 2", name="fat", resources={"cpu": 2.0, "memory": "2GiB"})
        ended(admin, made["id"])
    told = falaj(server, "job", "hints", made["id"])[0]
    assert [hint["field"] for hint in told["hints"]] == ["resources.memory", "resources.cpu", "time_limit"]
    memory, cpu, _ = told["hints"]
    assert memory["suggested"] == "64MiB" and "over 3 starts" in memory["text"]
    assert cpu["suggested"] == "0.5" and cpu["saves_per_hour"] == pytest.approx(1.5)
    assert [it["name"] for it in falaj(server, "job", "hints")] == ["fat"]
    assert "would do" in falaj(server, "job", "hints", plain=True)


def test_bad_asks_are_refused(stage):
    _, admin = stage
    body = {"name": "x", "command": ["true"], "reclaim": False}
    answer = admin.post(f"{API}/jobs", json=body)
    assert (answer.status_code, answer.json()["field"]) == (400, "reclaim")
    for path, code in ((f"{API}/jobs/job_{'0' * 32}/telemetry", 404), (f"{API}/jobs/x/hints", 404),
                       (f"{API}/hints?queue=%00", 400), (f"{API}/jobs?idle=perhaps", 400)):
        assert admin.get(path).status_code == code, path
    assert admin.put(f"{API}/pools/local/nodes/none", json={}).status_code == 404
    assert admin.put(f"{API}/pools/local/nodes/local", json={"adress": "x"}).status_code == 400


def test_an_idle_job_gives_up_its_nodes(tmp_path):
    settings = EAGER | {"FALAJ_TRAINING_TELEMETRY_IDLE_ACTION": "reclaim", "FALAJ_TRAINING_TELEMETRY_IDLE_PAUSE": "3s",
                        "FALAJ_TRAINING_CHECKPOINT_GRACE": "8s"}
    server = OnEngine(tmp_path, "sqlite", **settings).start()
    try:
        admin = server.client(server.admin_token())
        # It saves when it is asked to, and is busy from its second start on.
        command = (f'if [ "$FALAJ_START" = 1 ]; then trap "echo saved" USR1; while :; do sleep 0.2; done; '
                   f"else timeout 900 sh -c '{SPIN}'; fi")
        made = submit(admin, command, checkpoint={})
        until(lambda: len(starts(admin, made["id"])) == 2, what="its second start")
        why = falaj(server, "job", "why", made["id"], "--history")
        assert any("less than 5 %" in (it["detail"].get("why") or "") for it in why["history"])
        in_state(admin, made["id"], "RUNNING")
        first, second = starts(admin, made["id"])
        assert (first["state"], second["state"]) == ("PREEMPTED", "RUNNING")
        assert "is in line again after a while" in first["end"]
        assert "saved" in admin.get(f"{API}/jobs/{made['id']}/logs", params={"attempt": 1}).text
        admin.post(f"{API}/jobs/{made['id']}/cancel", json={})
        ended(admin, made["id"], "CANCELLED")
    finally:
        server.stop()


class Provider(http.server.BaseHTTPRequestHandler):
    """Brings nodes: as soon as it is told of some, they say that they are there."""

    heard, failures, bring = [], 1, None

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        type(self).heard.append((dict(self.headers), body))
        if len(self.heard) <= self.failures:
            self.send_response(503)
            self.end_headers()
            return
        answer = json.dumps({"target": json.loads(body)["target"]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        for node in json.loads(body)["add"]:
            threading.Thread(target=type(self).bring, args=(node,)).start()

    def log_message(self, *_):
        pass


def test_a_pool_grows_and_shrinks(tmp_path):
    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    secret = tmp_path / "secret"
    secret.write_text("open sesame\n")
    config = tmp_path / "falaj.toml"
    config.write_text(f"""
        [[training.pool]]
        name = "cloud"
        folder = "{tmp_path}/cloud"
        [training.pool.autoscale]
        up_after = "1s"
        up_pause = "1s"
        down_after = "2s"
        down_pause = "1s"
        webhook = {{ url = "http://127.0.0.1:{listener.server_port}/nodes", secret_file = "{secret}" }}
        [[training.pool.node]]
        name = "c"
        count = 3
        cpu = 1.0
        memory = "1GiB"
    """)
    server = OnEngine(tmp_path, "sqlite", FALAJ_CONFIG=str(config)).start()
    try:
        admin = server.client(server.admin_token())
        def bring(node):
            client = server.client(server.admin_token())
            until(lambda: client.put(f"{API}/pools/cloud/nodes/{node}", json={"address": "127.0.0.1"}).ok)
        Provider.bring = bring

        def nodes():
            pools = falaj(server, "pool", "list")
            return [node["state"] for pool in pools if pool["name"] == "cloud" for node in pool["nodes"]]
        assert nodes() == ["away", "away", "away"]
        gang = submit(admin, "sleep 3", pool="cloud", resources={"cpu": 1.0, "memory": "64MiB", "nodes": 2})
        ended(admin, gang["id"])
        until(lambda: nodes() == ["away", "away", "away"], what="the end of all nodes")
        headers, body = Provider.heard[-1]
        assert json.loads(body)["target"] == 0
        headers = {name.lower(): value for name, value in headers.items()}
        signed = b".".join([headers["x-falaj-delivery-id"].encode(), headers["x-falaj-timestamp"].encode(), body])
        expected = base64.b64encode(hmac.new(b"open sesame", signed, hashlib.sha256).digest()).decode()
        assert headers["x-falaj-signature"] == f"v1,{expected}"
        wanted = [json.loads(body)["target"] for _, body in Provider.heard]
        assert max(wanted) == 2, "a gang is asked for whole, and nothing more"
        # A drained node takes nothing new, and one that is asked for again does.
        until(lambda: all(pool["autoscale"]["told"] for pool in falaj(server, "pool", "list") if "autoscale" in pool))

        def drained():
            falaj(server, "pool", "resume", "c0", "--pool", "cloud")
            try:
                return falaj(server, "pool", "drain", "c0", "--pool", "cloud")
            except AssertionError:
                # It was empty for so long meanwhile that it went.
                return None
        until(drained, what="a drained node")
        again = submit(admin, "true", pool="cloud", resources={"cpu": 1.0, "memory": "64MiB"})
        ended(admin, again["id"])
        assert starts(admin, again["id"])[0]["nodes"][0]["node"] != "c0"
        falaj(server, "pool", "release", "c0", "--pool", "cloud")
        until(lambda: nodes() == ["away", "away", "away"], what="the end of all nodes")
    finally:
        server.stop()
        listener.shutdown()
