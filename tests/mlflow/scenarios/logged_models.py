"""Logged models: created pending, filled, finalised, searched, deleted."""

from recorder import scenario

UNKNOWN = "m-" + "0" * 32


@scenario
def life(s):
    experiment = s.experiment()
    run = s.start(experiment)
    created = s.post("logged-models", {"experiment_id": experiment, "name": "forest", "model_type": "sklearn", "source_run_id": run,
                                       "params": [{"key": "depth", "value": "3"}], "tags": [{"key": "team", "value": "vision"}]})
    model = created["model"]["info"]["model_id"]
    path = f"logged-models/{model}"
    s.send("GET", path, "created")
    own = {"model_id": model}  # as the stock client sends it, beside the path
    s.post(f"{path}/params", own | {"params": [{"key": "trees", "value": "10"}, {"key": "empty", "value": ""}]})
    s.post(f"{path}/params", own | {"params": [{"key": "trees", "value": "10"}]}, "same again")
    s.post(f"{path}/params", own | {"params": [{"key": "trees", "value": "11"}]}, "changed")
    s.post(f"{path}/params", own, "nothing")
    s.post(f"{path}/params", {"params": [{"key": "trees", "value": "10"}]}, "id in the path alone")
    s.patch(f"{path}/tags", {"tags": [{"key": "team", "value": "speech"}, {"key": "path/key", "value": "1"}]})
    s.patch(f"{path}/tags", {}, "nothing")
    s.patch(path, own | {"status": "LOGGED_MODEL_READY"})
    s.patch(path, own | {"status": "LOGGED_MODEL_UPLOAD_FAILED"}, "failed")
    s.patch(path, own | {"status": "BOGUS"}, "bogus status")
    s.patch(path, {"status": "LOGGED_MODEL_READY", "model_id": model}, "ready")
    s.delete(f"{path}/tags/team")
    s.delete(f"{path}/tags/team", label="again")
    s.send("GET", path, "changed")
    s.send("GET", f"{path}/artifacts/directories", "empty")
    s.post(f"{path}/params", own | {"params": [{"key": "a//b", "value": "11"}]}, "bad key")
    s.patch(f"{path}/tags", {"tags": [{"key": "k" * 251, "value": "1"}]}, "long key")
    s.delete(path)
    s.send("GET", path, "deleted")
    s.delete(path, label="again")
    s.patch(path, own | {"status": "LOGGED_MODEL_READY"}, "deleted")


@scenario
def create(s):
    experiment = s.experiment()
    for label, body in {
        "only experiment": {"experiment_id": experiment}, "empty name": {"experiment_id": experiment, "name": ""}, "no experiment": {"name": "x"},
        "unknown experiment": {"experiment_id": "987654321", "name": "x"}, "slash in name": {"experiment_id": experiment, "name": "a/b"},
        "colon in name": {"experiment_id": experiment, "name": "a:b"}, "number as name": {"experiment_id": experiment, "name": 5},
        "dot in name": {"experiment_id": experiment, "name": "a.b"}, "percent in name": {"experiment_id": experiment, "name": "a%b"}, "quote in name": {"experiment_id": experiment, "name": "it's"},
        "long param": {"experiment_id": experiment, "name": "x", "params": [{"key": "a", "value": "1" * 6001}]},
        "long name": {"experiment_id": experiment, "name": "n" * 501}, "unknown run": {"experiment_id": experiment, "name": "x", "source_run_id": "f" * 32},
        "number as params": {"experiment_id": experiment, "name": "x", "params": 5}, "param twice": {"experiment_id": experiment, "name": "x", "params": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]},
    }.items():
        step = s.post("logged-models", body, label)
        if step.status == 200 and not body.get("name"):
            step.body["model"]["info"]["name"] = "<random>"
    s.send("GET", f"logged-models/{UNKNOWN}", "unknown")
    s.patch(f"logged-models/{UNKNOWN}", {"model_id": UNKNOWN, "status": "LOGGED_MODEL_READY"}, "unknown")
    s.delete(f"logged-models/{UNKNOWN}", label="unknown")
    s.patch(f"logged-models/{UNKNOWN}/tags", {"tags": [{"key": "a", "value": "b"}]}, "unknown")
    s.post(f"logged-models/{UNKNOWN}/params", {"model_id": UNKNOWN, "params": [{"key": "a", "value": "b"}]}, "unknown")
    s.delete(f"logged-models/{UNKNOWN}/tags/a", label="unknown")
    s.send("GET", f"logged-models/{UNKNOWN}/artifacts/directories", "unknown")


@scenario
def metrics(s):
    """A metric with a model id belongs to the run and to the model."""
    experiment = s.experiment()
    run = s.start(experiment)
    model = s.post("logged-models", {"experiment_id": experiment, "name": "m", "source_run_id": run})["model"]["info"]["model_id"]
    s.post("runs/log-metric", {"run_id": run, "key": "acc", "value": 0.5, "timestamp": 10, "step": 1, "model_id": model})
    s.post("runs/log-metric", {"run_id": run, "key": "acc", "value": 0.7, "timestamp": 20, "step": 2, "model_id": model, "dataset_name": "test", "dataset_digest": "d1"}, "with dataset")
    s.post("runs/log-batch", {"run_id": run, "metrics": [{"key": "f1", "value": 0.6, "timestamp": 5, "step": 0, "model_id": model}]})
    s.post("runs/log-metric", {"run_id": run, "key": "acc", "value": 0.1, "timestamp": 30, "step": 3, "model_id": UNKNOWN}, "unknown model")
    s.get("runs/get", {"run_id": run})
    found = s.send("GET", f"logged-models/{model}")
    found.get("model", {}).get("data", {}).get("metrics", []).sort(key=lambda m: (m["key"], m["step"]))
    s.get("metrics/get-history", {"run_id": run, "metric_key": "acc"})


MODELS = {  # name: (type, params, tags, metrics)
    "alpha": ("sklearn", {"lr": "0.1"}, {"team": "vision"}, [("acc", 0.9, "train", "d1"), ("acc", 0.5, "test", "d2")]),
    "beta": ("torch", {"lr": "0.2"}, {"team": "Speech"}, [("acc", 0.7, None, None)]),
    "gamma": (None, {}, {}, []),
    "delta": ("sklearn", {"lr": "0.1"}, {}, [("acc", "NaN", None, None), ("loss", 3, None, None)]),
}


def population(s):
    experiment = s.experiment()
    run = s.start(experiment)
    for name, (kind, params, tags, metrics) in MODELS.items():
        body = {"experiment_id": experiment, "name": name, "source_run_id": run, "params": [{"key": k, "value": v} for k, v in params.items()],
                "tags": [{"key": k, "value": v} for k, v in tags.items()]} | ({"model_type": kind} if kind else {})
        model = s.post("logged-models", body, name)["model"]["info"]["model_id"]
        for index, (key, value, dataset, digest) in enumerate(metrics):
            s.post("runs/log-metric", {"run_id": run, "key": key, "value": value, "timestamp": 1, "step": index, "model_id": model} | (
                {"dataset_name": dataset, "dataset_digest": digest} if dataset else {}), name)
        if name != "gamma":
            s.patch(f"logged-models/{model}", {"model_id": model, "status": "LOGGED_MODEL_READY"}, name)
        s.tick()
    return experiment


def names(step):
    if step.status == 200:
        step.body = {"found": [model["info"]["name"] for model in step.get("models", [])]} | (
            {"next_page_token": step.body["next_page_token"]} if "next_page_token" in step.body else {})
    return step


@scenario
def search(s):
    experiment = population(s)
    for filter in ["", "name = 'alpha'", "name != 'alpha'", "name LIKE 'a%'", "name ILIKE 'A%'", "name LIKE 'A%'", "attributes.name = 'beta'",
                   "model_type = 'sklearn'", "attributes.model_type != 'sklearn'", "status = 'READY'", "status = 'PENDING'", "status != 'READY'",
                   "creation_timestamp > 0", "creation_timestamp < 1", "last_updated_timestamp > 0", "params.lr = '0.1'", "params.lr != '0.1'",
                   "params.lr LIKE '0.%'", "tags.team = 'vision'", "tags.team ILIKE 'speech'", "metrics.acc > 0.6", "metrics.acc < 0.6", "metrics.acc >= 0.5",
                   "metrics.loss = 3", "metrics.acc > 0.6 AND params.lr = '0.1'", "name IN ('alpha', 'beta')", "name NOT IN ('alpha')", "model_id = 'x'", "source_run_id = 'x'",
                   "nothing = 'x'", "name > 'a'", "metrics.acc = 'x'", "name = 'a' OR name = 'b'", "(name = 'a')", "datasets.name = 'test'", "!!", "params.lr = 0.1",
                   "creation_timestamp = 'x'", "name = alpha"]:
        names(s.post("logged-models/search", {"experiment_ids": [experiment], "filter": filter}, filter or "none"))
    for label, more in {
        "dataset": {"filter": "metrics.acc > 0.6", "datasets": [{"dataset_name": "test"}]}, "dataset and digest": {"filter": "metrics.acc > 0.1", "datasets": [{"dataset_name": "train", "dataset_digest": "d1"}]},
        "digest only": {"datasets": [{"dataset_digest": "d1"}]}, "wrong digest": {"filter": "metrics.acc > 0.1", "datasets": [{"dataset_name": "train", "dataset_digest": "zz"}]},
        "by name": {"order_by": [{"field_name": "name"}]}, "by name desc": {"order_by": [{"field_name": "name", "ascending": False}]},
        "by metric": {"order_by": [{"field_name": "metrics.acc", "ascending": False}]}, "by metric asc": {"order_by": [{"field_name": "metrics.acc", "ascending": True}]},
        "by metric and dataset": {"order_by": [{"field_name": "metrics.acc", "dataset_name": "test"}]}, "by time": {"order_by": [{"field_name": "creation_timestamp", "ascending": True}]},
        "by param": {"order_by": [{"field_name": "params.lr"}]}, "by nothing": {"order_by": [{"field_name": "nothing"}]}, "order without field": {"order_by": [{"ascending": True}]},
        "digest without dataset": {"order_by": [{"field_name": "metrics.acc", "dataset_digest": "x"}]}, "dataset for a name": {"order_by": [{"field_name": "name", "dataset_name": "x"}]},
        "zero": {"max_results": 0}, "negative": {"max_results": -1}, "too many": {"max_results": 10000000}, "word": {"max_results": "x"}, "bad token": {"page_token": "!!"},
        "foreign token": {"page_token": "aGVsbG8="},
    }.items():
        names(s.post("logged-models/search", {"experiment_ids": [experiment]} | more, label))
    names(s.post("logged-models/search", {}, "no experiments"))
    names(s.post("logged-models/search", {"experiment_ids": []}, "empty experiments"))
    names(s.post("logged-models/search", {"experiment_ids": ["987654321"]}, "unknown experiment"))
    body = {"experiment_ids": [experiment], "order_by": [{"field_name": "name", "ascending": True}], "max_results": 3}
    first = names(s.post("logged-models/search", body, "page 1"))
    names(s.post("logged-models/search", body | {"page_token": first["next_page_token"]}, "page 2"))
    names(s.post("logged-models/search", body | {"page_token": first["next_page_token"], "filter": "name != 'x'"}, "token of another filter"))
    whole = s.post("logged-models/search", {"experiment_ids": [experiment], "order_by": [{"field_name": "name", "ascending": True}]}, "whole")
    for model in whole.get("models", []):
        model["data"].get("metrics", []).sort(key=lambda m: (m["key"], m["step"]))
