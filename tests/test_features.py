"""Features over the wire and from the command line: declared, versioned, joined to moments, kept."""

import hashlib
import json
import os
import signal
import subprocess
import time

import pytest

from engines import ENGINES, OnEngine
from server import binary, environment

API = "/t/default/default/api/features"
DRIVERS = """
[[entity]]
name = "driver"
join_keys = [{ name = "driver_id", type = "int64" }]

[[source]]
name = "live"
kind = "push"

[[view]]
name = "driver_stats"
entities = ["driver"]
source = "live"
ttl = "7d"
owner = "ada"
schema = [{ name = "conv_rate", type = "float32" }, { name = "trips", type = "int64" }]

[[service]]
name = "ranking"
features = ["driver_stats:trips"]
"""
MOMENTS = {"driver_id": [1, 2], "event_timestamp": ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]}


@pytest.fixture(scope="module", params=ENGINES)
def stage(request, tmp_path_factory):
    server = OnEngine(tmp_path_factory.mktemp(f"features-{request.param}"), request.param).start()
    yield server, server.client(server.admin_token())
    alive = server.process.poll() is None
    tail = server.tail()
    server.stop()
    assert alive and "panicked" not in server.log.read_text(errors="replace"), tail


def falaj(server, *words, code=0):
    settings = environment(FALAJ_URL=server.url, FALAJ_TOKEN=server.admin_token())
    done = subprocess.run([binary(), *words, "--output", "json"], env=settings, capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout) if code == 0 else done.stderr


def test_from_a_file_to_a_training_set(stage, tmp_path):
    server, admin = stage
    file = tmp_path / "features.toml"
    file.write_text(DRIVERS)
    planned = falaj(server, "apply", str(file), "--plan")
    assert planned["dry_run"] and {it["outcome"] for it in planned["definitions"]} == {"created"}
    assert falaj(server, "feature", "list") == []
    falaj(server, "apply", str(file))
    assert [it["name"] for it in falaj(server, "feature", "list")] == ["driver_stats"]
    file.write_text(DRIVERS.replace("7d", "30d"))
    falaj(server, "apply", str(file))
    diff = falaj(server, "feature", "diff", "driver_stats")
    assert [it["field"] for it in diff["differences"]] == ["ttl_us"]
    first = falaj(server, "feature", "show", "driver_stats", "--version", "1")
    assert (first["version"], first["latest"]) == (1, 2)

    made = admin.post(f"{API}/training-sets", json={"service": "ranking", "moments": MOMENTS})
    assert made.status_code == 200, made.text
    made = made.json()
    assert (made["state"], made["rows"]) == ("ready", 2), made
    assert made["manifest"]["features"][0]["version"] == 2
    target = tmp_path / "train.parquet"
    done = subprocess.run([binary(), "training-set", "download", made["id"], str(target)], capture_output=True,
                          env=environment(FALAJ_URL=server.url, FALAJ_TOKEN=server.admin_token()), timeout=60)
    assert done.returncode == 0, done.stderr
    content = target.read_bytes()
    assert content[:4] == content[-4:] == b"PAR1"
    assert hashlib.sha256(content).hexdigest() == made["manifest"]["sha256"]
    assert falaj(server, "training-set", "list")[0]["id"] == made["id"]
    assert falaj(server, "training-set", "show", made["id"])["digest"] == made["digest"]
    assert falaj(server, "feature", "diff", "driver_stats", "--from", "2")["used_by"]["training_sets"] == [made["id"]]
    # People are told the digest of what they made.
    def plain(*words):
        settings = environment(FALAJ_URL=server.url, FALAJ_TOKEN=server.admin_token())
        done = subprocess.run([binary(), *words], env=settings, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
    plain("object", "put", "rides.parquet", str(target))
    told = plain("training-set", "create", "--moments", "rides.parquet", "--service", "ranking",
                 "--full-feature-names")
    assert falaj(server, "training-set", "list")[0]["digest"] in told, told
    # The same again is the same.
    again = admin.post(f"{API}/training-sets", json={"service": "ranking", "moments": MOMENTS}).json()
    assert again["digest"] == made["digest"] and again["id"] != made["id"]


def test_a_view_leads_to_the_models_that_learned_from_it(stage, tmp_path):
    server, admin = stage
    file = tmp_path / "features.toml"
    file.write_text(DRIVERS)
    falaj(server, "apply", str(file))
    asked = {"service": "ranking", "moments": MOMENTS, "full_feature_names": True}
    made = admin.post(f"{API}/training-sets", json=asked).json()

    def mlflow(path, body):
        said = admin.post(f"/t/default/default/api/2.0/mlflow/{path}", json=body)
        assert said.status_code == 200, said.text
        return said.json()

    experiment = mlflow("experiments/create", {"name": f"learning {made['id']}"})["experiment_id"]
    run = mlflow("runs/create", {"experiment_id": experiment})["run"]["info"]["run_id"]
    # MLflow keeps the first 36 characters of a digest.
    dataset = {"name": "rides", "digest": made["digest"][:36], "source_type": "local", "source": made["id"]}
    mlflow("runs/log-inputs", {"run_id": run, "datasets": [{"dataset": dataset}]})
    name = f"ranker-{made['id']}"
    mlflow("registered-models/create", {"name": name})
    mlflow("model-versions/create", {"name": name, "source": f"runs:/{run}/model", "run_id": run})
    down = admin.get(f"{API}/views/driver_stats/lineage").json()["down"]
    (found,) = [it for it in down["runs"] if it["run_id"] == run]
    assert found["versions"] == [{"name": name, "version": "1"}], down
    assert run in json.dumps(falaj(server, "feature", "lineage", "driver_stats"))


def test_what_is_erased_is_gone_from_what_was_made_of_it(stage, tmp_path):
    server, admin = stage
    file = tmp_path / "features.toml"
    file.write_text(DRIVERS)
    falaj(server, "apply", str(file))
    body = {"service": "ranking", "moments": MOMENTS, "register": "rides", "name": "to be erased"}
    made = admin.post(f"{API}/training-sets", json=body).json()
    assert (made["state"], made["rows"]) == ("ready", 2), made
    done = falaj(server, "feature", "erase", "driver", "--key", "driver_id=2", "--yes")
    assert made["id"] in done["training_sets"] and done["datasets"] == ["rides"], done
    said = falaj(server, "training-set", "download", made["id"], str(tmp_path / "x.parquet"), code=1)
    assert "erased" in said, said
    seen = falaj(server, "training-set", "show", made["id"])
    assert falaj(server, "training-set", "show", seen["successor"])["rows"] == 1
    log = falaj(server, "dataset", "log", "rides")
    assert [it["made_by"] for it in log] == ["erase", "put"] and log[1]["removed_at"], log
    # Counts, and no values, of what both stores said.
    falaj(server, "feature", "check", "driver_stats")
    last = falaj(server, "feature", "check", "driver_stats", "--last")
    assert last["result"]["mismatches"] == 0, last


def test_what_is_wrong_is_named(stage, tmp_path):
    server, admin = stage
    file = tmp_path / "wrong.toml"
    file.write_text(DRIVERS.replace('source = "live"', 'source = "nobody"'))
    assert "`views[0].source` is" in falaj(server, "apply", str(file), code=1)
    answer = admin.post(f"{API}/apply", data=b"\xff", headers={"content-type": "application/toml"})
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed-body")
    answer = admin.post(f"{API}/apply", data=b"x", headers={"content-type": "text/plain"})
    assert answer.status_code == 415
    answer = admin.get(f"{API}/training-sets/tset_{'0' * 32}/data")
    assert answer.status_code == 404


def test_a_training_set_outlives_its_server(tmp_path):
    """Killed while sets wait: what was asked for is made by the next server, and once."""
    server = OnEngine(tmp_path, "sqlite", FALAJ_FEATURES_WAIT="0s").start()
    try:
        admin = server.client(server.admin_token())
        assert admin.post(f"{API}/apply", data=DRIVERS, headers={"content-type": "application/toml"}).ok
        asked = [admin.post(f"{API}/training-sets", json={"service": "ranking", "moments": MOMENTS}).json()["id"]
                 for _ in range(5)]
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        server.start()
        admin = server.client(server.admin_token())
        until = time.monotonic() + 60
        while time.monotonic() < until:
            sets = admin.get(f"{API}/training-sets").json()["items"]
            if all(it["state"] == "ready" for it in sets):
                break
            time.sleep(0.2)
        assert sorted(it["id"] for it in sets) == sorted(asked)
        assert {it["state"] for it in sets} == {"ready"} and len({it["digest"] for it in sets}) == 1
    finally:
        server.stop()
