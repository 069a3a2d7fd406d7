"""Requests that are answered later: taken in for good, run by whoever is alive, fetched, called back."""

import base64
import hashlib
import hmac
import json
import os
import signal
import struct
import subprocess
import time
import uuid

import pytest

from deployed import ROWS, TURNED, Far, Listener, deploy, place, register, running, until
from engines import ENGINES, OnEngine
from server import Server, binary, environment

# Hosts in this process, and little patience with servers that died.
SETTINGS = {
    "FALAJ_REGISTRY_WEBHOOKS_ALLOWED_HOSTS": "http://127.0.0.1",
    "FALAJ_REGISTRY_WEBHOOKS_ALLOW_PRIVATE_ADDRESSES": "true",
    "FALAJ_SERVING_REMOTE_ALLOWED_HOSTS": "http://127.0.0.1",
    "FALAJ_SERVING_REMOTE_ALLOW_PRIVATE_ADDRESSES": "true",
    "FALAJ_SERVING_LATER_TAKEOVER": "2s",
    "FALAJ_SERVING_LATER_MAX_WAITING": "5",
    "FALAJ_SERVING_LATER_MAX_BODY": "12MiB",
}


@pytest.fixture(scope="module", params=ENGINES)
def stage(request, tmp_path_factory):
    server = OnEngine(tmp_path_factory.mktemp(f"later-{request.param}"), request.param, **SETTINGS).start()
    admin = server.client(server.admin_token())
    register(admin, "turned")
    deploy(admin, "turned")
    with running(Far()) as far:
        deploy(admin, "distant", {"remote": {"url": far.url, "model": "far"}})
        yield server, admin, far
    alive = server.process.poll() is None
    tail = server.tail()
    server.stop()
    assert alive and "panicked" not in server.log.read_text(errors="replace"), tail


def submit(client, endpoint="turned", body=ROWS, **options):
    sent = {"data": body} if isinstance(body, bytes) else {"json": body}
    answer = client.post(f"{place(endpoint)}/requests", **sent, **options)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"{place(endpoint)}/requests/{answer.json()['id']}"
    return answer.headers["location"]


def ended(client, where, within=60.0):
    def look():
        answer = client.get(where)
        assert answer.status_code == 200, answer.text
        return answer.json()["state"] not in ("queued", "running") and answer.json()
    return until(look, within)


def account(server, admin, role, tenant="default"):
    """A client of somebody else with this role."""
    name = f"{role}-{uuid.uuid4().hex[:8]}"
    admin.created("/v1/service-accounts", {"name": name, "tenant": tenant})
    admin.created("/v1/role-bindings", {"principal": name, "role": role, "tenant": tenant})
    return server.client(admin.created("/v1/tokens", {"owner": name, "role": role, "tenant": tenant})["secret"])


def events(admin, kind, id_):
    """What the log tells of one request, as far back as one reads."""
    found, after = [], None
    while True:
        asked = {"type": f"falaj.{kind}", "limit": 1000} | ({"after": after} if after else {})
        page = admin.get("/v1/events", params=asked).json()
        if not page["items"]:
            return found
        found += [event for event in page["items"] if event["data"].get("id") == id_]
        after = page["next"]


def test_asked_now_and_answered_later(stage):
    _, admin, _ = stage
    where = submit(admin)
    first = admin.get(where).json()
    assert first["endpoint"] == "turned" and first["size"] > 0 and first["submitted_by"]
    done = ended(admin, where)
    assert (done["state"], done["attempts"]) == ("done", 1)
    assert done["submitted_at"] <= done["started_at"] <= done["finished_at"] < done["expires_at"]
    result = admin.get(f"{where}/result")
    at_once = admin.post("/v2/models/turned/infer", json=ROWS)
    assert result.status_code == 200 and result.json() == at_once.json()
    assert result.headers["content-type"] == at_once.headers["content-type"] == "application/json"
    assert result.json()["outputs"][0]["data"] == TURNED
    for kind in ("prediction.submitted", "prediction.finished"):
        [told] = events(admin, kind, done["id"])
        assert "data" not in told["data"] and told["data"]["endpoint"] == "turned"


def test_raw_tensors_travel_both_ways(stage):
    _, admin, _ = stage
    header = json.dumps({"inputs": [{"name": "X", "shape": [2, 3], "datatype": "FP32",
                                     "parameters": {"binary_data_size": 24}}],
                         "parameters": {"binary_data_output": True}}).encode()
    body = header + struct.pack("<6f", *range(6))
    sent = {"Inference-Header-Content-Length": str(len(header)), "Content-Type": "application/octet-stream"}
    where = submit(admin, body=body, headers=sent)
    assert ended(admin, where)["state"] == "done"
    result = admin.get(f"{where}/result")
    at_once = admin.post("/v2/models/turned/infer", data=body, headers=sent)
    assert result.content == at_once.content
    length = int(result.headers["inference-header-content-length"])
    assert struct.unpack("<6f", result.content[length:]) == tuple(-float(n) for n in range(6))


def test_a_large_body_is_taken_and_one_too_large_is_not(stage):
    server, admin, _ = stage
    rows = 900_000
    header = json.dumps({"inputs": [{"name": "X", "shape": [rows, 3], "datatype": "FP32",
                                     "parameters": {"binary_data_size": rows * 12}}],
                         "parameters": {"binary_data_output": True}}).encode()
    sent = {"Inference-Header-Content-Length": str(len(header))}
    body = header + struct.pack("<3f", 1, 2, 3) * rows
    where = submit(admin, body=body, headers=sent)
    assert ended(admin, where)["state"] == "done"
    result = admin.get(f"{where}/result").content
    assert result.endswith(struct.pack("<3f", *TURNED) * rows)
    many = b"x" * (13 << 20)
    for data in (many, (many[at:at + 65536] for at in range(0, len(many), 65536))):
        refused = admin.post(f"{place('turned')}/requests", data=data)
        assert refused.status_code == 413 and "serving.later.max_body" in refused.text, refused.text
    assert admin.post(f"{place('turned')}/requests", data=b"").status_code == 400
    packed = admin.post(f"{place('turned')}/requests", data=b"x", headers={"Content-Encoding": "gzip"})
    assert packed.status_code == 415
    assert admin.delete(where).status_code == 204 and admin.get(where).status_code == 404


def test_what_is_wrong_fails_with_the_words_of_infer(stage):
    _, admin, _ = stage
    wrong = {"inputs": [{"name": "Z", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}
    for body in (wrong, b"{", b"[1"):
        where = submit(admin, body=body)
        failed = ended(admin, where)
        assert failed["state"] == "failed" and failed["attempts"] == 1
        sent = {"data": body} if isinstance(body, bytes) else {"json": body}
        at_once = admin.post("/v2/models/turned/infer", **sent)
        result = admin.get(f"{where}/result")
        assert result.status_code == at_once.status_code == 400
        assert failed["error"]["message"] == at_once.json()["error"] == result.json()["detail"]
        assert len(events(admin, "prediction.failed", failed["id"])) == 1


@pytest.mark.parametrize("query, field", [
    ({"priority": 4}, "priority"), ({"priority": "high"}, "priority"), ({"expires_in": "25h"}, "expires_in"),
    ({"expires_in": "soon"}, "expires_in"), ({"routing_key": ""}, "routing_key"), ({"nonsense": 1}, "nonsense"),
    ({"callback": "https://example.com/x"}, "callback"), ({"callback": "ftp://127.0.0.1/"}, "callback"),
])
def test_options_are_checked(stage, query, field):
    _, admin, _ = stage
    answer = admin.post(f"{place('turned')}/requests", json=ROWS, params=query)
    assert answer.status_code == 400, answer.text
    assert field in answer.json().get("field", "") or field in answer.json()["detail"]


def test_versions(stage):
    _, admin, _ = stage
    assert ended(admin, submit(admin, params={"version": "1", "routing_key": "ada"}))["version"] == "1"
    assert admin.post(f"{place('turned')}/requests", json=ROWS, params={"version": "9"}).status_code == 404


def test_only_who_asked_and_operators_find_it(stage):
    server, admin, _ = stage
    viewer, other, operator = (account(server, admin, role) for role in ("viewer", "viewer", "operator"))
    where = submit(viewer)
    ended(viewer, where)
    absent = f"{place('turned')}/requests/{uuid.uuid4()}"
    for path in ("", "/result"):
        assert viewer.get(where + path).status_code == operator.get(where + path).status_code == 200
        hidden, nothing = other.get(where + path), other.get(absent + path)
        assert (hidden.status_code, hidden.json()["code"]) == (nothing.status_code, nothing.json()["code"]) == (404, "not-found")
    assert other.delete(where).status_code == 404
    mine = [item["id"] for item in viewer.get(f"{place('turned')}/requests").json()["items"]]
    assert [where.endswith(id_) for id_ in mine] == [True]
    assert other.get(f"{place('turned')}/requests").json()["items"] == []
    assert operator.get(f"{place('turned')}/requests").json()["items"]
    stranger = server.client(admin.created("/v1/tokens", {"owner": make(admin), "role": "viewer",
                                                          "tenant": "elsewhere"})["secret"])
    for path in ("", "/result"):
        assert stranger.get(where + path).status_code == 404
    assert stranger.post(f"{place('turned')}/requests", json=ROWS).status_code == 404
    assert server.client().get(where).status_code == 401


def make(admin):
    """An account of another tenant."""
    admin.post("/v1/tenants", json={"name": "elsewhere"})
    name = f"stranger-{uuid.uuid4().hex[:8]}"
    admin.created("/v1/service-accounts", {"name": name, "tenant": "elsewhere"})
    admin.created("/v1/role-bindings", {"principal": name, "role": "viewer", "tenant": "elsewhere"})
    return name


def test_pages(stage):
    server, admin, _ = stage
    viewer = account(server, admin, "viewer")
    made = []
    for _ in range(3):
        made.append(submit(viewer).rsplit("/", 1)[1])
        ended(viewer, f"{place('turned')}/requests/{made[-1]}")
    first = viewer.get(f"{place('turned')}/requests", params={"page_size": 2}).json()
    rest = viewer.get(f"{place('turned')}/requests", params={"page_token": first["next_page_token"]}).json()
    assert [item["id"] for item in first["items"] + rest["items"]] == made[::-1]
    assert "next_page_token" not in rest
    assert viewer.get(f"{place('turned')}/requests", params={"page_token": "x"}).status_code == 400


def test_waiting_is_bounded_cancelled_and_resumed(stage):
    _, admin, _ = stage
    assert admin.post(f"{place('turned')}/pause").status_code == 200
    waiting = [submit(admin) for _ in range(5)]
    full = admin.post(f"{place('turned')}/requests", json=ROWS)
    assert full.status_code == 429 and int(full.headers["retry-after"]) > 0, full.text
    early = admin.get(f"{waiting[0]}/result")
    assert early.status_code == 409 and "queued" in early.json()["detail"]
    cancelled, *others = waiting
    assert admin.delete(cancelled).status_code == 204
    assert admin.get(cancelled).json()["state"] == "cancelled"
    assert admin.get(f"{cancelled}/result").status_code == 409
    assert admin.delete(cancelled).status_code == 204 and admin.get(cancelled).status_code == 404
    hasty = submit(admin, params={"expires_in": "1s"})
    assert "in time" in ended(admin, hasty, 90)["error"]["message"]
    assert admin.get(f"{hasty}/result").status_code == 409
    assert admin.post(f"{place('turned')}/resume").status_code == 200
    assert {ended(admin, where)["state"] for where in others} == {"done"}


def test_who_is_told(stage):
    _, admin, _ = stage
    with running(Listener()) as listener:
        listener.refusals = 1
        where = submit(admin, params={"callback": listener.url}, headers={"x-falaj-callback-secret": "hush"})
        assert admin.get(where).json()["callback"] is True or admin.get(where).json()["state"] == "done"
        ended(admin, where)
        headers, body = until(lambda: listener.received)[0]
        headers = {name.lower(): value for name, value in headers.items()}
        told = json.loads(body)
        id_ = where.rsplit("/", 1)[1]
        assert told["specversion"] == "1.0" and told["type"] == "falaj.prediction.finished"
        assert told["data"] == {"id": id_, "state": "done", "url": where}
        assert headers["content-type"] == "application/cloudevents+json"
        signed = ".".join([headers["x-falaj-delivery-id"], headers["x-falaj-timestamp"], body.decode()])
        wanted = base64.b64encode(hmac.new(b"hush", signed.encode(), hashlib.sha256).digest()).decode()
        assert headers["x-falaj-signature"] == f"v1,{wanted}"
        # Nobody's webhook, and gone.
        assert admin.get("/api/2.0/mlflow/webhooks").json() == {}
        wrong = submit(admin, body=b"{", params={"callback": listener.url})
        ended(admin, wrong)
        until(lambda: len(listener.received) == 2)
        assert json.loads(listener.received[1][1])["data"]["state"] == "failed"
        assert "x-falaj-signature" not in {name.lower() for name in listener.received[1][0]}


def test_what_may_pass_is_tried_again(stage):
    _, admin, far = stage
    far.script[:] = ["busy", "busy"]
    done = ended(admin, submit(admin, "distant"))
    assert (done["state"], done["attempts"]) == ("done", 3)
    far.script[:] = ["bad"]
    failed = ended(admin, submit(admin, "distant"))
    assert (failed["state"], failed["attempts"]) == ("failed", 1)
    assert "not to my liking" in failed["error"]["message"]


def test_what_runs_can_be_cancelled(stage):
    _, admin, far = stage
    far.script[:] = [5]
    asked = far.asked
    where = submit(admin, "distant")
    until(lambda: far.asked > asked)
    assert admin.get(where).json()["state"] == "running"
    assert admin.delete(where).status_code == 204
    time.sleep(6)
    assert admin.get(where).json()["state"] == "cancelled", "the answer came too late to count"


def test_nothing_that_was_taken_is_lost(stage):
    """Killed while it runs and while others wait: each ends once, after the next start."""
    server, admin, far = stage
    far.script[:] = [30]
    asked = far.asked
    cut_off = submit(admin, "distant")
    until(lambda: far.asked > asked)
    admin.post(f"{place('turned')}/pause")
    waiting = [submit(admin) for _ in range(3)]
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    far.script.clear()
    server.start()
    assert admin.post(f"{place('turned')}/resume").status_code == 200
    done = ended(admin, cut_off)
    assert (done["state"], done["attempts"]) == ("done", 2)
    assert len(events(admin, "prediction.finished", done["id"])) == 1
    for where in waiting:
        assert ended(admin, where)["state"] == "done"
        assert admin.get(f"{where}/result").json()["outputs"][0]["data"] == TURNED
    # A server that is told to stop hands over at once, and what it had begun is no attempt.
    far.script[:] = [30]
    asked = far.asked
    where = submit(admin, "distant")
    until(lambda: far.asked > asked)
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(60)
    far.script.clear()
    server.start()
    assert ended(admin, where)["attempts"] == 1


def test_an_endpoint_takes_its_requests_along(stage):
    _, admin, far = stage
    deploy(admin, "brief", {"remote": {"url": far.url, "model": "far"}})
    where = submit(admin, "brief")
    ended(admin, where)
    assert admin.delete(place("brief")).status_code == 204
    assert admin.get(where).status_code == 404
    deploy(admin, "brief", {"remote": {"url": far.url, "model": "far"}})
    assert admin.get(where).status_code == 404, "another endpoint of the same name"
    admin.delete(place("brief"))


def test_the_command(stage, tmp_path):
    server, _, _ = stage
    env = environment(FALAJ_URL=server.url, FALAJ_TOKEN=server.admin_token(), HOME=str(tmp_path),
                      XDG_CONFIG_HOME=str(tmp_path / "config"))

    def falaj(*arguments, status=0):
        done = subprocess.run([binary(), "predict", "turned", *map(str, arguments)], env=env, capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, timeout=120)
        assert done.returncode == status, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    request, out = tmp_path / "request.json", tmp_path / "answer.json"
    request.write_text(json.dumps(ROWS))
    made = json.loads(falaj("--later", request, "--priority", 1, "--expires-in", "1h", "--output", "json"))
    until(lambda: "done" in falaj("--status", made["id"]))
    assert json.loads(falaj("--result", made["id"]))["outputs"][0]["data"] == TURNED
    falaj("--result", made["id"], "--out", out)
    assert json.loads(out.read_text())["outputs"][0]["data"] == TURNED
    assert made["id"] in falaj("--requests")
    falaj("--cancel", made["id"])
    falaj("--status", made["id"], status=5)
    assert json.loads(falaj("--later", request, "--wait"))["outputs"][0]["data"] == TURNED
    request.write_text("{")
    falaj("--later", request, "--wait", status=1)
    falaj("--later", tmp_path / "nothing", status=2)
    falaj("--status", made["id"], "--out", out, status=2)


def test_servers_share_the_work(tmp_path):
    """Two servers on one database: both run requests, and none is run twice."""
    config = tmp_path / "falaj.toml"
    config.write_text(f"""
[keys]
keyring = "{tmp_path / 'keyring'}"

[[objects.roots]]
name = "local"
zone = "local"
path = "{tmp_path / 'objects'}"

[serving.remote]
allowed_hosts = ["http://127.0.0.1"]
allow_private_addresses = true
""")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one = OnEngine(tmp_path / "one", "postgres", FALAJ_CONFIG=str(config))
    two = Server(tmp_path / "two", FALAJ_CONFIG=str(config), FALAJ_DATABASE_URL=one.settings["FALAJ_DATABASE_URL"])
    try:
        one.start()
        token = one.admin_token()
        two.start()
        clients = [server.client(token) for server in (one, two)]
        with running(Far()) as far:
            deploy(clients[0], "distant", {"remote": {"url": far.url, "model": "far"}})
            deploy(clients[0], "remote", {"remote": {"url": far.url, "model": "far"}})
            far.script[:] = [0.2] * 40
            made = [submit(clients[n % 2], ("distant", "remote")[n // 2 % 2]) for n in range(40)]
            ends = [ended(clients[0], where) for where in made]
            assert {(end["state"], end["attempts"]) for end in ends} == {("done", 1)}
            assert far.asked == 40
        counts = [next(float(line.split()[1]) for line in client.get("/metrics").text.splitlines()
                       if line.startswith("falaj_later_done_total ")) for client in clients]
        assert sum(counts) == 40 and all(counts), counts
    finally:
        two.stop()
        one.stop()
