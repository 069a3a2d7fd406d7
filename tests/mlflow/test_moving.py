"""`falaj import mlflow` and `falaj export mlflow`, with a real MLflow at both ends.

A stock MLflow fills a store of each kind; it is imported; the stock client then reads the same from
Falaj as from the store. What is exported is opened by a stock MLflow server and compared likewise.
"""

import json
import math
import os
import pathlib
import random
import subprocess
import sys
import time
import uuid

import pytest

from engines import psql
from original import Original
from server import binary, environment

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
# The stock MLflow keeps files only if told to.
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"

import mlflow  # noqa: E402
from mlflow import MlflowClient  # noqa: E402
from mlflow.entities import Metric, Param, ViewType  # noqa: E402

# A database far away has no folder of its own: what may be read must be said.
ROOTS = {}


def run(falaj, *arguments, check=True, **options):
    """The command line, as an administrator."""
    done = subprocess.run([binary(), *map(str, arguments)], capture_output=True, text=True, timeout=300,
                          env=environment(FALAJ_URL=falaj.url, FALAJ_TOKEN=falaj.token), **options)
    if check:
        assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def project(falaj):
    """A project of its own for each test."""
    name = f"p{uuid.uuid4().hex[:12]}"
    run(falaj, "project", "create", name)
    return name


def client_of(falaj, name):
    os.environ["MLFLOW_TRACKING_TOKEN"] = falaj.token
    uri = f"{falaj.url}/t/default/{name}"
    return MlflowClient(uri, uri)


def counts(done):
    return {row["kind"]: (row["found"], row["moved"]) for row in json.loads(done.stdout)["kinds"]}


def fill(uri, artifacts=None):
    """What people leave behind. Done once for each kind of store."""
    random.seed(7)
    client = MlflowClient(uri, uri)
    first = client.create_experiment("vision", artifact_location=artifacts,
                                     tags={"team": "a b", "mlflow.note.content": "one\ntwo"})
    gone = client.create_experiment("gone", artifact_location=artifacts and f"{artifacts}/gone")
    one = client.create_run(first, run_name="first", tags={"t/x": "v", "many": "l1\nl2"}).info.run_id
    points = [Metric("loss/train", random.random() * 10 ** random.randint(-300, 300), 1000 + i, i) for i in range(700)]
    odd = [Metric("odd", value, 5, step) for step, value in enumerate([math.nan, math.inf, -math.inf, -0.0, 5e-324])]
    same = [Metric("odd", float(i), 5, -3) for i in range(3)]
    for batch in (points, odd + same):
        client.log_batch(one, metrics=batch)
    client.log_batch(one, params=[Param("lr", "0.1"), Param("a/b", "x\ny"), Param("empty", ""), Param("long", "é" * 6000)])
    client.log_text(one, "héllo", "notes/a b.txt")
    client.log_text(one, "", "empty.txt")
    client.log_dict(one, {"deep": 1}, "a/b/c/d.json")

    import numpy
    from sklearn.linear_model import Ridge
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    dataset = mlflow.data.from_numpy(numpy.arange(10.0), name="ten")
    mlflow.set_experiment("vision")
    with mlflow.start_run(run_id=one):
        mlflow.log_input(dataset, context="training", tags={"k": "v"})
    with mlflow.start_run(run_name="second") as second:
        fitted = Ridge().fit([[1.0], [2.0]], [1.0, 2.0])
        info = mlflow.sklearn.log_model(fitted, name="ridge", registered_model_name="reg one",
                                        params={"alpha": 1.0}, step=3)
        mlflow.log_metric("acc", 0.1 + 0.2, step=1, model_id=info.model_id, dataset=dataset)
        with mlflow.start_run(nested=True, run_name="inner"):
            mlflow.log_param("p", "1")
    other = client.create_run(first, run_name="user").info.run_id
    with mlflow.start_run(run_id=other):
        mlflow.sklearn.load_model(f"models:/{info.model_id}")
    deleted = client.create_run(gone).info.run_id
    client.log_text(deleted, "x", "d.txt")
    client.delete_run(deleted)
    client.delete_experiment(gone)
    client.set_terminated(one, "FAILED")

    client.set_registered_model_tag("reg one", "rt", "rv")
    client.set_model_version_tag("reg one", "1", "vt", "vv")
    client.update_registered_model("reg one", "about it")
    client.update_model_version("reg one", "1", "version one")
    for _ in range(2):
        client.create_model_version("reg one", f"models:/{info.model_id}", second.info.run_id, model_id=info.model_id)
    client.delete_model_version("reg one", "2")
    client.transition_model_version_stage("reg one", "3", "Production")
    client.set_registered_model_alias("reg one", "champion", "1")
    client.create_registered_model("empty one")
    client.create_registered_model("old way")
    client.log_text(one, "weights", "model/weights.txt")
    client.create_model_version("old way", f"{client.get_run(one).info.artifact_uri}/model", one)
    mlflow.genai.register_prompt("greet", "Hello {{name}}")
    if not uri.startswith("file:"):
        leave_traces()


def leave_traces():
    """Two traces with spans of all kinds, one that failed, and what people and judges said of them."""
    from mlflow.entities import AssessmentSource, SpanEvent

    @mlflow.trace(span_type="LLM", attributes={"n": 3, "f": 1.5, "text": "3", "list": [1, "a", None], "deep": {"x": {"y": True}}})
    def ask(question):
        mlflow.get_current_active_span().add_event(SpanEvent("looked", attributes={"a": 1}))
        mlflow.update_current_trace(tags={"t": "é"}, metadata={"mlflow.trace.session": "s1"}, client_request_id="c1")
        return answer(question)

    @mlflow.trace
    def answer(question):
        if question > 1:
            raise ValueError("too much")
        return {"sum": question + 1}

    for question in (1, 2):
        try:
            ask(question)
        except ValueError:
            pass
    mlflow.flush_trace_async_logging()
    first, second = (trace.info.trace_id for trace in mlflow.search_traces(return_type="list"))
    mlflow.log_feedback(trace_id=first, name="good", value={"a": 1}, rationale="why", metadata={"k": "v"},
                        source=AssessmentSource("HUMAN", "me"))
    mlflow.log_expectation(trace_id=first, name="wanted", value=[1, 2])
    mlflow.log_feedback(trace_id=second, name="odd", error=ValueError("x"))
    mlflow.log_feedback(trace_id=second, name="number", value=0.25, source=AssessmentSource("LLM_JUDGE", "gpt"))


def everything(client):
    """All that a stock client sees, less where files are and what only one of the two knows."""
    seen = {"experiments": {}, "runs": {}, "models": {}, "registered": {}, "traces": {}}
    names = {}
    for one in client.search_experiments(view_type=ViewType.ALL):
        names[one.experiment_id] = one.name
        if one.name == "Default" and not client.search_runs([one.experiment_id], run_view_type=ViewType.ALL):
            continue
        seen["experiments"][one.name] = (one.lifecycle_stage, one.creation_time, one.last_update_time, one.tags)
    for run in client.search_runs(list(names), run_view_type=ViewType.ALL):
        info = run.info
        history = {}
        for key in run.data.metrics:
            points = client.get_metric_history(info.run_id, key)
            history[key] = sorted(((p.timestamp, p.step, number(p.value)) for p in points), key=repr)
        seen["runs"][info.run_id] = {
            "info": (names[info.experiment_id], info.run_name, info.status, info.start_time, info.end_time,
                     info.lifecycle_stage, info.user_id or ""),
            "latest": {key: number(value) for key, value in run.data.metrics.items()},
            "history": history, "params": run.data.params, "tags": run.data.tags,
            "datasets": sorted((d.dataset.name, d.dataset.digest, d.dataset.source_type, d.dataset.source,
                                d.dataset.schema, d.dataset.profile, sorted((t.key, t.value) for t in d.tags))
                               for d in run.inputs.dataset_inputs),
            "inputs": sorted(m.model_id for m in run.inputs.model_inputs),
            "outputs": sorted((m.model_id, m.step) for m in run.outputs.model_outputs) if run.outputs else [],
            "files": files(client, info.run_id),
        }
    for model in client.search_logged_models(list(names)):
        seen["models"][model.model_id] = (
            names[model.experiment_id], model.name, model.creation_timestamp, str(model.status), model.source_run_id,
            model.params, model.tags, sorted((m.key, m.value, m.timestamp, m.step, m.run_id, m.dataset_name, m.dataset_digest)
                                             for m in model.metrics or []))
    # Spans in files are looked for where the client in general is pointed at.
    mlflow.set_tracking_uri(client.tracking_uri)
    for trace in client.search_traces(locations=list(names)):
        info = trace.info
        seen["traces"][info.trace_id] = {
            "info": (names[info.experiment_id], info.request_time, info.execution_duration, str(info.state),
                     info.client_request_id, info.request_preview, info.response_preview),
            "tags": {k: v for k, v in info.tags.items() if k not in ("mlflow.artifactLocation", "mlflow.trace.spansLocation")},
            "metadata": info.trace_metadata,
            "said": sorted((a.assessment_id, a.name, repr(floats(a.value)), str(a.error), a.rationale, str(a.source), a.metadata or {},
                            a.create_time_ms, a.last_update_time_ms, a.valid is not False) for a in info.assessments),
            "spans": sorted((s.span_id, s.parent_id, s.name, s.span_type, s.start_time_ns, s.end_time_ns, str(s.status),
                             repr(sorted(s.attributes.items())), repr([(e.name, e.timestamp, sorted(e.attributes.items())) for e in s.events]))
                            for s in trace.data.spans),
        }
    for model in [*client.search_registered_models(), *client.search_registered_models("tags.`mlflow.prompt.is_prompt`='true'")]:
        prompt = "mlflow.prompt.is_prompt" in model.tags
        more = " and tags.`mlflow.prompt.is_prompt`='true'" if prompt else ""
        versions = client.search_model_versions(f"name='{model.name}'{more}")
        seen["registered"][model.name] = (
            model.description or "", model.creation_timestamp, model.last_updated_timestamp, model.tags,
            {alias: str(version) for alias, version in model.aliases.items()},
            sorted((str(v.version), v.current_stage, v.description or "", v.run_id or "", v.creation_timestamp,
                    v.last_updated_timestamp, sorted(v.tags.items())) for v in versions))
    return seen


def floats(value):
    """As values travel: the protocol knows one kind of number."""
    if isinstance(value, dict):
        return {key: floats(one) for key, one in value.items()}
    if isinstance(value, list):
        return [floats(one) for one in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def number(value):
    """As databases keep it."""
    if math.isnan(value):
        return "NaN"
    return max(min(value, sys.float_info.max), -sys.float_info.max) + 0.0


def files(client, run, path=None):
    found = {}
    for item in client.list_artifacts(run, path):
        if item.is_dir:
            found |= files(client, run, item.path)
        else:
            # Of an empty file the size is not told.
            found[item.path] = item.file_size or 0
    return found


def same(left, right):
    assert left.keys() == right.keys()
    for kind in left:
        assert left[kind].keys() == right[kind].keys(), kind
        for name in left[kind]:
            assert left[kind][name] == right[kind][name], f"{kind} {name}"


@pytest.fixture(scope="module", params=["files", "sqlite", "postgres"])
def store(request, tmp_path_factory):
    """A store of each kind, filled: its address for MLflow."""
    folder = tmp_path_factory.mktemp(f"store-{request.param}")
    if request.param == "files":
        uri, artifacts = f"file://{folder}/mlruns", None
    elif request.param == "sqlite":
        uri, artifacts = f"sqlite:///{folder}/mlflow.db", f"file://{folder}/mlartifacts/some where"
    else:
        if "FALAJ_TEST_POSTGRES_URL" not in os.environ:
            pytest.skip("FALAJ_TEST_POSTGRES_URL is not set: scripts/with-services sets it")
        database = f"mlflow_{uuid.uuid4().hex}"
        psql(f"CREATE DATABASE {database}")
        base = os.environ["FALAJ_TEST_POSTGRES_URL"].partition("?")[0].rsplit("/", 1)[0]
        uri = f"{base.replace('postgres://', 'postgresql+psycopg2://')}/{database}"
        artifacts = f"file://{folder}/files"
        ROOTS[uri] = ["--allow-root", folder]
    fill(uri, artifacts)
    return uri


@pytest.fixture(scope="module")
def moved(falaj, store):
    """The project that the store was imported into, and what the import said."""
    name = project(falaj)
    would = counts(run(falaj, "import", "mlflow", store, *ROOTS.get(store, []), "-p", name, "--dry-run", "-o", "json"))
    assert client_of(falaj, name).search_registered_models() == [], "a dry run changed something"
    return name, would, counts(run(falaj, "import", "mlflow", store, *ROOTS.get(store, []), "-p", name, "-o", "json"))


def test_everything_comes_over(falaj, store, moved):
    name, would, done = moved
    assert would["runs"][0] == 5 and would["artifact files"][0] > 8
    assert {kind: found for kind, (found, _) in done.items()} == {kind: found for kind, (found, _) in would.items()}
    assert done["metric points"] == (709, 709)
    assert done["traces"] == ((0, 0) if store.startswith("file:") else (2, 2))
    here = client_of(falaj, name)
    there = everything(MlflowClient(store, store))
    if store.startswith("file:"):
        # MLflow itself no longer finds the files of a deleted experiment, which lie in its bin; we do.
        # And it reads the step of a metric on a dataset as 0, whatever its file says.
        for run_ in there["runs"].values():
            if run_["info"][0] == "gone":
                run_["files"] = {"d.txt": 1}
            if "acc" in run_["history"]:
                run_["history"]["acc"] = [(time_, 1, value) for time_, _, value in run_["history"]["acc"]]
    same(there, everything(here))
    # What was registered can be loaded, from where it is now.
    mlflow.set_tracking_uri(f"{falaj.url}/t/default/{name}")
    mlflow.set_registry_uri(f"{falaj.url}/t/default/{name}")
    assert mlflow.sklearn.load_model("models:/reg one@champion").coef_.shape == (1,)
    got = mlflow.artifacts.download_artifacts("models:/old way/1")
    assert (pathlib.Path(got) / "weights.txt").read_text() == "weights"
    # A version that came is as good as one that was registered here.
    run(falaj, "model", "verify", "reg one", "1", "-p", name)
    # Another time there is nothing to do.
    again = counts(run(falaj, "import", "mlflow", store, *ROOTS.get(store, []), "-p", name, "-o", "json"))
    assert all(sent == 0 for _, sent in again.values()), again


@pytest.mark.parametrize("store", ["sqlite"], indirect=True, scope="module")
def test_names_that_are_taken(falaj, store, moved):
    name = project(falaj)
    here = client_of(falaj, name)
    here.create_experiment("vision")
    refused = run(falaj, "import", "mlflow", store, *ROOTS.get(store, []), "-p", name, check=False)
    assert refused.returncode == 1, refused.stderr
    assert "left out: the experiment vision and its 4 runs" in refused.stderr, refused.stderr
    assert "another experiment named 'vision'" in refused.stderr and "--prefix" in refused.stderr
    # Ids are unique on a server: what is here already cannot come a second time.
    name = project(falaj)
    taken = run(falaj, "import", "mlflow", store, *ROOTS.get(store, []), "-p", name, "--prefix", "old/", check=False)
    assert taken.returncode == 1 and taken.stderr.count(" is taken") == 6, taken.stderr
    assert client_of(falaj, name).get_experiment_by_name("old/vision"), "what is not taken comes"


def test_what_is_refused_keeps_nothing_else_away(falaj, tmp_path):
    name = project(falaj)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    there, here = MlflowClient(uri, uri), client_of(falaj, name)
    runs = {}
    for kind in ("first", "taken", "last"):
        id_ = there.create_experiment(kind, artifact_location=f"file://{tmp_path}/{'away' if kind == 'first' else 'mlruns'}/{kind}")
        runs[kind] = there.create_run(id_).info.run_id
        there.log_metric(runs[kind], "m", 1.0)
        there.log_text(runs[kind], "text", "model/x.txt")
        there.create_registered_model(f"{kind} model")
        there.create_model_version(f"{kind} model", f"{there.get_run(runs[kind]).info.artifact_uri}/model", runs[kind])
    there.set_registered_model_alias("last model", "champion", "1")
    there.set_registered_model_alias("first model", "champion", "1")
    there.create_registered_model("mine")
    there.create_model_version("mine", f"runs:/{runs['last']}/model", runs["last"])
    taken = here.create_experiment("taken")
    here.create_registered_model("mine")

    def brought(*more):
        done = run(falaj, "import", "mlflow", uri, "-p", name, "-o", "json", *more, check=False)
        return done, json.loads(done.stdout)["left_out"]

    done, left_out = brought()
    assert done.returncode == 1 and "things were refused" in done.stderr, done.stderr
    said = "\n".join(left_out)
    assert "the experiment taken and its 1 runs: " in said, said
    assert f"the files of run {runs['first']} are at {tmp_path}/away" in said and "--allow-root" in said, said
    assert "version 1 of first model: its files did not all come" in said, said
    assert f"version 1 of taken model: its run {runs['taken']} did not come" in said, said
    assert "the registered model mine: " in said, said
    # All else is there, and whole.
    for kind in ("first", "last"):
        assert here.get_run(runs[kind]).data.metrics == {"m": 1.0}
    assert here.list_artifacts(runs["first"]) == []
    assert files(here, runs["last"]) == {"model/x.txt": 4}
    assert int(here.get_model_version_by_alias("last model", "champion").version) == 1
    for kind in ("first", "taken"):
        assert here.search_model_versions(f"name = '{kind} model'") == []
    run(falaj, "model", "verify", "last model", "1", "-p", name)
    with pytest.raises(mlflow.MlflowException, match="not found"):
        here.get_run(runs["taken"])
    # A dry run says what would be refused.
    would, _ = brought("--dry-run", "--prefix", "x/")
    assert would.returncode == 1, would.stderr
    # When nothing is in the way any more, the rest comes.
    here.rename_experiment(taken, "other")
    here.rename_registered_model("mine", "ours")
    done, left_out = brought("--allow-root", tmp_path / "away")
    assert done.returncode == 0, done.stderr
    assert files(here, runs["first"]) == {"model/x.txt": 4}
    assert here.get_model_version_by_alias("first model", "champion").run_id == runs["first"]
    assert here.get_run(runs["taken"]).data.metrics == {"m": 1.0}


@pytest.mark.parametrize("store", ["postgres"], indirect=True, scope="module")
def test_files_of_a_database_far_away(falaj, store):
    refused = run(falaj, "import", "mlflow", store, "-p", project(falaj), "--dry-run", check=False)
    assert refused.returncode == 1 and "--allow-root" in refused.stderr, refused.stderr


def test_a_store_is_not_trusted(falaj, tmp_path):
    """It names folders, and holds links, that lead out of it."""
    import sqlite3
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("hidden")
    folder = tmp_path / "store"
    (folder / "mlruns" / "run").mkdir(parents=True)
    uri = f"sqlite:///{folder}/mlflow.db"
    client = MlflowClient(uri, uri)
    id_ = client.create_run(client.create_experiment("e", artifact_location=f"file://{folder}/mlruns")).info.run_id
    database = sqlite3.connect(folder / "mlflow.db")

    def anew():
        """Ids are unique on a server: the next one is another run."""
        nonlocal id_
        id_ = uuid.uuid4().hex
        database.execute("update runs set run_uuid = ?", (id_,))

    def brought(place, *more):
        database.execute("update runs set artifact_uri = ?", (f"file://{place}",))
        database.commit()
        name = project(falaj)
        return name, run(falaj, "import", "mlflow", uri, "-p", name, *more, check=False)

    (folder / "link").symlink_to(secret)
    (folder / ".hidden").mkdir()
    (folder / "elsewhere").mkdir()
    # All that lies around the database, or in a folder of its own, is no run's.
    for place in (folder, folder / "mlruns", folder / "elsewhere", secret, folder / "link", folder / "mlruns" / ".." / ".." / "secret", folder / ".hidden", "/etc"):
        name, refused = brought(place)
        assert refused.returncode == 1, f"{place}: {refused.stderr}"
        assert f"the files of run {id_}" in refused.stderr and "--allow-root" in refused.stderr, refused.stderr
        assert files(client_of(falaj, name), id_) == {}
        anew()
    # A link inside is no file of the run.
    (folder / "mlruns" / "run" / "key").symlink_to(secret / "key")
    (folder / "mlruns" / "run" / "more").symlink_to(secret)
    (folder / "mlruns" / "run" / "own.txt").write_text("own")
    (folder / "mlruns" / "run" / ".env").write_text("hidden")
    (folder / "mlruns" / "run" / ".git").mkdir()
    (folder / "mlruns" / "run" / ".git" / "config").write_text("hidden")
    (folder / "mlruns" / "run" / ".trash").mkdir()
    name, done = brought(folder / "mlruns" / "run")
    assert done.returncode == 0, done.stderr
    # What is hidden was logged like the rest; a store's bin was not.
    assert files(client_of(falaj, name), id_) == {"own.txt": 3, ".env": 6, ".git/config": 6}
    assert "1 hidden files and folders" in done.stderr, done.stderr
    anew()
    # In a folder that holds other things as well, what is hidden is nobody's artifact.
    (secret / ".ssh").mkdir()
    (secret / ".ssh" / "id").write_text("hidden")
    name, done = brought(secret, "--allow-root", tmp_path / "secret")
    assert done.returncode == 0, done.stderr
    assert files(client_of(falaj, name), id_) == {"key": 6}


@pytest.mark.parametrize("store", ["sqlite"], indirect=True, scope="module")
def test_only_operators_import(falaj, store):
    name = project(falaj)
    run(falaj, "service-account", "create", name, "--tenant", "default")
    run(falaj, "role", "grant", name, "contributor", "--tenant", "default", "--project", name)
    made = run(falaj, "token", "create", "--owner", name, "--role", "contributor", "-t", "default", "-p", name, "-o", "json")
    token = json.loads(made.stdout)["secret"]
    done = subprocess.run([binary(), "import", "mlflow", store, "-p", name], capture_output=True, text=True,
                          env=environment(FALAJ_URL=falaj.url, FALAJ_TOKEN=token), timeout=120)
    assert done.returncode == 4, done.stderr


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A store with many points, made by hand: MLflow itself takes minutes for it."""
    import sqlite3
    folder = tmp_path_factory.mktemp("large")
    uri = f"sqlite:///{folder}/mlflow.db"
    experiment = MlflowClient(uri, uri).create_experiment("large", artifact_location=f"file://{folder}/mlruns/a")
    database = sqlite3.connect(folder / "mlflow.db")
    random.seed(3)
    for at in range(200):
        id_ = uuid.UUID(int=random.getrandbits(128)).hex
        (folder / "mlruns" / "a" / id_ / "artifacts").mkdir(parents=True)
        (folder / "mlruns" / "a" / id_ / "artifacts" / "x.bin").write_bytes(random.randbytes(1000))
        database.execute(
            "insert into runs (run_uuid, name, source_type, user_id, status, start_time, end_time, lifecycle_stage,"
            " artifact_uri, experiment_id) values (?, ?, 'LOCAL', 'u', 'FINISHED', ?, ?, 'active', ?, ?)",
            (id_, f"run {at}", at, at + 1, f"file://{folder}/mlruns/a/{id_}/artifacts", experiment))
        database.executemany("insert into metrics (key, value, timestamp, run_uuid, step, is_nan) values (?, ?, ?, ?, ?, 0)",
                             [(f"m{i % 5}", random.random(), i, id_, i) for i in range(1000)])
        database.executemany("insert into params values (?, ?, ?)", [(f"p{i}", str(i * at), id_) for i in range(10)])
    database.commit()
    return uri


def test_an_import_that_is_killed_goes_on(falaj, large):
    name = project(falaj)
    here = client_of(falaj, name)
    command = [binary(), "import", "mlflow", large, "-p", name]
    env = environment(FALAJ_URL=falaj.url, FALAJ_TOKEN=falaj.token)
    for runs in (1, 101):
        process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            found = here.get_experiment_by_name("large")
            if found and len(here.search_runs([found.experiment_id], max_results=200)) >= runs:
                break
        process.kill()
        process.wait()
    done = run(falaj, "import", "mlflow", large, "-p", name, "-o", "json")
    assert counts(done)["metric points"][0] == 200_000
    assert counts(done)["runs"][1] <= 200
    again = counts(run(falaj, "import", "mlflow", large, "-p", name, "-o", "json"))
    assert all(moved == 0 for _, moved in again.values()), again
    experiment = here.get_experiment_by_name("large").experiment_id
    assert len(here.search_runs([experiment], max_results=1000)) == 200


def test_a_run_with_more_points_than_are_held_at_once(falaj, tmp_path):
    import sqlite3
    name, uri = project(falaj), f"sqlite:///{tmp_path}/mlflow.db"
    there, here = MlflowClient(uri, uri), client_of(falaj, name)
    id_ = there.create_run(there.create_experiment("long", artifact_location=f"file://{tmp_path}/mlruns")).info.run_id
    database = sqlite3.connect(tmp_path / "mlflow.db")
    add = "insert into metrics (key, value, timestamp, run_uuid, step, is_nan) values (?, ?, ?, ?, ?, 0)"
    lengths = {"a": 10, "b": 520_000, "c": 30_000}
    for key, length in lengths.items():
        # Not in order, so that they must be sorted.
        database.executemany(add, ((key, i / 7, i * 7919 % length, id_, i * 7919 % length) for i in range(length)))
    database.commit()
    done = counts(run(falaj, "import", "mlflow", uri, "-p", name, "-o", "json"))
    assert done["metric points"] == (550_010, 550_010)
    database.execute(add, ("c", 1.0, 30_000, id_, 30_000))
    database.commit()
    done = counts(run(falaj, "import", "mlflow", uri, "-p", name, "-o", "json"))
    assert done["metric points"] == (550_011, 1), "only what is new is sent"
    assert here.get_run(id_).data.metrics["c"] == 1.0
    out = tmp_path / "out"
    assert counts(run(falaj, "export", "mlflow", out, "-p", name, "-o", "json"))["metric points"] == (550_011, 550_011)
    written = sqlite3.connect(out / "mlflow.db").execute("select key, count(*) from metrics group by key order by key")
    assert dict(written) == lengths | {"c": 30_001}


@pytest.mark.parametrize("store", ["sqlite"], indirect=True, scope="module")
def test_there_and_back(falaj, moved, tmp_path):
    """What is exported is what is there, to a stock MLflow server."""
    name, out = moved[0], tmp_path / "out"
    done = counts(run(falaj, "export", "mlflow", out, "-p", name, "-o", "json"))
    assert done["metric points"] == (709, 709) and done["traces"] == (2, 2)
    again = counts(run(falaj, "export", "mlflow", out, "-p", name, "-o", "json"))
    assert again["runs"][1] == 0 and again["artifact files"][1] == 0, again
    served = Original(tmp_path)
    os.rename(out / "mlflow.db", tmp_path / "mlflow.db")
    os.rename(out / "artifacts", tmp_path / "artifacts")
    served.begin().await_ready()
    try:
        there = MlflowClient(served.url, served.url)
        same(everything(client_of(falaj, name)), everything(there))
        mlflow.set_tracking_uri(served.url)
        mlflow.set_registry_uri(served.url)
        assert mlflow.sklearn.load_model("models:/reg one@champion").coef_.shape == (1,)
        # And it goes on from there.
        assert int(there.create_model_version("reg one", "s3://b/x").version) == 4
        there.log_metric(there.create_run(there.create_experiment("new")).info.run_id, "m", 1.0)
    finally:
        served.stop()
