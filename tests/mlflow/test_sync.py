"""`falaj sync`: a stock MLflow logs to a store of its own while the server is away, and what it logged
comes over later, piece by piece."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
import uuid

import pytest

from server import Server, binary, environment
from test_moving import client_of, counts, everything, project, run

import mlflow
from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput, Metric

PATIENCE = 60


@pytest.fixture(params=["files", "sqlite"])
def offline(request, tmp_path):
    """A store that nobody has logged to yet: its address for MLflow."""
    return f"file://{tmp_path}/mlruns" if request.param == "files" else f"sqlite:///{tmp_path}/mlflow.db"


def experiment(client, uri, name):
    """An experiment whose files lie beside the store, also where MLflow would put them elsewhere."""
    place = None if uri.startswith("file:") else f"file://{os.path.dirname(uri.removeprefix('sqlite:///'))}/mlruns/{name}"
    return client.create_experiment(name, artifact_location=place)


def sync(falaj, store, name, *more, **options):
    return run(falaj, "sync", store, "-p", name, "-o", "json", *more, **options)


def moved(done):
    return {kind: sent for kind, (_, sent) in counts(done).items() if sent}


def logged(client):
    """Runs and logged models as a stock client sees them."""
    seen = everything(client)
    # Each side notes there what it registered itself.
    models = {id_: model[:6] + ({k: v for k, v in model[6].items() if k != "mlflow.modelVersions"},) + model[7:]
              for id_, model in seen["models"].items()}
    return seen["runs"], models


def until(what, happens):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if happens():
            return
        time.sleep(0.2)
    raise AssertionError(f"not within {PATIENCE} s: {what}")


def history(client, run_id, key):
    return sorted(point.step for point in client.get_metric_history(run_id, key))


def test_what_was_logged_offline_comes_over(falaj, offline):
    from sklearn.linear_model import Ridge
    name = project(falaj)
    there, here = MlflowClient(offline, offline), client_of(falaj, name)
    first = experiment(there, offline, "vision")
    one = there.create_run(first, run_name="one", tags={"t": "1"}).info.run_id
    there.log_batch(one, metrics=[Metric("loss", 1 / (i + 1), 1000 + i, i) for i in range(500)])
    there.log_param(one, "lr", "0.1")
    there.log_text(one, "a", "notes/a.txt")
    there.log_text(one, "b", "notes/b.txt")
    mlflow.set_tracking_uri(offline)
    mlflow.set_registry_uri(offline)
    mlflow.set_experiment("vision")
    with mlflow.start_run(run_name="two"):
        mlflow.sklearn.log_model(Ridge().fit([[1.0], [2.0]], [1.0, 2.0]), name="ridge", registered_model_name="offline")
    binned = there.create_run(first).info.run_id
    there.delete_run(binned)

    done = moved(sync(falaj, offline, name))
    assert done["runs"] == 2 and done["metric points"] == 500 and done["logged models"] == 1, done
    assert done["model versions"] == 1, done
    runs, models = logged(there)
    assert runs.pop(binned)["info"][5] == "deleted"
    assert logged(here) == (runs, models)
    mlflow.set_tracking_uri(f"{falaj.url}/t/default/{name}")
    mlflow.set_registry_uri(f"{falaj.url}/t/default/{name}")
    assert mlflow.sklearn.load_model("models:/offline/1").coef_.shape == (1,)
    assert mlflow.get_run(one).info.status == "RUNNING"
    # What is registered here is known, and can be promoted.
    run(falaj, "model", "verify", "offline", "1", "-p", name)

    assert moved(sync(falaj, offline, name)) == {}, "nothing was logged since"
    # The same run goes on.
    there.log_batch(one, metrics=[Metric("loss", 0.0, 2000 + i, 500 + i) for i in range(50)])
    there.log_metric(one, "acc", 0.5, step=3)
    there.log_param(one, "late", "x")
    there.set_tag(one, "t", "2")
    there.log_text(one, "changed", "notes/a.txt")
    there.log_text(one, "new", "c.txt")
    there.set_terminated(one, "FINISHED")
    here.set_tag(one, "reviewed", "by ann")
    done = moved(sync(falaj, offline, name))
    assert (done["runs"], done["metric points"], done["artifact files"]) == (1, 51, 2), done
    assert "model versions" not in done
    runs, models = logged(there)
    del runs[binned]
    runs[one]["tags"]["reviewed"] = "by ann"
    assert logged(here) == (runs, models)
    assert here.get_run(one).data.tags["reviewed"] == "by ann"
    assert moved(sync(falaj, offline, name)) == {}


def test_laptops_share_an_experiment(falaj, tmp_path):
    name = project(falaj)
    here = client_of(falaj, name)
    made = here.create_experiment("shared", tags={"owner": "ann"})
    native = here.create_run(made).info.run_id
    stores = []
    for laptop in ("a", "b"):
        os.mkdir(tmp_path / laptop)
        uri = f"sqlite:///{tmp_path}/{laptop}/mlflow.db"
        there = MlflowClient(uri, uri)
        id_ = experiment(there, uri, "shared")
        stores.append((uri, there, there.create_run(id_).info.run_id))
    for uri, _, _ in stores:
        sync(falaj, uri, name)
    both = {run_ for _, _, run_ in stores}
    assert {one.info.run_id for one in here.search_runs([made])} == both | {native}
    # What is deleted here is not brought back, and what is deleted there is not deleted here.
    uri, there, run_ = stores[0]
    here.delete_run(run_)
    there.log_metric(run_, "m", 1.0)
    done = sync(falaj, uri, name)
    assert moved(done) == {} and f"{run_} was deleted on the server" in done.stderr, done.stderr
    uri, there, run_ = stores[1]
    there.delete_run(run_)
    assert moved(sync(falaj, uri, name)) == {}
    assert here.get_run(run_).info.lifecycle_stage == "active"
    run(falaj, "run", "purge", stores[0][2], "-p", name, "--yes")
    assert "was purged on the server" in sync(falaj, stores[0][0], name).stderr


def test_whoever_may_log_may_sync(falaj, tmp_path):
    name = project(falaj)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    there = MlflowClient(uri, uri)
    there.create_run(experiment(there, uri, "mine"))
    for role, code in (("viewer", 4), ("contributor", 0)):
        account = f"{name}-{role}"
        run(falaj, "service-account", "create", account, "--tenant", "default")
        run(falaj, "role", "grant", account, role, "--tenant", "default", "--project", name)
        made = run(falaj, "token", "create", "--owner", account, "--role", role, "-t", "default", "-p", name, "-o", "json")
        env = environment(FALAJ_URL=falaj.url, FALAJ_TOKEN=json.loads(made.stdout)["secret"])
        done = subprocess.run([binary(), "sync", uri, "-p", name], capture_output=True, text=True, env=env, timeout=120)
        assert done.returncode == code, done.stderr


def test_a_sync_that_is_killed_goes_on(falaj, tmp_path):
    name = project(falaj)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    there, here = MlflowClient(uri, uri), client_of(falaj, name)
    id_ = experiment(there, uri, "many")
    database = sqlite3.connect(tmp_path / "mlflow.db")
    runs = [uuid.uuid4().hex for _ in range(150)]
    for run_ in runs:
        folder = tmp_path / "mlruns" / "many" / run_ / "artifacts"
        folder.mkdir(parents=True)
        (folder / "x.bin").write_bytes(run_.encode() * 100)
        database.execute(
            "insert into runs (run_uuid, name, source_type, user_id, status, start_time, lifecycle_stage, artifact_uri,"
            " experiment_id) values (?, 'r', 'LOCAL', 'u', 'RUNNING', 1, 'active', ?, ?)", (run_, f"file://{folder}", id_))
        database.executemany("insert into metrics (key, value, timestamp, run_uuid, step, is_nan) values ('m', ?, ?, ?, ?, 0)",
                             [(i / 7, i, run_, i) for i in range(200)])
    database.commit()
    for least in (1, 101):
        process = subprocess.Popen([binary(), "sync", uri, "-p", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env=environment(FALAJ_URL=falaj.url, FALAJ_TOKEN=falaj.token))
        def enough():
            found = here.get_experiment_by_name("many")
            return process.poll() is not None or found and len(here.search_runs([found.experiment_id], max_results=200)) >= least
        until("some runs are there", enough)
        process.kill()
        process.wait()
    done = sync(falaj, uri, name)
    assert counts(done)["runs"][0] == 150
    assert moved(sync(falaj, uri, name)) == {}
    found = here.search_runs([here.get_experiment_by_name("many").experiment_id], max_results=1000)
    assert {one.info.run_id for one in found} == set(runs)
    for run_ in (runs[0], runs[-1]):
        assert history(here, run_, "m") == list(range(200))
        assert [file.path for file in here.list_artifacts(run_)] == ["x.bin"]


def test_what_is_refused_keeps_nothing_else_away(falaj, tmp_path):
    name = project(falaj)
    uri, copy = (f"sqlite:///{tmp_path}/{kind}.db" for kind in ("mlflow", "copy"))
    there, here = MlflowClient(uri, uri), client_of(falaj, name)
    id_ = experiment(there, uri, "shared")
    taken = there.create_run(id_).info.run_id
    sync(falaj, uri, name)
    # Another store has that run as well, and logs to it; and one whose files lie where nobody said.
    shutil.copy(tmp_path / "mlflow.db", tmp_path / "copy.db")
    there = MlflowClient(copy, copy)
    there.log_metric(taken, "m", 1.0)
    there.log_param(taken, "lr", "1")
    far, near = there.create_run(id_).info.run_id, there.create_run(id_).info.run_id
    for run_ in (far, near):
        there.log_metric(run_, "m", 1.0)
    there.log_text(near, "text", "x.txt")
    database = sqlite3.connect(tmp_path / "copy.db")
    database.execute("update runs set artifact_uri = 'file:///etc' where run_uuid = ?", (far,))
    database.commit()
    for moves in (True, False):
        done = sync(falaj, copy, name, "--source-name", "copy", check=False)
        assert done.returncode == 1, done.stderr
        assert f"the run {taken}: " in done.stderr and "2 things were refused" in done.stderr, done.stderr
        assert f"the files of run {far} are at /etc" in done.stderr, done.stderr
        assert bool(moved(done)) == moves, done.stdout
    assert history(here, far, "m") == history(here, near, "m") == [0]
    assert [file.path for file in here.list_artifacts(near)] == ["x.txt"]
    assert here.list_artifacts(far) == [] and "lr" not in here.get_run(taken).data.params


def test_a_model_is_not_linked_to_what_is_in_the_bin(falaj, tmp_path):
    import requests
    name = project(falaj)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    named = ("--source-name", "laptop")
    there, here = MlflowClient(uri, uri), client_of(falaj, name)
    id_ = experiment(there, uri, "e")
    deleted, kept = (there.create_run(id_).info.run_id for _ in range(2))
    sync(falaj, uri, name, *named)
    here.delete_run(deleted)
    model = there.create_logged_model(id_, name="m", source_run_id=deleted).model_id
    for run_ in (deleted, kept):
        there.log_outputs(run_, [LoggedModelOutput(model, 1)])
        there.log_metric(run_, "acc", 0.5, model_id=model)
    done = sync(falaj, uri, name, *named)
    assert f"{deleted} was deleted on the server" in done.stderr, done.stderr
    assert [one.run_id for one in here.get_logged_model(model).metrics] == [kept]
    outputs = {run_: here.get_run(run_).outputs for run_ in (deleted, kept)}
    assert [one.model_id for one in outputs[kept].model_outputs] == [model]
    assert not (outputs[deleted] and outputs[deleted].model_outputs)
    assert moved(sync(falaj, uri, name, *named)) == {}
    # Whoever sends it all the same is refused, and nothing of it is written.
    path = f"{falaj.url}/v1/tenants/default/projects/{name}/sync/logged-models"
    metric = {"key": "k", "value": "1", "timestamp": 1, "step": 1, "run": deleted}
    for links in ({"inputs": [deleted]}, {"outputs": [[deleted, 1]]}, {"metrics": [metric]}):
        new = "m-" + uuid.uuid4().hex
        sent = {"id": new, "experiment": here.get_experiment_by_name("e").experiment_id, "name": "x", "status": 2,
                "created_at": 1, "updated_at": 1, **links}
        said = requests.post(path, json={"source": "laptop", "logged_models": [sent]}, timeout=30,
                             headers={"Authorization": f"Bearer {falaj.token}"})
        assert said.status_code == 400 and "must be in the 'active' state" in said.text, said.text
        with pytest.raises(mlflow.MlflowException, match="not found"):
            here.get_logged_model(new)


def test_versions_are_registered_once(falaj, tmp_path):
    name = project(falaj)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    there, here = MlflowClient(uri, uri), client_of(falaj, name)
    run_ = there.create_run(experiment(there, uri, "e")).info.run_id
    there.log_text(run_, "weights", "model/weights.txt")
    for model in ("renamed", "gone", "kept"):
        there.create_registered_model(model)
        for _ in range(2):
            there.create_model_version(model, f"runs:/{run_}/model", run_)
    assert moved(sync(falaj, uri, name))["model versions"] == 6
    # What is decided on the server holds.
    here.delete_model_version("kept", "1")
    here.delete_model_version_tag("kept", "2", "falaj.synced")
    here.rename_registered_model("renamed", "better")
    here.delete_registered_model("gone")
    done = sync(falaj, uri, name)
    assert moved(done) == {} and "the model gone was deleted on the server" in done.stderr, done.stderr
    for model in ("renamed", "gone", "kept"):
        there.create_model_version(model, f"runs:/{run_}/model", run_)
    assert moved(sync(falaj, uri, name)) == {"model versions": 2}
    assert {model.name for model in here.search_registered_models()} == {"better", "kept"}
    assert {int(one.version) for one in here.search_model_versions("name = 'kept'")} == {2, 3}
    assert {int(one.version) for one in here.search_model_versions("name = 'better'")} == {1, 2, 3}


def test_following_brings_nothing_back(falaj, tmp_path):
    name = project(falaj)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    there, here = MlflowClient(uri, uri), client_of(falaj, name)
    id_ = experiment(there, uri, "live")
    purged, deleted = (there.create_run(id_).info.run_id for _ in range(2))
    follower = subprocess.Popen(
        [binary(), "sync", uri, "-p", name, "--follow", "--every", "200ms"], stderr=subprocess.PIPE, text=True,
        stdout=subprocess.DEVNULL, env=environment(FALAJ_URL=falaj.url, FALAJ_TOKEN=falaj.token))

    def seen(run_):
        try:
            return here.get_run(run_).info
        except mlflow.MlflowException:
            return None
    try:
        until("the runs", lambda: seen(purged) and seen(deleted))
        time.sleep(1)
        for run_ in (purged, deleted):
            here.delete_run(run_)
        run(falaj, "run", "purge", purged, "-p", name, "--yes")
        for run_ in (purged, deleted):
            there.log_metric(run_, "m", 1.0)
            there.log_text(run_, "late", "x.txt")
        last = there.create_run(id_).info.run_id
        there.log_text(last, "late", "x.txt")
        until("the rest", lambda: seen(last) and here.list_artifacts(last))
        time.sleep(1)
        assert seen(purged) is None
        assert seen(deleted).lifecycle_stage == "deleted" and not here.get_run(deleted).data.metrics
        follower.send_signal(signal.SIGINT)
        _, said = follower.communicate(timeout=30)
        assert follower.returncode == 0, said
        assert f"{purged} was purged" in said and f"{deleted} was deleted" in said, said
    finally:
        follower.kill()
        follower.wait()


def test_following_outlives_the_server(falaj, offline, tmp_path):
    name = project(falaj)
    there, here = MlflowClient(offline, offline), client_of(falaj, name)
    said = tmp_path / "said"
    with open(said, "w") as talk:
        follower = subprocess.Popen(
            [binary(), "sync", offline, "-p", name, "--follow", "--every", "300ms", "-o", "json"], stderr=talk,
            stdout=subprocess.PIPE, text=True, env=environment(FALAJ_URL=falaj.url, FALAJ_TOKEN=falaj.token))
    try:
        # It may begin before there is a store.
        id_ = experiment(there, offline, "live")
        one = there.create_run(id_).info.run_id
        there.log_metric(one, "m", 0.0, step=0)
        def arrived(steps):
            try:
                return history(here, one, "m") == steps
            except mlflow.MlflowException:
                return False
        until("the first point", lambda: arrived([0]))
        for step in range(1, 6):
            there.log_metric(one, "m", 0.5, step=step)
            time.sleep(0.2)
        until("more points", lambda: arrived(list(range(6))))
        Server.stop(falaj)
        there.log_metric(one, "m", 1.0, step=6)
        there.log_text(one, "while away", "x.txt")
        until("that the server is away", lambda: "cannot be reached" in said.read_text())
        falaj.start()
        until("the rest", lambda: arrived(list(range(7))))
        until("that it is back", lambda: "the server is back" in said.read_text())
        there.set_terminated(one)
        until("the end of the run", lambda: here.get_run(one).info.status == "FINISHED")
        assert [file.path for file in here.list_artifacts(one)] == ["x.txt"]
        follower.send_signal(signal.SIGINT)
        out, _ = follower.communicate(timeout=30)
        assert follower.returncode == 0, said.read_text()
        rows = {row["kind"]: row["moved"] for row in json.loads(out)["kinds"]}
        assert rows["metric points"] == 7 and rows["artifact files"] == 1, rows
    finally:
        follower.kill()
        follower.wait()
