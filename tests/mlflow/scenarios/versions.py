"""Model versions: numbering, sources, tags, and what is refused."""

from recorder import scenario
from scenarios.registry import model, version


@scenario
def life(s):
    name = model(s)
    run = s.start(s.experiment())
    s.post("model-versions/create", {"name": name, "source": "s3://bucket/a", "description": "d", "tags": [{"key": "a", "value": "1"}], "run_link": "http://x/y"})
    uri = s.get("runs/get", {"run_id": run})["run"]["info"]["artifact_uri"]
    s.post("model-versions/create", {"name": name, "source": uri + "/model", "run_id": run}, "from a run")
    s.post("model-versions/create", {"name": name, "source": f"runs:/{run}/model", "run_id": run}, "runs URI")
    s.get("model-versions/get", {"name": name, "version": "2"})
    s.get("model-versions/get-download-uri", {"name": name, "version": "2"})
    s.get("model-versions/get-download-uri", {"name": name, "version": "3"})
    s.get("model-versions/get-download-uri", {"name": name, "version": "9"}, "unknown")
    s.get("model-versions/get-download-uri", {"name": name}, "no version")
    s.patch("model-versions/update", {"name": name, "version": "1", "description": "changed"})
    s.patch("model-versions/update", {"name": name, "version": "1", "description": ""}, "empty")
    s.patch("model-versions/update", {"name": name, "version": "1"}, "nothing")
    s.patch("model-versions/update", {"name": name, "version": "9", "description": "d"}, "unknown")
    s.patch("model-versions/update", {"name": name, "version": "x", "description": "d"}, "word")
    s.get("model-versions/get", {"name": name, "version": "1"}, "updated")
    s.get("model-versions/get", {"name": name, "version": "9"}, "unknown")
    s.get("model-versions/get", {"name": name, "version": "x"}, "word")
    s.get("model-versions/get", {"name": s.unique("unknown"), "version": "1"}, "unknown model")
    s.get("model-versions/get", {"name": name}, "no version")
    s.delete("model-versions/delete", {"name": name, "version": "3"})
    s.get("model-versions/get", {"name": name, "version": "3"}, "deleted")
    s.delete("model-versions/delete", {"name": name, "version": "3"}, "again")
    s.delete("model-versions/delete", {"name": name, "version": "x"}, "word")
    s.delete("model-versions/delete", {"name": name}, "no version")
    s.post("model-versions/create", {"name": name, "source": "s3://bucket/b"}, "number is not used again")
    s.get("registered-models/get", {"name": name})
    s.get("model-versions/search", {"filter": f"name='{name}'"})


@scenario
def sources(s):
    """A version may only point at what the named run or model contains, or outside altogether."""
    name = model(s)
    experiment = s.experiment()
    run, other = s.start(experiment), s.start(experiment)
    logged = s.post("logged-models", {"experiment_id": experiment, "name": "m", "source_run_id": run})["model"]["info"]["model_id"]
    uri = s.get("runs/get", {"run_id": run})["run"]["info"]["artifact_uri"]
    for label, body in {
        "no source": {}, "empty source": {"source": ""}, "number": {"source": 5}, "s3": {"source": "s3://b/k"}, "gs": {"source": "gs://b/k"}, "https": {"source": "https://h/p"}, "dbfs": {"source": "dbfs:/x"},
        "absolute path": {"source": "/etc/passwd"}, "file": {"source": "file:///etc/passwd"}, "relative path": {"source": "model"}, "file with host": {"source": "file://h/etc"},
        "climbing": {"source": "s3://b/../k"}, "climbing encoded": {"source": "s3://b/%2e%2e/k"}, "climbing query": {"source": "s3://b/k?x=../y"}, "climbing twice encoded": {"source": "s3://b/%252e%252e/k"},
        "own run": {"source": f"{uri}/model", "run_id": run}, "own run, root": {"source": uri, "run_id": run}, "other run": {"source": f"{uri}/model", "run_id": other}, "no run named": {"source": f"{uri}/model"},
        "runs": {"source": f"runs:/{run}/model", "run_id": run}, "runs of other": {"source": f"runs:/{run}/model", "run_id": other}, "runs without run": {"source": f"runs:/{run}/model"},
        "unknown run": {"source": "s3://b/k", "run_id": "f" * 32}, "odd run": {"source": "s3://b/k", "run_id": "x y"}, "empty run": {"source": "s3://b/k", "run_id": ""},
        "model": {"source": f"models:/{logged}", "model_id": logged}, "model without id": {"source": f"models:/{logged}"}, "unknown model": {"source": "models:/m-" + "0" * 32, "model_id": "m-" + "0" * 32},
        "run and sibling": {"source": f"{uri}-sibling/model", "run_id": run}, "run and climbing": {"source": f"{uri}/../../x", "run_id": run}, "null byte": {"source": "s3://b/k\x00"},
        "unknown scheme": {"source": "weird://x"}, "artifacts root": {"source": "mlflow-artifacts:/"}, "artifacts of nobody": {"source": "mlflow-artifacts:/x/y"},
    }.items():
        step = s.post("model-versions/create", {"name": name} | body, label)
        # Which number it gets depends on how many were refused before.
        if "model_version" in step.body:
            step.body["model_version"]["version"] = "<number>"
    s.post("model-versions/create", {"name": s.unique("unknown"), "source": "s3://b/k"}, "unknown registered model")
    s.post("model-versions/create", {"source": "s3://b/k"}, "no name")
    s.post("model-versions/create", {"name": "", "source": "s3://b/k"}, "empty name")


@scenario
def tags(s):
    name = model(s)
    version(s, name)
    put, drop = "model-versions/set-tag", "model-versions/delete-tag"
    s.post(put, {"name": name, "version": "1", "key": "a", "value": "1"})
    s.post(put, {"name": name, "version": "1", "key": "a", "value": "2"}, "again")
    s.post(put, {"name": name, "version": "1", "key": "e", "value": ""}, "empty value")
    for label, body in {"no value": {"version": "1", "key": "k"}, "no key": {"version": "1", "value": "v"}, "no version": {"key": "k", "value": "v"}, "unknown version": {"version": "7", "key": "k", "value": "v"},
                        "word version": {"version": "x", "key": "k", "value": "v"}, "bad key": {"version": "1", "key": "a//b", "value": "v"}, "long key": {"version": "1", "key": "k" * 251, "value": "v"},
                        "long value": {"version": "1", "key": "k", "value": "v" * 100001}, "number as value": {"version": "1", "key": "k", "value": 1}}.items():
        s.post(put, {"name": name} | body, label)
    s.delete(drop, {"name": name, "version": "1", "key": "a"})
    s.delete(drop, {"name": name, "version": "1", "key": "a"}, "again")
    s.delete(drop, {"name": name, "version": "7", "key": "a"}, "unknown version")
    s.delete(drop, {"name": name, "version": "1"}, "no key")
    s.get("model-versions/get", {"name": name, "version": "1"})
