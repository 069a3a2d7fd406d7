"""Dataset inputs of runs, model inputs and outputs, and finding datasets."""

from recorder import scenario

SEARCH = "/ajax-api/2.0/mlflow/experiments/search-datasets"
UNKNOWN = "0123456789abcdef0123456789abcdef"


def dataset(name="d", digest="1", **more):
    return {"name": name, "digest": digest, "source_type": "local", "source": '{"uri": "/x"}'} | more


@scenario
def inputs(s):
    experiment = s.experiment()
    run, other = s.start(experiment), s.start(experiment)
    put = "runs/log-inputs"
    whole = dataset("train", "abc", schema='{"a": "long"}', profile='{"rows": 5}')
    s.post(put, {"run_id": run, "datasets": [{"dataset": whole, "tags": [{"key": "mlflow.data.context", "value": "training"}]},
                                             {"dataset": dataset("test", "def")}]})
    s.get("runs/get", {"run_id": run})
    s.post(put, {"run_id": run, "datasets": [{"dataset": whole, "tags": [{"key": "mlflow.data.context", "value": "other"}]}]}, "again")
    s.post(put, {"run_id": other, "datasets": [{"dataset": whole}]}, "same in another run")
    s.post(put, {"run_id": run}, "nothing")
    s.post(put, {"run_id": run, "datasets": []}, "empty")
    s.get("runs/get", {"run_id": run}, "after")
    s.get("runs/get", {"run_id": other}, "the other")
    scratch = s.start(s.experiment("scratch"))
    for label, item in {
        "no name": {"dataset": {k: v for k, v in dataset().items() if k != "name"}}, "no digest": {"dataset": {k: v for k, v in dataset().items() if k != "digest"}},
        "no source": {"dataset": {k: v for k, v in dataset().items() if k != "source"}}, "no type": {"dataset": {k: v for k, v in dataset().items() if k != "source_type"}},
        "no dataset": {"tags": []}, "empty name": {"dataset": dataset("")}, "long name": {"dataset": dataset("n" * 501)}, "longest name": {"dataset": dataset("n" * 500)},
        "long digest": {"dataset": dataset("x", "d" * 37)}, "longest digest": {"dataset": dataset("x", "d" * 36)}, "long tag": {"dataset": dataset(), "tags": [{"key": "k", "value": "v" * 501}]},
        "long tag key": {"dataset": dataset(), "tags": [{"key": "k" * 256, "value": "v"}]}, "number as name": {"dataset": dataset(5)},
        "long schema": {"dataset": dataset("y", schema="s" * 1048576)},
    }.items():
        s.post(put, {"run_id": scratch, "datasets": [item]}, label)
    s.post(put, {"run_id": UNKNOWN, "datasets": []}, "unknown run")
    s.post(put, {"run_id": run, "datasets": "x"}, "text")


@scenario
def find(s):
    experiment = s.experiment()
    other = s.experiment("other")
    for index, (name, digest, context) in enumerate([("a", "1", "train"), ("b", "2", "test"), ("a", "3", None)]):
        run = s.start(experiment if index < 2 else other)
        tags = [{"key": "mlflow.data.context", "value": context}] if context else []
        s.post("runs/log-inputs", {"run_id": run, "datasets": [{"dataset": dataset(name, digest), "tags": tags}]})
    s.post(SEARCH, {"experiment_ids": [experiment]})
    s.post(SEARCH, {"experiment_ids": [experiment, other]}, "two")
    s.post(SEARCH, {"experiment_ids": []}, "none")
    s.post(SEARCH, {}, "no field")
    s.post(SEARCH, {"experiment_ids": [str(n) for n in range(21)]}, "too many")
    s.post(SEARCH, {"experiment_ids": ["987654321"]}, "unknown")


@scenario
def models_in_and_out(s):
    experiment = s.experiment()
    run = s.start(experiment)
    model = s.post("logged-models", {"experiment_id": experiment, "name": "m", "source_run_id": run})["model"]["info"]["model_id"]
    s.post("runs/outputs", {"run_id": run, "models": [{"model_id": model, "step": 3}]})
    s.post("runs/outputs", {"run_id": run, "models": [{"model_id": model, "step": 3}]}, "again")
    s.post("runs/log-inputs", {"run_id": run, "models": [{"model_id": model}]}, "model")
    s.get("runs/get", {"run_id": run})
    s.post("runs/outputs", {"run_id": run, "models": []}, "empty")
    s.post("runs/outputs", {"run_id": run}, "nothing")
    s.post("runs/outputs", {"models": [{"model_id": model, "step": 0}]}, "no run")
    s.post("runs/outputs", {"run_id": UNKNOWN, "models": [{"model_id": model, "step": 0}]}, "unknown run")
    s.get("logged-models/" + model)
