"""What people do with MLflow, done with the stock client: on the original to show that the test is right, and
on Falaj. Nothing here knows which server answers."""

import hashlib
import os
import time
import uuid

import matplotlib
import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.models import infer_signature
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

matplotlib.use("Agg")


def name(kind):
    return f"{kind}-{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def iris():
    return load_iris(return_X_y=True, as_frame=True)


def test_a_run(tracking, experiment):
    with mlflow.start_run(run_name="first", tags={"team": "vision"}, description="why") as run:
        mlflow.log_param("lr", 0.1)
        mlflow.log_params({"depth": 3, "kind": "forest"})
        for step in range(5):
            mlflow.log_metric("loss", 1 / (step + 1), step=step)
        mlflow.log_metrics({"acc": 0.9, "bad": float("nan"), "big": float("inf")}, step=2)
        mlflow.set_tags({"a": "1", "b": 2})
    found = mlflow.get_run(run.info.run_id)
    assert found.info.status == "FINISHED" and found.info.run_name == "first"
    assert found.data.params == {"lr": "0.1", "depth": "3", "kind": "forest"}
    assert found.data.metrics["loss"] == 0.2 and np.isnan(found.data.metrics["bad"]) and found.data.metrics["big"] > 1e308
    assert found.data.tags["team"] == "vision" and found.data.tags["b"] == "2" and found.data.tags["mlflow.note.content"] == "why"
    history = tracking.get_metric_history(run.info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(step, 1 / (step + 1)) for step in range(5)]


def test_a_run_that_fails(tracking, experiment):
    with pytest.raises(ZeroDivisionError):
        with mlflow.start_run() as run:
            1 / 0
    assert mlflow.get_run(run.info.run_id).info.status == "FAILED"


def test_nested_runs(tracking, experiment):
    with mlflow.start_run() as parent:
        children = []
        for index in range(3):
            with mlflow.start_run(nested=True, run_name=f"child {index}") as child:
                mlflow.log_metric("m", index)
                children.append(child.info.run_id)
    found = mlflow.search_runs([experiment], filter_string=f"tags.mlflow.parentRunId = '{parent.info.run_id}'", order_by=["metrics.m DESC"])
    assert list(found["run_id"]) == children[::-1]


def test_search_runs(tracking, experiment):
    for index in range(7):
        with mlflow.start_run(run_name=f"r{index}"):
            mlflow.log_param("p", index % 2)
            mlflow.log_metric("m", index)
    table = mlflow.search_runs([experiment], "metrics.m >= 2 AND params.p = '0'", order_by=["metrics.m ASC"])
    assert list(table["tags.mlflow.runName"]) == ["r2", "r4", "r6"] and list(table["metrics.m"]) == [2, 4, 6]
    page = tracking.search_runs([experiment], order_by=["metrics.m"], max_results=5)
    rest = tracking.search_runs([experiment], order_by=["metrics.m"], max_results=5, page_token=page.token)
    assert [run.info.run_name for run in [*page, *rest]] == [f"r{n}" for n in range(7)] and not rest.token
    assert len(mlflow.search_runs([experiment], "tags.nothing = 'x'")) == 0
    with pytest.raises(MlflowException, match="Invalid"):
        mlflow.search_runs([experiment], "nonsense")


def test_large_batches(tracking, experiment):
    """The client splits what is too large for one request."""
    run = tracking.create_run(experiment).info.run_id
    metrics = [Metric("m", n, n, n) for n in range(2500)]
    tracking.log_batch(run, metrics=metrics, params=[], tags=[])
    with mlflow.start_run(run_id=run):
        mlflow.log_params({f"p{n}": n for n in range(250)})
        mlflow.log_metrics({f"k{n}": n for n in range(1500)})
        mlflow.set_tags({f"t{n}": n for n in range(150)})
    found = tracking.get_run(run)
    assert len(found.data.params) == 250 and len(found.data.metrics) == 1501 and sum(k.startswith("t") for k in found.data.tags) >= 150
    assert len(tracking.get_metric_history(run, "m")) == 2500
    tracking.log_batch(run, [Metric("x", 1, 1, 1)], [Param("new", "1")], [RunTag("tag", "1")])


def test_long_histories(tracking, experiment):
    """More points than the server holds at a time, whole and in pages of any length."""
    run = tracking.create_run(experiment).info.run_id
    tracking.log_batch(run, metrics=[Metric("m", n, n, n) for n in range(23_000)])
    store = tracking._tracking_client.store
    assert [point.step for point in store.get_metric_history(run, "m")] == list(range(23_000))
    pages, token = [], None
    for limit in (15_000, 3, 7_000, 10_000):
        page = store.get_metric_history(run, "m", max_results=limit, page_token=token)
        pages.append([point.step for point in page])
        token = page.token
    assert [len(page) for page in pages] == [15_000, 3, 7_000, 997] and not token
    assert sum(pages, []) == list(range(23_000))


def test_params_do_not_change(tracking, experiment):
    with mlflow.start_run():
        mlflow.log_param("p", 1)
        mlflow.log_param("p", 1)
        with pytest.raises(MlflowException, match="p"):
            mlflow.log_param("p", 2)


def test_async_logging(tracking, experiment):
    with mlflow.start_run() as run:
        pending = [mlflow.log_metric("m", n, step=n, synchronous=False) for n in range(50)]
        pending.append(mlflow.log_params({"a": 1}, synchronous=False))
        pending.append(mlflow.set_tag("t", "x", synchronous=False))
        for operation in pending:
            operation.wait()
        mlflow.flush_async_logging()
    found = tracking.get_run(run.info.run_id)
    assert found.data.metrics["m"] == 49 and found.data.params == {"a": "1"} and found.data.tags["t"] == "x"
    assert len(tracking.get_metric_history(run.info.run_id, "m")) == 50


def test_system_metrics(tracking, experiment):
    mlflow.set_system_metrics_sampling_interval(0.2)
    mlflow.set_system_metrics_samples_before_logging(1)
    try:
        with mlflow.start_run(log_system_metrics=True) as run:
            time.sleep(1.5)
    finally:
        mlflow.set_system_metrics_sampling_interval(None)
        mlflow.set_system_metrics_samples_before_logging(None)
    assert "system/cpu_utilization_percentage" in tracking.get_run(run.info.run_id).data.metrics


def test_artifacts(tracking, experiment, tmp_path):
    folder = tmp_path / "out"
    (folder / "deep" / "er").mkdir(parents=True)
    for path, text in {"a.txt": "a", "deep/b é.txt": "b", "deep/er/c.bin": "c" * 100_000, "empty": ""}.items():
        (folder / path).write_text(text)
    with mlflow.start_run() as run:
        mlflow.log_artifact(folder / "a.txt")
        mlflow.log_artifact(folder / "a.txt", "sub/folder")
        mlflow.log_artifacts(folder, "all")
        mlflow.log_text("text", "notes/x.txt")
        mlflow.log_dict({"a": [1, 2]}, "conf.json")
        mlflow.log_dict({"a": [1, 2]}, "conf.yaml")
    id = run.info.run_id
    assert {(f.path, f.is_dir) for f in tracking.list_artifacts(id)} == {
        ("a.txt", False), ("all", True), ("conf.json", False), ("conf.yaml", False), ("notes", True), ("sub", True)}
    assert [f.file_size for f in tracking.list_artifacts(id) if f.path == "a.txt"] == [1]
    assert {f.path for f in tracking.list_artifacts(id, "all")} == {"all/a.txt", "all/deep", "all/empty"}
    assert tracking.list_artifacts(id, "nothing") == []
    local = mlflow.artifacts.download_artifacts(run_id=id, artifact_path="all", dst_path=str(tmp_path / "back"))
    for path in ("a.txt", "deep/b é.txt", "deep/er/c.bin", "empty"):
        assert open(os.path.join(local, path)).read() == (folder / path).read_text(), path
    assert mlflow.artifacts.load_text(f"runs:/{id}/notes/x.txt") == "text"
    assert mlflow.artifacts.load_dict(f"{run.info.artifact_uri}/conf.json") == {"a": [1, 2]}
    with pytest.raises(Exception):
        mlflow.artifacts.download_artifacts(run_id=id, artifact_path="nothing")


def test_figures_images_and_tables(tracking, experiment):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    axes.plot([1, 2, 3])
    with mlflow.start_run() as run:
        mlflow.log_figure(figure, "plots/line.png")
        mlflow.log_image(np.zeros((8, 8, 3), dtype=np.uint8), "img.png")
        for step in range(2):
            mlflow.log_image(np.zeros((8, 8, 3), dtype=np.uint8), key="sample", step=step)
        mlflow.log_table({"q": ["a", "b"], "n": [1, 2]}, "table.json")
        mlflow.log_table({"q": ["c"], "n": [3]}, "table.json")
    pyplot.close(figure)
    assert mlflow.artifacts.load_image(f"runs:/{run.info.run_id}/img.png").size == (8, 8)
    table = mlflow.load_table("table.json", run_ids=[run.info.run_id])
    assert list(table["q"]) == ["a", "b", "c"]
    assert len(tracking.list_artifacts(run.info.run_id, "images")) == 4


@pytest.mark.parametrize("megabytes", [64])
def test_a_large_artifact(tracking, experiment, tmp_path, megabytes):
    block = os.urandom(1024 * 1024)
    big = tmp_path / "big.bin"
    with open(big, "wb") as out:
        for number in range(megabytes):
            out.write(number.to_bytes(4, "big") + block[4:])
    with mlflow.start_run() as run:
        mlflow.log_artifact(big)
    back = mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="big.bin", dst_path=str(tmp_path / "back"))
    assert digest(back) == digest(big)


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def test_datasets(tracking, experiment):
    frame = pd.DataFrame({"x": [1, 2, 3], "y": [0, 1, 0]})
    data = mlflow.data.from_pandas(frame, source="s3://bucket/data.csv", name="train", targets="y")
    with mlflow.start_run() as run:
        mlflow.log_input(data, context="training")
        mlflow.log_input(data, context="training")
        mlflow.log_metric("m", 1, dataset=data)
    found = mlflow.get_run(run.info.run_id).inputs.dataset_inputs
    assert len(found) == 1 and found[0].dataset.name == "train" and found[0].dataset.digest == data.digest
    assert {tag.key: tag.value for tag in found[0].tags} == {"mlflow.data.context": "training"}
    assert mlflow.data.get_source(found[0].dataset).to_dict()["uri"] == "s3://bucket/data.csv"
    assert len(mlflow.search_runs([experiment], "datasets.name = 'train'")) == 1


@pytest.mark.parametrize("how", ["explicit", "autolog"])
def test_a_model_from_training_to_loading(tracking, experiment, iris, how):
    features, labels = iris
    registered = name("iris")
    if how == "autolog":
        mlflow.sklearn.autolog(registered_model_name=registered, log_input_examples=True, serialization_format="cloudpickle")
        with mlflow.start_run() as run:
            model = LogisticRegression(max_iter=200).fit(features, labels)
        mlflow.sklearn.autolog(disable=True)
        found = mlflow.get_run(run.info.run_id)
        assert found.data.params["max_iter"] == "200" and found.data.metrics["training_accuracy_score"] > 0.9
        assert len(found.inputs.dataset_inputs) == 1 and len(found.outputs.model_outputs) == 1
    else:
        with mlflow.start_run() as run:
            model = LogisticRegression(max_iter=200).fit(features, labels)
            info = mlflow.sklearn.log_model(model, name="model", signature=infer_signature(features, labels), input_example=features.head(2),
                                            registered_model_name=registered, pip_requirements=["scikit-learn"], metadata={"a": "b"}, serialization_format="cloudpickle")
            mlflow.log_metric("score", 0.9, model_id=info.model_id)
        logged = mlflow.get_logged_model(info.model_id)
        assert logged.status == "READY" and logged.source_run_id == run.info.run_id and logged.metrics[0].value == 0.9
        assert (mlflow.sklearn.load_model(info.model_uri).predict(features) == model.predict(features)).all()
        assert [m.model_id for m in mlflow.search_logged_models([experiment], output_format="list")] == [info.model_id]
    tracking.set_registered_model_alias(registered, "champion", 1)
    expected = model.predict(features)
    for uri in (f"models:/{registered}@champion", f"models:/{registered}/1", f"models:/{registered}/latest"):
        assert (np.asarray(mlflow.pyfunc.load_model(uri).predict(features)) == expected).all(), uri
    version = tracking.get_model_version_by_alias(registered, "champion")
    assert version.run_id == run.info.run_id and version.status == "READY" and version.aliases == ["champion"]
    assert mlflow.models.get_model_info(f"models:/{registered}@champion").signature is not None


def test_registering_from_a_run(tracking, experiment, iris, tmp_path):
    registered = name("copy")
    with mlflow.start_run() as run:
        mlflow.sklearn.log_model(LogisticRegression(max_iter=200).fit(*iris), name="m", pip_requirements=["scikit-learn"], serialization_format="cloudpickle")
    version = mlflow.register_model(f"runs:/{run.info.run_id}/m", registered, tags={"a": "1"})
    assert version.version in ("1", 1) and tracking.get_model_version(registered, "1").tags == {"a": "1"}
    copy = tracking.copy_model_version(f"models:/{registered}/1", name("target"))
    assert copy.run_id == run.info.run_id
    assert mlflow.sklearn.load_model(f"models:/{copy.name}/1") is not None
    local = mlflow.artifacts.download_artifacts(f"models:/{registered}/1", dst_path=str(tmp_path / "m"))
    assert os.path.exists(os.path.join(local, "MLmodel"))


def test_the_registry(tracking, experiment):
    registered = name("model")
    tracking.create_registered_model(registered, tags={"a": "1"}, description="d")
    for number in range(3):
        tracking.create_model_version(registered, f"s3://bucket/{number}", tags={"n": str(number)})
    tracking.transition_model_version_stage(registered, "1", "Production")
    tracking.transition_model_version_stage(registered, "2", "Production", archive_existing_versions=True)
    assert [v.version for v in tracking.get_latest_versions(registered, ["Production"])] in (["2"], [2])
    assert tracking.get_model_version(registered, "1").current_stage == "Archived"
    tracking.set_registered_model_alias(registered, "champion", "2")
    tracking.set_registered_model_alias(registered, "champion", "3")
    assert str(tracking.get_model_version_by_alias(registered, "champion").version) == "3"
    tracking.delete_registered_model_alias(registered, "champion")
    with pytest.raises(MlflowException):
        tracking.get_model_version_by_alias(registered, "champion")
    tracking.set_model_version_tag(registered, "3", "k", "v")
    tracking.delete_model_version_tag(registered, "3", "k")
    tracking.update_model_version(registered, "3", "text")
    found = tracking.search_model_versions(f"name = '{registered}'", order_by=["version_number ASC"])
    assert [str(v.version) for v in found] == ["1", "2", "3"] and found[2].description == "text"
    assert [m.name for m in tracking.search_registered_models(f"name = '{registered}'")] == [registered]
    tracking.rename_registered_model(registered, registered + "-2")
    tracking.delete_model_version(registered + "-2", "1")
    tracking.delete_registered_model(registered + "-2")
    with pytest.raises(MlflowException, match="not found"):
        tracking.get_registered_model(registered + "-2")


def test_delete_and_restore(tracking, experiment):
    with mlflow.start_run() as run:
        mlflow.log_metric("m", 1)
    id = run.info.run_id
    mlflow.delete_run(id)
    assert tracking.get_run(id).info.lifecycle_stage == "deleted" and len(mlflow.search_runs([experiment])) == 0
    assert len(mlflow.search_runs([experiment], run_view_type=ViewType.DELETED_ONLY)) == 1
    with pytest.raises(MlflowException):
        tracking.log_metric(id, "m", 2)
    tracking.restore_run(id)
    assert len(mlflow.search_runs([experiment])) == 1
    mlflow.delete_experiment(experiment)
    assert tracking.get_experiment(experiment).lifecycle_stage == "deleted"
    with pytest.raises(MlflowException, match="deleted"):
        mlflow.set_experiment(tracking.get_experiment(experiment).name)
    tracking.restore_experiment(experiment)
    assert tracking.get_experiment(experiment).lifecycle_stage == "active"


def test_experiments(tracking):
    title = name("e")
    id = mlflow.create_experiment(title, tags={"a": "1"})
    tracking.set_experiment_tag(id, "b", "2")
    assert tracking.get_experiment_by_name(title).tags == {"a": "1", "b": "2"}
    tracking.rename_experiment(id, title + "-2")
    assert [e.experiment_id for e in mlflow.search_experiments(filter_string=f"name = '{title}-2'")] == [id]
    with pytest.raises(MlflowException, match="already exists"):
        mlflow.create_experiment(title + "-2")
    assert tracking.get_experiment_by_name(title) is None


def test_prompts(tracking, experiment):
    title = name("prompt")
    mlflow.genai.register_prompt(title, "Hello {{who}}", commit_message="first", tags={"a": "1"})
    second = mlflow.genai.register_prompt(title, "Hi {{who}}")
    assert second.version == 2
    mlflow.genai.set_prompt_alias(title, "live", version=1)
    assert mlflow.genai.load_prompt(f"prompts:/{title}@live").format(who="Ada") == "Hello Ada"
    assert mlflow.genai.load_prompt(f"prompts:/{title}/2").template == "Hi {{who}}"
    assert mlflow.genai.load_prompt(title).version == 2
    assert title in [prompt.name for prompt in mlflow.genai.search_prompts(filter_string=f"name = '{title}'")]
    assert title not in [model.name for model in tracking.search_registered_models()]
    chat = mlflow.genai.register_prompt(title, [{"role": "user", "content": "{{q}}"}])
    assert mlflow.genai.load_prompt(title, version=chat.version).template == [{"role": "user", "content": "{{q}}"}]
    mlflow.genai.delete_prompt_alias(title, "live")


def test_traces(tracking, experiment):
    @mlflow.trace(span_type="TOOL", attributes={"k": "v"})
    def inner(x):
        return x + 1

    @mlflow.trace
    def outer(x):
        mlflow.update_current_trace(tags={"team": "vision"})
        return inner(x) * 2

    assert outer(1) == 4
    with pytest.raises(ValueError):
        failing()
    mlflow.flush_trace_async_logging()
    traces = mlflow.search_traces(locations=[experiment], return_type="list", filter_string="tags.team = 'vision'")
    assert len(traces) == 1
    trace = mlflow.get_trace(traces[0].info.trace_id)
    assert [span.name for span in trace.data.spans] == ["outer", "inner"] and trace.data.spans[0].outputs == 4
    assert len(mlflow.search_traces(locations=[experiment], return_type="list", filter_string="status = 'ERROR'")) == 1
    feedback = mlflow.log_feedback(trace_id=trace.info.trace_id, name="good", value=True, rationale="yes")
    mlflow.log_expectation(trace_id=trace.info.trace_id, name="answer", value={"a": 1})
    mlflow.set_trace_tag(trace.info.trace_id, "k", "v")
    found = mlflow.get_trace(trace.info.trace_id)
    assert {(a.name, a.value) for a in found.info.assessments if a.feedback} == {("good", True)} and found.info.tags["k"] == "v"
    mlflow.update_assessment(trace.info.trace_id, feedback.assessment_id, mlflow.entities.Feedback(name="good", value=False))
    mlflow.delete_assessment(trace.info.trace_id, feedback.assessment_id)
    mlflow.delete_trace_tag(trace.info.trace_id, "k")
    assert tracking.delete_traces(experiment, trace_ids=[trace.info.trace_id]) == 1
    assert len(mlflow.search_traces(locations=[experiment], return_type="list")) == 1


@mlflow.trace
def failing():
    raise ValueError("no")
