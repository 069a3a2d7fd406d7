"""Evaluation with the stock MLflow client: datasets of examples, and registered judges; on the original to show that
the test is right, and on Falaj."""

import mlflow
import pandas
import pytest
from mlflow.exceptions import MlflowException
from mlflow.genai import datasets
from mlflow.genai.judges import make_judge
from mlflow.genai.scorers import delete_scorer, get_scorer, list_scorers
from mlflow.genai.scorers.registry import list_scorer_versions


def test_a_dataset_of_traces(tracking, experiment):
    with mlflow.start_span("ask") as span:
        span.set_inputs({"question": "tea?"})
        span.set_outputs({"answer": "3"})
    mlflow.flush_trace_async_logging()
    mlflow.log_expectation(trace_id=span.trace_id, name="price", value=3)
    dataset = datasets.create_dataset(name=f"shop-{experiment}", experiment_id=[experiment], tags={"team": "shop"})
    dataset.merge_records(mlflow.search_traces(locations=[experiment], return_type="list"))
    dataset.merge_records([{"inputs": {"question": "milk?"}, "expectations": {"price": 2}}])
    dataset.merge_records(pandas.DataFrame([{"inputs": {"question": "milk?"}, "expectations": {"unit": "l"}}]))
    kept = datasets.get_dataset(dataset_id=dataset.dataset_id).to_df()
    assert list(kept["inputs"]) == [{"question": "tea?"}, {"question": "milk?"}]
    assert list(kept["expectations"]) == [{"price": 3}, {"price": 2, "unit": "l"}]
    assert kept["source_id"][0] == span.trace_id and list(kept["source_type"]) == ["TRACE", "HUMAN"]
    found = datasets.search_datasets(experiment_ids=[experiment], filter_string="tags.team = 'shop'")
    assert [one.dataset_id for one in found] == [dataset.dataset_id] and found[0].experiment_ids == [experiment]
    assert dataset.delete_records(list(kept["dataset_record_id"])[:1]) == 1
    assert len(datasets.get_dataset(dataset_id=dataset.dataset_id).to_df()) == 1
    datasets.delete_dataset(dataset_id=dataset.dataset_id)
    with pytest.raises(MlflowException, match="not found"):
        datasets.get_dataset(dataset_id=dataset.dataset_id)


def test_many_records(target, tracking, experiment):
    dataset = datasets.create_dataset(name=f"many-{experiment}", experiment_id=[experiment])
    dataset.merge_records([{"inputs": {"n": n}, "expectations": {"square": n * n}} for n in range(2500)])
    dataset.merge_records([{"inputs": {"n": n}, "expectations": {"odd": n % 2 == 1}} for n in range(2490, 2510)])
    kept = datasets.get_dataset(dataset_id=dataset.dataset_id)
    assert "2510" in kept.profile
    assert [inputs["n"] for inputs in kept.to_df()["inputs"]] == list(range(2510)) or not target.token


def test_registered_judges(tracking, experiment):
    def judge(words):
        return make_judge(name="polite", instructions=f"{words}: {{{{ outputs }}}}", model="openai:/gpt-4")

    judge("Is it polite?").register(experiment_id=experiment)
    judge("Is it very polite?").register(experiment_id=experiment)
    assert [scorer.name for scorer in list_scorers(experiment_id=experiment)] == ["polite"]
    assert [version for _, version in list_scorer_versions(name="polite", experiment_id=experiment)] == [1, 2]
    assert "very" in get_scorer(name="polite", experiment_id=experiment).instructions
    assert "very" not in get_scorer(name="polite", experiment_id=experiment, version=1).instructions
    delete_scorer(name="polite", experiment_id=experiment, version="all")
    assert list_scorers(experiment_id=experiment) == []
