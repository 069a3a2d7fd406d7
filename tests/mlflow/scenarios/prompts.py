"""Prompts: registered models with a tag, hidden from searches that do not ask for them."""

from recorder import scenario
from scenarios.registry_search import found

IS_PROMPT = {"key": "mlflow.prompt.is_prompt", "value": "true"}


@scenario
def prompts(s):
    prompt, model = s.unique("prompt"), s.unique("model")
    s.post("registered-models/create", {"name": prompt, "tags": [IS_PROMPT, {"key": "_mlflow_experiment_ids", "value": ",0,"}]}, "prompt")
    s.post("registered-models/create", {"name": model}, "model")
    s.post("registered-models/create", {"name": model, "tags": [IS_PROMPT]}, "a prompt with the name of a model")
    s.post("registered-models/create", {"name": prompt}, "a model with the name of a prompt")
    for text in ("Hello {{name}}", "Hi {{name}}"):
        s.post("model-versions/create", {"name": prompt, "source": "dummy-source", "description": "why", "tags": [IS_PROMPT, {"key": "mlflow.prompt.text", "value": text}]}, text)
    s.post("model-versions/create", {"name": prompt, "source": "/etc/passwd", "tags": [IS_PROMPT]}, "a path as source")
    s.post("model-versions/create", {"name": model, "source": "dummy-source"}, "a model like a prompt")
    s.post("model-versions/create", {"name": prompt, "source": "dummy-source", "tags": [IS_PROMPT, {"key": "mlflow.prompt.text", "value": "x" * 100_001}]}, "too long a text")
    s.post("registered-models/alias", {"name": prompt, "alias": "live", "version": "1"})
    s.get("registered-models/alias", {"name": prompt, "alias": "live"})
    s.get("model-versions/get", {"name": prompt, "version": "2"})
    s.get("registered-models/get", {"name": prompt})
    mine = f"name LIKE '{s.unique('')}%'"
    for filter in (mine, f"{mine} AND tags.`mlflow.prompt.is_prompt` = 'true'", f"{mine} AND tags.`mlflow.prompt.is_prompt` != 'true'", f"{mine} AND tag.mlflow.prompt.is_prompt = 'true'"):
        found(s.get("registered-models/search", {"filter": filter}, filter), "registered_models", "name")
        found(s.get("model-versions/search", {"filter": filter, "order_by": "version_number ASC"}, filter), "model_versions", "name", "version")
    s.post("model-versions/set-tag", {"name": prompt, "version": "1", "key": "mlflow.prompt.text", "value": "changed"}, "text of a prompt")
    s.delete("model-versions/delete-tag", {"name": prompt, "version": "1", "key": "mlflow.prompt.text"}, "text of a prompt")
    s.delete("model-versions/delete", {"name": prompt, "version": "1"})
    s.delete("registered-models/delete", {"name": prompt})
