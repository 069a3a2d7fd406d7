"""Features from the command line, and through crashes: rows pushed and brought, read back, erased."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from engines import ENGINES, OnEngine  # noqa: E402
from server import binary, environment  # noqa: E402

API = "/t/default/default/api/features"
VIEWS = """
[[entity]]
name = "driver"
join_keys = [{ name = "driver_id", type = "int64" }]

[[source]]
name = "files"
kind = "parquet"
path = "lake/*.parquet"

[[source]]
name = "live"
kind = "push"

[[view]]
name = "stats"
entities = ["driver"]
source = "files"
schema = [{ name = "trips", type = "int64" }, { name = "note", type = "string" }]

[[view]]
name = "now"
entities = ["driver"]
source = "live"
schema = [{ name = "trips", type = "int64" }, { name = "rate", type = "float32" }]
"""


def lake(folder, files, rows):
    folder.mkdir(exist_ok=True)
    for file in range(files):
        ids = range(file * rows, (file + 1) * rows)
        table = pa.table({
            "driver_id": pa.array(ids, pa.int64()), "trips": pa.array([it * 2 for it in ids], pa.int64()),
            "note": [f"driver {it} of many, with a text that takes some room" for it in ids],
            "event_timestamp": pa.array([1_750_000_000_000_000] * rows, pa.timestamp("us", tz="UTC")),
        })
        pq.write_table(table, folder / f"part-{file:02}.parquet", row_group_size=max(1, rows // 4))


def started(folder, engine, **settings):
    config = folder / "falaj.toml"
    config.write_text(f"""
[[features.source_roots]]
name = "lake"
path = "{folder / "lake"}"
tenant = "default"
""")
    server = OnEngine(folder / "server", engine, FALAJ_CONFIG=str(config), **settings).start()
    admin = server.client(server.admin_token())
    answer = admin.post(f"{API}/apply", data=VIEWS, headers={"content-type": "application/toml"})
    assert answer.ok, answer.text
    return server, admin


def falaj(server, *words, code=0, given=None):
    settings = environment(FALAJ_URL=server.url, FALAJ_TOKEN=server.admin_token())
    done = subprocess.run([binary(), *words], env=settings, capture_output=True, text=True, timeout=120, input=given)
    assert done.returncode == code, done.stdout + done.stderr
    # Data is on stdout, what is said about it on stderr.
    return done.stdout if "json" in words else done.stdout + done.stderr


def read(admin, view, drivers):
    body = {"features": [f"{view}:trips"], "entities": {"driver_id": list(drivers)}}
    answer = admin.post(f"{API}/online", json=body)
    assert answer.ok, answer.text
    return [row[0] for row in answer.json()["values"]]


@pytest.fixture(params=ENGINES)
def stage(request, tmp_path):
    lake(tmp_path / "lake", 2, 100)
    (tmp_path / "server").mkdir()
    server, admin = started(tmp_path, request.param)
    yield server, admin, tmp_path
    alive, tail = server.process.poll() is None, server.tail()
    server.stop()
    assert alive and "panicked" not in server.log.read_text(errors="replace"), tail


def test_from_files_to_answers_on_the_command_line(stage):
    server, admin, folder = stage
    told = falaj(server, "feature", "materialize", "stats")
    assert "done" in told and "200" in told, told
    shown = falaj(server, "feature", "get", "stats:trips", "--entity", "driver_id=7,150,999")
    assert "14" in shown and "300" in shown and "(missing)" in shown, shown
    jobs = json.loads(falaj(server, "feature", "jobs", "--output", "json"))
    assert [it["state"] for it in jobs] == ["done"]
    one = json.loads(falaj(server, "feature", "jobs", jobs[0]["id"], "--output", "json"))
    assert one["views"][0]["rows"] == 200 and one["views"][0]["files"] == 2
    falaj(server, "feature", "jobs", jobs[0]["id"], "--cancel", code=1)

    (folder / "rows.csv").write_text("driver_id,trips,rate,event_timestamp\n1,5,0.5,2026-01-01T00:00:00Z\n"
                                     "2,,,2026-01-01T00:00:00Z\n")
    assert "pushed 2 rows" in falaj(server, "feature", "push", "now", str(folder / "rows.csv"))
    (folder / "rows.json").write_text(json.dumps([{"driver_id": 3, "trips": 6, "rate": 1.5,
                                                   "event_timestamp": "2026-01-01T00:00:00Z"}]))
    falaj(server, "feature", "push", "now", str(folder / "rows.json"))
    line = '{"driver_id": 4, "trips": 7, "rate": 2, "event_timestamp": "2026-01-01T00:00:00Z"}\n'
    falaj(server, "feature", "push", "now", "-", given=line)
    table = pa.table({"driver_id": pa.array(range(100, 150), pa.int64()), "trips": pa.array(range(50), pa.int64()),
                      "rate": pa.array([0.25] * 50, pa.float32()),
                      "event_timestamp": pa.array([1_760_000_000_000_000] * 50, pa.timestamp("us", tz="UTC"))})
    pq.write_table(table, folder / "rows.parquet")
    told = falaj(server, "feature", "push", "now", str(folder / "rows.parquet"), "--rows-at-once", "20")
    assert "pushed 50 rows" in told, told
    assert read(admin, "now", [1, 2, 3, 4, 149]) == [5, None, 6, 7, 49]
    (folder / "bad.csv").write_text("driver_id,trips,rate,event_timestamp\n1,many,0.5,2026-01-01T00:00:00Z\n")
    assert "row 2, trips" in falaj(server, "feature", "push", "now", str(folder / "bad.csv"), code=2)
    assert "--format" in falaj(server, "feature", "push", "now", str(folder / "lake"), code=2)

    kept = admin.delete("/v1/tenants/default/projects/default")
    assert kept.status_code == 409 and "features" in kept.json()["detail"], kept.text

    gone = json.loads(falaj(server, "feature", "erase", "driver", "--key", "driver_id=3", "--yes", "--output", "json"))
    assert (gone["state"], gone["online"], gone["log"]) == ("done", 2, 1), gone
    assert gone["sources"] == ["files"]
    assert read(admin, "now", [3, 4]) == [None, 7]


def test_killed_while_it_brings_rows_it_goes_on(tmp_path):
    """Killed in the middle, several times: the job ends, every row is there, and it did not begin anew."""
    lake(tmp_path / "lake", 6, 250_000)
    (tmp_path / "server").mkdir()
    server, admin = started(tmp_path, "sqlite")
    try:
        job = admin.post(f"{API}/materialize", json={"views": ["stats"]})
        assert job.status_code == 202, job.text
        job, kills, seen = job.json()["id"], 0, []
        until = time.monotonic() + 240
        while time.monotonic() < until:
            found = admin.get(f"{API}/materialize/{job}").json()
            if found["state"] not in ("waiting", "running"):
                break
            read_so_far = found["views"][0]["read"]
            if kills < 3 and read_so_far > (seen[-1] if seen else 0):
                seen.append(read_so_far)
                kills += 1
                os.kill(server.process.pid, signal.SIGKILL)
                server.process.wait()
                server.start()
                admin = server.client(server.admin_token())
                again = admin.get(f"{API}/materialize/{job}").json()["views"][0]
                assert again["read"] >= read_so_far, "what was put down is not lost"
            time.sleep(0.05)
        view = found["views"][0]
        assert (found["state"], view["rows"], view["read"]) == ("done", 1_500_000, 1_500_000), found
        assert kills >= 1, "it was done before it could be killed"
        ids = list(range(0, 1_500_000, 4_997))
        assert read(admin, "stats", ids) == [it * 2 for it in ids]
    finally:
        server.stop()


@pytest.mark.parametrize("engine", ENGINES)
def test_killed_while_rows_are_pushed_nothing_acknowledged_is_lost(tmp_path, engine):
    lake(tmp_path / "lake", 1, 10)
    (tmp_path / "server").mkdir()
    server, admin = started(tmp_path, engine)
    acknowledged, number = {}, 0
    try:
        for _ in range(3):
            stop = threading.Event()

            def push(first, client):
                driver = first
                while not stop.is_set():
                    columns = {"driver_id": [driver], "trips": [driver], "rate": [0.5],
                               "event_timestamp": ["2026-01-01T00:00:00Z"]}
                    try:
                        answer = client.post(f"{API}/push", json={"view": "now", "columns": columns}, timeout=10)
                    except Exception:
                        return
                    if answer.status_code == 200:
                        acknowledged[driver] = driver
                    driver += 1

            threads = [threading.Thread(target=push, args=(number + k * 100_000, server.client(server.admin_token())))
                       for k in range(4)]
            number += 1_000_000
            for thread in threads:
                thread.start()
            time.sleep(1.5)
            os.kill(server.process.pid, signal.SIGKILL)
            server.process.wait()
            stop.set()
            for thread in threads:
                thread.join()
            server.start()
            admin = server.client(server.admin_token())
            ids = sorted(acknowledged)
            for first in range(0, len(ids), 5000):
                some = ids[first:first + 5000]
                assert read(admin, "now", some) == some
        assert len(acknowledged) > 100
    finally:
        server.stop()


class Redis:
    def __init__(self, folder):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder = folder
        self.process = None

    def start(self):
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
                                         "--dir", str(self.folder)], stdout=subprocess.DEVNULL)
        return self

    def stop(self):
        self.process.kill()
        self.process.wait()


def test_redis_that_goes_away_and_comes_back_empty(tmp_path):
    """Reads and pushes are refused as unavailable meanwhile; what was pushed is all there afterwards."""
    lake(tmp_path / "lake", 1, 10)
    (tmp_path / "server").mkdir()
    redis = Redis(tmp_path).start()
    settings = {"FALAJ_FEATURES_ONLINE_REDIS_URL": f"redis://127.0.0.1:{redis.port}/",
                "FALAJ_FEATURES_ONLINE_REDIS_PREFIX": f"{uuid.uuid4().hex}:"}
    server, admin = started(tmp_path, "sqlite", **settings)
    try:
        def push(driver):
            columns = {"driver_id": [driver], "trips": [driver], "rate": [0.5],
                       "event_timestamp": ["2026-01-01T00:00:00Z"]}
            return admin.post(f"{API}/push", json={"view": "now", "columns": columns}).status_code

        assert [push(driver) for driver in range(20)] == [200] * 20
        redis.stop()
        body = {"features": ["now:trips"], "entities": {"driver_id": [1]}}
        start = time.monotonic()
        assert admin.post(f"{API}/online", json=body).status_code == 503
        kept = [push(driver) for driver in range(20, 25)]
        assert set(kept) == {503} and time.monotonic() - start < 30
        redis.start()
        until = time.monotonic() + 30
        wanted = list(range(25))
        while time.monotonic() < until:
            answer = admin.post(f"{API}/online", json={"features": ["now:trips"], "entities": {"driver_id": wanted}})
            # It may be refused while it is filled; once it answers, nothing that was acknowledged lacks.
            if answer.status_code == 200:
                found = [row[0] for row in answer.json()["values"]]
                if found[:20] == wanted[:20]:
                    break
            time.sleep(0.1)
        assert answer.status_code == 200 and found[:20] == wanted[:20], answer.text
        assert push(30) == 200 and read(admin, "now", [30]) == [30]
    finally:
        server.stop()
        redis.stop()


def test_a_server_that_starts_without_its_redis_says_so_soon(tmp_path):
    lake(tmp_path / "lake", 1, 10)
    (tmp_path / "server").mkdir()
    redis = Redis(tmp_path)
    server, admin = started(tmp_path, "sqlite", FALAJ_FEATURES_ONLINE_REDIS_URL=f"redis://127.0.0.1:{redis.port}/")
    try:
        body = {"features": ["now:trips"], "entities": {"driver_id": [1]}}
        for _ in range(5):
            start = time.monotonic()
            assert admin.post(f"{API}/online", json=body).status_code == 503
            assert time.monotonic() - start < 8
        redis.start()
        until = time.monotonic() + 20
        while admin.post(f"{API}/online", json=body).status_code != 200:
            assert time.monotonic() < until
            time.sleep(0.1)
    finally:
        server.stop()
        if redis.process:
            redis.stop()
