"""Streams into the feature store: every record exactly once, whatever is killed."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from engines import ENGINES, OnEngine
from server import Server, binary, environment
from stream_servers import KINDS

API = "/t/default/default/api/features"
DEFINITIONS = """
[[entity]]
name = "driver"
join_keys = [{ name = "driver_id", type = "int64" }]

[[source]]
name = "rides"
kind = "stream"
stream = "events"
topic = "rides"
format = "json"
fields = { driver_id = "/ride/driver", event_timestamp = { path = "at", unit = "ms" } }
MORE

[[view]]
name = "driver_stats"
entities = ["driver"]
source = "rides"
schema = [{ name = "trips", type = "int64" }, { name = "city", type = "string" }]

[[view]]
name = "driver_cities"
entities = ["driver"]
source = "rides"
schema = [{ name = "city", type = "string" }]
"""
START = 1_767_225_600_000  # 2026-01-01T00:00:00Z


def record(driver, trips=None, at=START, **more):
    trips = driver if trips is None else trips
    return json.dumps({"ride": {"driver": driver}, "trips": trips, "at": at, "city": f"c{driver}", "else": 1} | more)


@pytest.fixture(params=list(KINDS))
def broker(request, tmp_path):
    broker = KINDS[request.param](tmp_path / "broker")
    broker.make("rides")
    yield broker
    broker.stop()


@pytest.fixture
def config(broker, tmp_path):
    path = tmp_path / "falaj.toml"
    path.write_text(f"""
[[features.streams]]
name = "events"
kind = "{broker.kind}"
servers = ["{broker.address}"]
tenant = "default"
timeout = "2s"
batch_records = 500

[[features.streams]]
name = "theirs"
kind = "{broker.kind}"
servers = ["{broker.address}"]
tenant = "another"
""")
    return path


@contextlib.contextmanager
def started(folder, engine, config):
    server = OnEngine(folder, engine, FALAJ_CONFIG=str(config)).start()
    try:
        yield server, server.client(server.admin_token())
        assert "panicked" not in server.log.read_text(errors="replace")
    except BaseException:
        print(server.tail())
        raise
    finally:
        server.stop()


def apply(admin, more=""):
    answer = admin.post(f"{API}/apply", data=DEFINITIONS.replace("MORE", more),
                        headers={"content-type": "application/toml"})
    assert answer.status_code == 200, answer.text
    return answer.json()


def states(admin):
    answer = admin.get(f"{API}/streams")
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


def until(what, seconds=90):
    """Waits until something holds, and returns it."""
    limit = time.monotonic() + seconds
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.1)


def taken(admin, count):
    return until(lambda: sum(it["rows"] for it in states(admin)) >= count)


def online(admin, drivers):
    values = []
    for first in range(0, len(drivers), 5000):
        some = drivers[first:first + 5000]
        answer = admin.post(f"{API}/online", json={"features": ["driver_stats:trips", "driver_cities:city"],
                                                   "entities": {"driver_id": some}})
        assert answer.status_code == 200, answer.text
        values += answer.json()["values"]
    return values


def joined(server, admin, drivers, folder):
    """The features of drivers in a training set, and how many rows it read of each view."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60))
    moments = {"driver_id": drivers, "event_timestamp": [now] * len(drivers)}
    made = admin.post(f"{API}/training-sets", timeout=120, json={
        "features": ["driver_stats:trips", "driver_cities:city"], "moments": moments})
    assert made.status_code == 200, made.text
    made = until(lambda: next((it for it in [admin.get(f"{API}/training-sets/{made.json()['id']}").json()]
                               if it["state"] == "ready"), None))
    target = folder / f"{made['id']}.parquet"
    done = subprocess.run([binary(), "training-set", "download", made["id"], str(target)], capture_output=True,
                          env=environment(FALAJ_URL=server.url, FALAJ_TOKEN=server.admin_token()), timeout=60)
    assert done.returncode == 0, done.stderr
    # Feast's environment has what reads Parquet.
    python = pathlib.Path(sys.executable).parent.parent.parent / "feast-venv/bin/python"
    read = "import json, sys, pyarrow.parquet as p; print(json.dumps(p.read_table(sys.argv[1], columns=['trips', " \
           "'city']).to_pydict()))"
    done = subprocess.run([python, "-c", read, target], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    columns = json.loads(done.stdout)
    read = {}
    for source in made["manifest"]["sources"]:
        read[source["view"]] = read.get(source["view"], 0) + source["rows"]
    return [list(row) for row in zip(columns["trips"], columns["city"])], read


def exactly_once(server, admin, count, folder):
    """Records 0 to count: each is one row, in training sets and online."""
    drivers = list(range(count))
    expected = [[driver, f"c{driver}"] for driver in drivers]
    assert until(lambda: online(admin, drivers) == expected or None)
    values, read = joined(server, admin, drivers, folder)
    assert values == expected
    assert read == {"driver_stats": count, "driver_cities": count}
    counted = states(admin)
    assert sum(it["rows"] for it in counted) == count and sum(it["skipped"] for it in counted) == 0, counted


def falaj(server, *words):
    settings = environment(FALAJ_URL=server.url, FALAJ_TOKEN=server.admin_token())
    done = subprocess.run([binary(), *words, "--output", "json"], env=settings, capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("engine", ENGINES)
def test_records_become_values(broker, config, engine, tmp_path):
    with started(tmp_path, engine, config) as (server, admin):
        broker.produce("rides", [record(driver) for driver in range(300)])
        apply(admin)
        taken(admin, 300)
        broker.produce("rides", [record(driver) for driver in range(300, 400)])
        taken(admin, 400)
        exactly_once(server, admin, 400, tmp_path)
        # Late and out of order: what happened last stays, whatever came last. One partition keeps an order.
        late = [record(1, 50, START + 5000), record(1, 40, START + 4000), record(2, 60, START - 9000),
                record(3, 71, START + 1), record(3, 72, START + 1)]
        broker.produce("rides", late, partition=0)
        taken(admin, 405)
        expected = [[50, "c1"], [2, "c2"], [72, "c3"]]
        assert until(lambda: online(admin, [1, 2, 3]) == expected or None)
        assert joined(server, admin, [1, 2, 3], tmp_path)[0] == expected
        # It shows how far it is.
        told = falaj(server, "feature", "streams")
        assert {it["state"] for it in told} == {"running"} and len(told) == broker.partitions
        assert sum(it["rows"] for it in told) == 405 and {it["lag"] for it in told} == {0}
        metrics = admin.get("/metrics").text
        rows = [float(line.split()[-1]) for line in metrics.splitlines()
                if line.startswith('falaj_feature_stream_rows_total{project="default/default",source="rides"')]
        assert sum(rows) == 405, metrics
        assert "falaj_feature_stream_lag" in metrics and "falaj_feature_stream_running" in metrics
        # A new version of the source goes on where the old one was.
        before = {it["partition"]: it["next_offset"] for it in states(admin)}
        apply(admin, 'description = "rides as they come"')
        changed = DEFINITIONS.replace("MORE", "").replace('"at", unit', '"/at", unit')
        answer = admin.post(f"{API}/apply", data=changed, headers={"content-type": "application/toml"}).json()
        assert {it["outcome"] for it in answer["definitions"] if it["name"] == "rides"} == {"new_version"}
        broker.produce("rides", [record(driver) for driver in range(400, 420)])
        taken(admin, 425)
        after = {it["partition"]: it["next_offset"] for it in states(admin)}
        assert sum(after.values()) - sum(before.values()) == 20
        assert until(lambda: online(admin, [419]) == [[419, "c419"]] or None)
        # Nothing is pushed to it by hand.
        pushed = admin.post(f"{API}/push", json={"view": "driver_stats", "columns": {}})
        assert pushed.status_code == 400, pushed.text


def test_what_is_no_row_is_put_aside(broker, config, tmp_path):
    with started(tmp_path, "sqlite", config) as (server, admin):
        apply(admin, 'on_bad = "quarantine"')
        bad = ["no json", "[1]", json.dumps({"ride": {"driver": "x"}, "at": START}), json.dumps({"at": START}),
               record(1, at=START + 10**12), json.dumps({"ride": {"driver": 9}, "at": "never"}), "\u00e9" * 20_000,
               record(7, trips="many")]
        mixed = [record(0)] + [it for pair in zip(bad, [record(n) for n in range(1, 9)]) for it in pair]
        broker.produce("rides", mixed, partition=0)
        taken(admin, 9)
        aside = until(lambda: next((it for it in [falaj(server, "feature", "quarantine")] if len(it) == len(bad)),
                                   None))
        exactly_once(server, admin, 9, tmp_path)
        first = min(it["offset"] for it in aside) - 1
        assert [it["offset"] - first for it in aside] == list(range(1, 17, 2))
        assert {(it["source"], it["partition"]) for it in aside} == {("rides", 0)}
        for it, said, why in zip(aside, bad, ["no JSON", "no object", "driver_id", "driver_id", "max_ahead",
                                              "event_timestamp", "no JSON", "trips"]):
            assert why in it["reason"], it
            assert said.startswith(it["record"]) and it["size"] == len(said.encode())
        assert aside[6]["truncated"] and len(aside[6]["record"].encode()) <= 16 << 10
        assert sum(it["bad"] for it in states(admin)) == len(bad)
        page = admin.get(f"{API}/quarantine?source=rides&page_size=5").json()
        rest = admin.get(f"{API}/quarantine?source=rides&page_token={page['next_page_token']}").json()
        assert page["items"] + rest["items"] == aside
        assert admin.get(f"{API}/quarantine?source=nobody").status_code == 404


def test_reading_stops_before_what_is_refused(broker, config, tmp_path):
    with started(tmp_path, "sqlite", config) as (server, admin):
        apply(admin)
        broker.produce("rides", [record(0), record(1), "poison", record(2)], partition=0)
        stopped = until(lambda: [it for it in states(admin) if it["state"] == "bad_record"])[0]
        assert f"offset {stopped['next_offset']}" in stopped["reason"] and "no JSON" in stopped["reason"]
        assert stopped["rows"] == 2
        assert until(lambda: online(admin, [0, 1, 2]) == [[0, "c0"], [1, "c1"], [None, None]] or None)
        # It stays so over a restart, and nothing comes twice.
        server.stop()
        server.start()
        admin = server.client(server.admin_token())
        time.sleep(3)
        assert [it["state"] for it in states(admin) if it["rows"]] == ["bad_record"]
        # Another answer to bad records is no new version: it goes on.
        outcome = {it["outcome"] for it in apply(admin, 'on_bad = "quarantine"')["definitions"]
                   if it["name"] == "rides"}
        assert outcome == {"metadata"}
        taken(admin, 3)
        exactly_once(server, admin, 3, tmp_path)


@pytest.mark.parametrize("engine", ENGINES)
def test_killed_again_and_again(broker, config, engine, tmp_path):
    """Records come while the server is killed: each is there once."""
    count, step = 12_000, 100
    with started(tmp_path, engine, config) as (server, admin):
        apply(admin)
        failed = []

        def produce():
            try:
                for first in range(0, count, step):
                    broker.produce("rides", [record(driver) for driver in range(first, first + step)])
            except Exception as error:  # noqa: BLE001
                failed.append(error)

        producing = threading.Thread(target=produce)
        producing.start()
        kills = 0
        while producing.is_alive() or kills < 5:
            reached = sum(it["rows"] for it in states(admin))
            # Somewhere while rows come.
            with contextlib.suppress(AssertionError):
                until(lambda: sum(it["rows"] for it in states(admin)) > reached, 3)
            time.sleep(0.05 * (kills % 4))
            os.kill(server.process.pid, signal.SIGKILL)
            server.process.wait()
            server.start()
            admin = server.client(server.admin_token())
            kills += 1
            if kills >= 8:
                break
        producing.join()
        assert failed == []
        taken(admin, count)
        exactly_once(server, admin, count, tmp_path)


def test_two_servers_share_a_stream(broker, config, tmp_path):
    """The one that reads is killed; the other goes on, and then the first again."""
    config.write_text(config.read_text() + f"""
[keys]
keyring = "{tmp_path / 'keyring'}"

[[objects.roots]]
name = "local"
zone = "local"
path = "{tmp_path / 'objects'}"
""")
    one = OnEngine(tmp_path / "one", "postgres", FALAJ_CONFIG=str(config))
    two = Server(tmp_path / "two", FALAJ_CONFIG=str(config), FALAJ_DATABASE_URL=one.settings["FALAJ_DATABASE_URL"])
    for server in (one, two):
        server.data.parent.mkdir(parents=True)
    try:
        one.start()
        admin = one.client(one.admin_token())
        apply(admin)
        broker.produce("rides", [record(driver) for driver in range(200)])
        taken(admin, 200)
        two.start()
        other = two.client(one.admin_token())
        os.kill(one.process.pid, signal.SIGKILL)
        one.process.wait()
        for first in range(200, 1000, 100):
            broker.produce("rides", [record(driver) for driver in range(first, first + 100)])
        taken(other, 1000)
        one.start()
        broker.produce("rides", [record(driver) for driver in range(1000, 1200)])
        taken(other, 1200)
        # One that is stopped in good order lets go at once.
        two.stop()
        broker.produce("rides", [record(driver) for driver in range(1200, 1300)])
        admin = one.client(one.admin_token())
        taken(admin, 1300)
        exactly_once(one, admin, 1300, tmp_path)
    except BaseException:
        print(one.tail(), two.tail())
        raise
    finally:
        two.stop()
        one.stop()


def test_a_broker_that_comes_and_goes(broker, config, tmp_path):
    with started(tmp_path, "sqlite", config) as (server, admin):
        apply(admin)
        broker.produce("rides", [record(driver) for driver in range(100)])
        taken(admin, 100)
        for turn in (1, 2):
            broker.pause()
            away = until(lambda: [it for it in states(admin) if it["state"] == "away"])
            assert all(it["reason"] for it in away)
            assert admin.get(f"{API}/views").status_code == 200
            broker.go_on()
            broker.produce("rides", [record(driver) for driver in range(turn * 100, turn * 100 + 100)])
            taken(admin, turn * 100 + 100)
        until(lambda: {it["state"] for it in states(admin)} == {"running"})
        exactly_once(server, admin, 300, tmp_path)


def test_what_was_removed_is_told(tmp_path):
    broker = KINDS["nats"](tmp_path / "broker")
    broker.make("rides")
    path = tmp_path / "falaj.toml"
    path.write_text(f"""
[[features.streams]]
name = "events"
kind = "nats"
servers = ["{broker.address}"]
tenant = "default"
""")
    try:
        with started(tmp_path, "sqlite", path) as (server, admin):
            apply(admin)
            broker.produce("rides", [record(driver) for driver in range(10)])
            taken(admin, 10)
            os.kill(server.process.pid, signal.SIGKILL)
            server.process.wait()
            broker.produce("rides", [record(driver) for driver in range(10, 30)])
            broker.purge("rides", 26)
            server.start()
            admin = server.client(server.admin_token())
            gap = until(lambda: [it for it in states(admin) if it["state"] == "gap"])[0]
            assert gap["next_offset"] == 11 and "11" in gap["reason"] and "26" in gap["reason"], gap
            apply(admin, 'on_gap = "skip"')
            taken(admin, 15)
            after = states(admin)[0]
            assert (after["state"], after["skipped"], after["next_offset"]) == ("running", 15, 31), after
            assert until(lambda: online(admin, [9, 10, 25, 29]) ==
                         [[9, "c9"], [None, None], [25, "c25"], [29, "c29"]] or None)
    finally:
        broker.stop()


def test_only_what_is_configured_is_read(broker, config, tmp_path):
    with started(tmp_path, "sqlite", config) as (server, admin):
        def refused(field, **changed):
            text = DEFINITIONS.replace("MORE", changed.pop("more", ""))
            for old, new in changed.values():
                text = text.replace(old, new)
            answer = admin.post(f"{API}/apply", data=text, headers={"content-type": "application/toml"})
            assert answer.status_code == 400 and answer.json()["field"] == field, answer.text

        refused("sources[0].stream", a=('stream = "events"', 'stream = "nobody"'))
        refused("sources[0].stream", a=('stream = "events"', 'stream = "theirs"'))
        refused("sources[0].topic", a=('topic = "rides"', 'topic = "a/b"'))
        refused("sources[0].topic", a=('topic = "rides"', ""))
        refused("sources[0].path", more='path = "lake/x.parquet"')
        refused("sources[0].fields.driver_id", a=("/ride/driver", "@nothing"))
        refused("sources[0].stream", a=('kind = "stream"', 'kind = "push"'))
        refused("source[0].start", more='start = "yesterday"')
        # A topic that is not there is told, and read as soon as it is.
        text = DEFINITIONS.replace("MORE", "").replace('topic = "rides"', 'topic = "later"')
        assert admin.post(f"{API}/apply", data=text, headers={"content-type": "application/toml"}).ok
        missing = until(lambda: [it for it in states(admin) if it["state"] == "missing"])[0]
        assert "later" in missing["reason"] and "partition" not in missing
        broker.make("later")
        broker.produce("later", [record(driver) for driver in range(5)])
        taken(admin, 5)
        assert {it["state"] for it in states(admin)} == {"running"}
