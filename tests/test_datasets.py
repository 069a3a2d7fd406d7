"""Datasets over the wire and from the command line: put, read at any version, compared, rolled back."""

import json
import os
import signal
import subprocess

import pytest

from engines import ENGINES, OnEngine
from server import binary, environment

API = "/t/default/default/api/datasets"


@pytest.fixture(scope="module", params=ENGINES)
def stage(request, tmp_path_factory):
    server = OnEngine(tmp_path_factory.mktemp(f"datasets-{request.param}"), request.param).start()
    yield server, server.client(server.admin_token())
    alive = server.process.poll() is None
    tail = server.tail()
    server.stop()
    assert alive and "panicked" not in server.log.read_text(errors="replace"), tail


def run(server, *words, code=0, **more):
    settings = environment(FALAJ_URL=server.url, FALAJ_TOKEN=server.admin_token())
    done = subprocess.run([binary(), *words], env=settings, capture_output=True, timeout=60, **more)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def falaj(server, *words, code=0):
    done = run(server, *words, "--output", "json", code=code)
    return json.loads(done.stdout) if code == 0 else done.stderr.decode()


def csv(path, rows):
    path.write_text("id,city,fare\n" + "".join(f"{id},{city},{fare}\n" for id, city, fare in rows))
    return str(path)


def test_from_a_file_to_a_rollback(stage, tmp_path):
    server, _ = stage
    may = csv(tmp_path / "may.csv", [(1, "Dubai", 10.5), (2, "Abu Dhabi", 20.0), (3, "", 5.0)])
    first = falaj(server, "dataset", "put", "trips", may, "--key", "id", "-m", "May")
    assert (first["version"], first["rows"], first["message"]) == (1, 3, "May")
    assert [it["type"] for it in first["columns"]] == ["Int64", "Utf8", "Float64"]
    june = csv(tmp_path / "june.csv", [(4, "Sharjah", 7.25)])
    second = falaj(server, "dataset", "put", "trips", june, "--append")
    assert (second["version"], second["rows"], second["files"], second["parent"]) == (2, 4, 2, 1)
    wrong = csv(tmp_path / "wrong.csv", [(1, "Dubai", 99.0), (4, "Sharjah", 7.25), (9, "Ajman", 1.0)])
    third = falaj(server, "dataset", "put", "trips", wrong)

    diff = falaj(server, "dataset", "diff", "trips")
    assert diff["rows"] == {"added": 1, "removed": 2, "changed": 1, "unchanged": 1}
    assert diff["samples"]["changed"][0]["columns"] == ["fare"]
    assert diff["samples"]["added"] == [{"id": 9, "city": "Ajman", "fare": 1.0}]
    shown = run(server, "dataset", "diff", "trips", "--from", "2").stdout.decode()
    assert "Ajman" in shown and "unchanged" in shown

    falaj(server, "dataset", "tag", "trips", "gold", "--version", "2")
    back = falaj(server, "dataset", "rollback", "trips", "gold", "-m", "June was wrong")
    assert (back["version"], back["digest"], back["origin"]["id"]) == (4, second["digest"], "2")
    assert third["digest"] != back["digest"]
    log = falaj(server, "dataset", "log", "trips")
    assert [it["made_by"] for it in log] == ["rollback", "put", "append", "put"]
    assert [it.get("tags", []) for it in log] == [[], [], ["gold"], []]

    for which, rows in ((["--version", "1"], 3), (["--tag", "gold"], 4), ([], 4)):
        content = run(server, "dataset", "get", "trips", "-", *which).stdout
        assert content[:4] == content[-4:] == b"PAR1"
        target = tmp_path / "got.parquet"
        run(server, "dataset", "get", "trips", str(target), *which)
        # What was fetched is what is put again: the same rows, so nothing differs.
        name = f"copy-{rows}-{len(which)}"
        copy = falaj(server, "dataset", "put", name, str(target))
        assert copy["rows"] == rows
    told = falaj(server, "dataset", "show", "trips")["statistics"]
    fare = next(it for it in told["columns"] if it["name"] == "fare")
    assert (told["rows"], fare["min"], fare["max"], fare["nulls"]) == (4, 5.0, 20.0, 0)
    people = run(server, "dataset", "show", "trips").stdout.decode()
    assert "fare" in people and "7.25" in people, people


def test_retention_and_deleting(stage, tmp_path):
    server, admin = stage
    for number in range(3):
        falaj(server, "dataset", "put", "short", csv(tmp_path / f"{number}.csv", [(number, "x", 1.0)]))
    described = falaj(server, "dataset", "describe", "short", "--keep-versions", "1", "--owner", "ada")
    assert (described["owner"], described["keep"]) == ("ada", {"versions": 1})
    kept = falaj(server, "dataset", "describe", "short", "--description", "x")
    assert (kept["owner"], kept["keep"]) == ("ada", {"versions": 1}), "what is not said stays"
    falaj(server, "dataset", "delete", "short", "--version", "1", "--yes")
    assert "removed" in falaj(server, "dataset", "get", "short", "-", "--version", "1", code=1)
    falaj(server, "dataset", "delete", "short", "--yes")
    assert "short" not in [it["name"] for it in falaj(server, "dataset", "list")]
    falaj(server, "dataset", "restore", "short")
    assert falaj(server, "dataset", "show", "short")["version"] == 3
    falaj(server, "dataset", "delete", "short", "--purge", "--yes")
    falaj(server, "dataset", "restore", "short", code=5)
    assert admin.get(f"{API}/short").status_code == 404


def test_what_is_wrong_is_named(stage, tmp_path):
    server, admin = stage
    bad = tmp_path / "bad.csv"
    bad.write_text("a,b\n1\n")
    assert "line 2" in falaj(server, "dataset", "put", "bad", str(bad), code=1)
    text = tmp_path / "text.parquet"
    text.write_text("no Parquet")
    assert "Parquet" in falaj(server, "dataset", "put", "bad", str(text), code=1)
    assert admin.post(f"{API}", json={"name": "a b"}).status_code == 400
    assert admin.get(f"{API}/nobody/data").status_code == 404
    assert admin.get(f"{API}/bad/diff").status_code == 400, "a dataset without versions"
    answer = admin.put(f"{API}/bad/tags/7", json={})
    assert (answer.status_code, answer.json()["field"]) == (400, "tag")


def test_a_version_outlives_its_server(tmp_path):
    """What was acknowledged is there after a crash, with all of its files."""
    (tmp_path / "server").mkdir()
    server = OnEngine(tmp_path / "server", "sqlite").start()
    try:
        made = falaj(server, "dataset", "put", "trips", csv(tmp_path / "a.csv", [(1, "x", 1.0)]))
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        server.start()
        found = falaj(server, "dataset", "show", "trips")
        assert (found["digest"], found["statistics"]["rows"]) == (made["digest"], 1)
        run(server, "dataset", "get", "trips", str(tmp_path / "again.parquet"))
    finally:
        server.stop()
