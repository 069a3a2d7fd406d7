"""Runs: their life, parameters, tags, batches, and what is refused."""

from recorder import scenario

UNKNOWN = "0123456789abcdef0123456789abcdef"


@scenario
def life(s):
    experiment = s.experiment()
    created = s.post("runs/create", {
        "experiment_id": experiment, "user_id": "ada", "run_name": "first", "start_time": 1234,
        "tags": [{"key": "mlflow.user", "value": "ada"}, {"key": "mlflow.source.name", "value": "train.py"},
                 {"key": "mlflow.source.type", "value": "LOCAL"}, {"key": "mlflow.source.git.commit", "value": "abc"},
                 {"key": "mlflow.parentRunId", "value": "p"}]})
    run = created["run"]["info"]["run_id"]
    s.get("runs/get", {"run_id": run})
    s.get("runs/get", {"run_uuid": run}, "by its old name")
    s.post("runs/update", {"run_id": run, "status": "FINISHED", "end_time": 4321, "run_name": "renamed"})
    s.get("runs/get", {"run_id": run}, "finished")
    s.post("runs/update", {"run_uuid": run, "status": "RUNNING"}, "by its old name")
    s.get("runs/get", {"run_id": run}, "running again")
    s.post("runs/update", {"run_id": run, "run_name": ""}, "empty name")
    s.post("runs/update", {"run_id": run}, "nothing")
    for status in ("SCHEDULED", "FAILED", "KILLED"):
        s.post("runs/update", {"run_id": run, "status": status, "end_time": 5000}, status)
    scratch = s.start(experiment)
    for status in ("finished", "BOGUS", 3, "3", None):
        s.post("runs/update", {"run_id": scratch, "status": status}, f"status {status!r}")
    s.post("runs/delete", {"run_id": run})
    s.get("runs/get", {"run_id": run}, "deleted")
    s.post("runs/delete", {"run_id": run}, "again")
    s.post("runs/restore", {"run_id": run})
    s.post("runs/restore", {"run_id": run}, "again")
    s.get("runs/get", {"run_id": run}, "restored")


@scenario
def create_without(s):
    """What a run gets when the caller leaves things out."""
    experiment = s.experiment()
    s.post("runs/create", {"experiment_id": experiment}, "nothing")
    s.post("runs/create", {"experiment_id": experiment, "run_name": ""}, "empty name")
    s.post("runs/create", {"experiment_id": experiment, "tags": [{"key": "mlflow.runName", "value": "by tag"}]}, "name by tag")
    s.post("runs/create", {"experiment_id": experiment, "run_name": "both", "tags": [{"key": "mlflow.runName", "value": "both"}]}, "same name twice")
    s.post("runs/create", {"experiment_id": experiment, "run_name": "a", "tags": [{"key": "mlflow.runName", "value": "b"}]}, "two names")
    s.post("runs/create", {"experiment_id": experiment, "start_time": "77", "run_name": "r"}, "time as text")
    s.post("runs/create", {"experiment_id": 0, "run_name": "r"}, "number as experiment")


@scenario
def create_refusals(s):
    experiment = s.experiment()
    for label, body in {
        "unknown experiment": {"experiment_id": "987654321"}, "not a number": {"experiment_id": "abc"},
        "number as user": {"experiment_id": experiment, "user_id": 5}, "text as time": {"experiment_id": experiment, "start_time": "soon"},
        "text as tags": {"experiment_id": experiment, "tags": "x"}, "bad tag key": {"experiment_id": experiment, "tags": [{"key": "a//b", "value": "1"}]},
        "long tag key": {"experiment_id": experiment, "tags": [{"key": "k" * 251, "value": "1"}]},
        "number as name": {"experiment_id": experiment, "run_name": 5},
    }.items():
        s.post("runs/create", body, label)


@scenario
def lookups_that_fail(s):
    for label, run in {"unknown": UNKNOWN, "short": "abc", "empty": "", "traversal": "../../etc", "odd": "a b", "quote": "x' OR '1'='1",
                       "long": "a" * 300}.items():
        s.get("runs/get", {"run_id": run}, label)
        s.post("runs/update", {"run_id": run, "status": "FINISHED"}, label)
        s.post("runs/delete", {"run_id": run}, label)
        s.post("runs/restore", {"run_id": run}, label)
        s.post("runs/log-metric", {"run_id": run, "key": "m", "value": 1, "timestamp": 1}, label)
        s.post("runs/log-parameter", {"run_id": run, "key": "p", "value": "1"}, label)
        s.post("runs/set-tag", {"run_id": run, "key": "t", "value": "1"}, label)
        s.post("runs/log-batch", {"run_id": run}, label)
    s.get("runs/get", None, "no run")
    for verb in ("update", "delete", "restore", "log-batch", "log-inputs"):
        s.post(f"runs/{verb}", {}, "no run")


@scenario
def params(s):
    run = s.start(s.experiment())
    log = "runs/log-parameter"
    s.post(log, {"run_id": run, "key": "lr", "value": "0.1"})
    s.post(log, {"run_id": run, "key": "lr", "value": "0.1"}, "same again")
    s.post(log, {"run_id": run, "key": "lr", "value": "0.2"}, "changed")
    s.post(log, {"run_uuid": run, "key": "old", "value": "x"}, "by the run's old name")
    s.post(log, {"run_id": run, "key": "empty", "value": ""}, "empty value")
    s.post(log, {"run_id": run, "key": "none"}, "no value")
    s.post(log, {"run_id": run, "key": "awkward", "value": "a\nb\té 🧪 'q' \"d\""}, "awkward value")
    s.post(log, {"run_id": run, "key": "longest", "value": "v" * 6000}, "longest value")
    s.post(log, {"run_id": run, "key": "too long", "value": "v" * 6001}, "long value")
    for label, body in {
        "no key": {"value": "1"}, "empty key": {"key": "", "value": "1"}, "number as key": {"key": 1, "value": "1"},
        "number as value": {"key": "k", "value": 1}, "long key": {"key": "k" * 251, "value": "1"}, "longest key": {"key": "k" * 250, "value": "1"},
        "slashes": {"key": "a/b/c", "value": "1"}, "double slash": {"key": "a//b", "value": "1"}, "leading slash": {"key": "/a", "value": "1"},
        "climbing": {"key": "a/../b", "value": "1"}, "dot": {"key": ".", "value": "1"}, "dots": {"key": "..", "value": "1"},
        "star": {"key": "a*", "value": "1"}, "unicode": {"key": "clé", "value": "1"}, "space colon": {"key": "a b:c", "value": "1"},
        "quote": {"key": "it's", "value": "1"}, "newline": {"key": "a\nb", "value": "1"},
    }.items():
        s.post(log, {"run_id": run} | body, label)
    s.get("runs/get", {"run_id": run})


@scenario
def tags(s):
    run = s.start(s.experiment())
    s.post("runs/set-tag", {"run_id": run, "key": "a", "value": "1"})
    s.post("runs/set-tag", {"run_id": run, "key": "a", "value": "2"}, "again")
    s.post("runs/set-tag", {"run_uuid": run, "key": "old", "value": "x"}, "by the run's old name")
    s.post("runs/set-tag", {"run_id": run, "key": "mlflow.runName", "value": "by tag"}, "name")
    s.get("runs/get", {"run_id": run}, "named by tag")
    s.post("runs/update", {"run_id": run, "run_name": "by update"})
    s.get("runs/get", {"run_id": run}, "named by update")
    for label, body in {"no key": {"value": "1"}, "no value": {"key": "k"}, "empty value": {"key": "e", "value": ""},
                        "number as value": {"key": "k", "value": 1}, "longest value": {"key": "l", "value": "v" * 8000},
                        "long value": {"key": "l", "value": "v" * 8001}, "long key": {"key": "k" * 251, "value": "v"},
                        "bad key": {"key": "a//b", "value": "v"}, "empty name": {"key": "mlflow.runName", "value": ""}}.items():
        s.post("runs/set-tag", {"run_id": run} | body, label)
    s.post("runs/delete-tag", {"run_id": run, "key": "a"})
    s.post("runs/delete-tag", {"run_id": run, "key": "a"}, "again")
    s.post("runs/delete-tag", {"run_id": run}, "no key")
    s.post("runs/delete-tag", {"run_id": UNKNOWN, "key": "a"}, "unknown run")
    s.get("runs/get", {"run_id": run})


@scenario
def batches(s):
    run = s.start(s.experiment())
    log = "runs/log-batch"

    def metric(key, value, timestamp=1, step=0):
        return {"key": key, "value": value, "timestamp": timestamp, "step": step}

    s.post(log, {"run_id": run, "metrics": [metric("a", 1), metric("a", 2, 2, 1), metric("b", 0.5)],
                 "params": [{"key": "p", "value": "1"}, {"key": "q", "value": "2"}], "tags": [{"key": "t", "value": "x"}]})
    s.get("runs/get", {"run_id": run}, "first")
    s.post(log, {"run_id": run}, "nothing")
    s.post(log, {"run_id": run, "metrics": [], "params": [], "tags": []}, "empty lists")
    s.post(log, {"run_id": run, "params": [{"key": "p", "value": "1"}]}, "same param")
    s.post(log, {"run_id": run, "params": [{"key": "p", "value": "9"}], "metrics": [metric("conflict", 1)],
                 "tags": [{"key": "conflict", "value": "1"}]}, "changed param")
    s.get("runs/get", {"run_id": run}, "after a conflict")
    s.post(log, {"run_id": run, "params": [{"key": "d", "value": "1"}, {"key": "d", "value": "2"}]}, "param twice")
    s.post(log, {"run_id": run, "params": [{"key": "d", "value": "1"}, {"key": "d", "value": "1"}]}, "same param twice")
    s.post(log, {"run_id": run, "tags": [{"key": "d", "value": "1"}, {"key": "d", "value": "2"}]}, "tag twice")
    s.post(log, {"run_id": run, "metrics": [metric("ok", 1), metric("a//b", 1)]}, "bad metric key")
    s.post(log, {"run_id": run, "metrics": [{"key": "ok", "value": 1}]}, "metric without time")
    s.post(log, {"run_id": run, "metrics": [{"key": "ok", "timestamp": 1}]}, "metric without value")
    scratch = s.start(s.experiment("scratch"))
    s.post(log, {"run_id": scratch, "metrics": [metric("ok", "x")]}, "text as value")
    s.post(log, {"run_id": run, "metrics": [{"value": 1, "timestamp": 1}]}, "metric without key")
    s.post(log, {"run_id": run, "params": [{"value": "1"}]}, "param without key")
    s.post(log, {"run_id": run, "metrics": "x"}, "text as metrics")
    s.post(log, {"run_id": run, "metrics": {"key": "a"}}, "object as metrics")
    s.post(log, {"run_id": run, "metrics": [1]}, "number as metric")
    s.post(log, {"run_id": run, "tags": [{"key": "mlflow.runName", "value": "batched"}]}, "name")
    s.get("runs/get", {"run_id": run}, "second")


@scenario
def batch_limits(s):
    run = s.start(s.experiment())
    metrics = [{"key": f"m{n}", "value": n, "timestamp": 1, "step": 0} for n in range(1001)]
    params = [{"key": f"p{n}", "value": "v"} for n in range(101)]
    tags = [{"key": f"t{n}", "value": "v"} for n in range(101)]
    s.post("runs/log-batch", {"run_id": run, "metrics": metrics}, "1001 metrics")
    s.post("runs/log-batch", {"run_id": run, "params": params}, "101 params")
    s.post("runs/log-batch", {"run_id": run, "tags": tags}, "101 tags")
    s.post("runs/log-batch", {"run_id": run, "metrics": metrics[:900], "params": params[:51], "tags": tags[:50]}, "1001 in all")
    s.post("runs/log-batch", {"run_id": run, "metrics": metrics[:850], "params": params[:100], "tags": tags[:50]}, "1000 in all")
    s.post("runs/log-batch", {"run_id": run, "params": [{"key": "long", "value": "v" * 6001}]}, "long param")
    s.post("runs/log-batch", {"run_id": run, "params": [{"key": "k" * 251, "value": "v"}]}, "long param key")
    s.post("runs/log-batch", {"run_id": run, "metrics": [{"key": "k" * 251, "value": 1, "timestamp": 1, "step": 0}]}, "long metric key")
    s.post("runs/log-batch", {"run_id": run, "tags": [{"key": "k", "value": "v" * 8001}]}, "long tag")
    s.get("runs/get", {"run_id": run})


@scenario
def writing_to_a_deleted_run(s):
    run = s.start(s.experiment())
    s.post("runs/delete", {"run_id": run})
    s.post("runs/log-metric", {"run_id": run, "key": "m", "value": 1, "timestamp": 1})
    s.post("runs/log-parameter", {"run_id": run, "key": "p", "value": "1"})
    s.post("runs/set-tag", {"run_id": run, "key": "t", "value": "1"})
    s.post("runs/delete-tag", {"run_id": run, "key": "mlflow.runName"})
    s.post("runs/log-batch", {"run_id": run, "tags": [{"key": "t", "value": "1"}]})
    s.post("runs/log-batch", {"run_id": run}, "nothing")
    s.post("runs/update", {"run_id": run, "status": "FINISHED"})
    s.post("runs/log-inputs", {"run_id": run, "datasets": []})
    s.get("runs/get", {"run_id": run})
    s.get("metrics/get-history", {"run_id": run, "metric_key": "m"})


@scenario
def log_model(s):
    run = s.start(s.experiment())
    model = '{"run_id": "%s", "artifact_path": "model", "flavors": {"python_function": {"loader_module": "x"}}, "utc_time_created": "2026-01-01", "model_uuid": "u"}'
    s.post("runs/log-model", {"run_id": run, "model_json": model % run})
    s.post("runs/log-model", {"run_id": run, "model_json": model % run}, "second")
    s.post("runs/log-model", {"run_id": run, "model_json": "not json"}, "not JSON")
    s.post("runs/log-model", {"run_id": run, "model_json": "{}"}, "empty")
    s.post("runs/log-model", {"run_id": run, "model_json": 5}, "number")
    s.post("runs/log-model", {"run_id": run}, "nothing")
    s.post("runs/log-model", {"run_id": UNKNOWN, "model_json": "{}"}, "unknown run")
    s.get("runs/get", {"run_id": run})


@scenario
def batch_refusals(s):
    """A refusal says which entry of which list it is about, also where there is only one."""
    run = s.start(s.experiment())
    metric = {"key": "m", "value": 1, "timestamp": 1}
    for label, body in {
        "one metric": {"metrics": [metric | {"key": "../m"}]},
        "second metric": {"metrics": [metric, metric | {"key": "a//b"}]},
        "time of a metric": {"metrics": [metric | {"timestamp": -1}]},
        "one param": {"params": [{"key": "../p", "value": "v"}]},
        "second param": {"params": [{"key": "p", "value": "v"}, {"key": "p*", "value": "v"}]},
        "one tag": {"tags": [{"key": "../t", "value": "v"}]},
        "second tag": {"tags": [{"key": "t", "value": "v"}, {"key": "t*", "value": "v"}]},
    }.items():
        s.post("runs/log-batch", {"run_id": run} | body, label)
    s.post("runs/log-parameter", {"run_id": run, "key": "../p", "value": "v"}, "alone")
    s.post("runs/set-tag", {"run_id": run, "key": "../t", "value": "v"}, "alone")
    s.get("runs/get", {"run_id": run})
