"""The endpoints that people's programs use, as (method, path template)."""

import re

from recorder import API

_UNDER_API = {
    "POST": """experiments/create experiments/delete experiments/restore experiments/update
        experiments/set-experiment-tag experiments/delete-experiment-tag experiments/search
        runs/create runs/update runs/delete runs/restore runs/search runs/log-metric runs/log-parameter
        runs/log-batch runs/log-inputs runs/outputs runs/log-model runs/set-tag runs/delete-tag
        artifacts/presigned-upload-url artifacts/presigned-download-url
        registered-models/create registered-models/rename registered-models/set-tag
        registered-models/get-latest-versions registered-models/alias model-versions/create
        model-versions/set-tag model-versions/transition-stage
        logged-models logged-models/search logged-models/{id}/params""",
    "GET": """experiments/get experiments/get-by-name experiments/search runs/get metrics/get-history
        artifacts/list registered-models/get registered-models/search registered-models/get-latest-versions
        registered-models/alias model-versions/get model-versions/search model-versions/get-download-uri
        logged-models/{id} logged-models/{id}/artifacts/directories""",
    "PATCH": "registered-models/update model-versions/update logged-models/{id} logged-models/{id}/tags",
    "DELETE": """registered-models/delete registered-models/delete-tag registered-models/alias
        model-versions/delete model-versions/delete-tag logged-models/{id} logged-models/{id}/tags/{key}""",
}
_ELSEWHERE = {
    "POST": """/ajax-api/2.0/mlflow/experiments/search-datasets /ajax-api/2.0/mlflow/upload-artifact
        /api/2.0/mlflow-artifacts/mpu/create/{path} /api/2.0/mlflow-artifacts/mpu/complete/{path}
        /api/2.0/mlflow-artifacts/mpu/abort/{path}""",
    "GET": """/ajax-api/2.0/mlflow/metrics/get-history-bulk /ajax-api/2.0/mlflow/metrics/get-history-bulk-interval
        /get-artifact /model-versions/get-artifact /ajax-api/2.0/mlflow/logged-models/{id}/artifacts/files
        /api/2.0/mlflow-artifacts/artifacts /api/2.0/mlflow-artifacts/artifacts/{path}
        /api/2.0/mlflow-artifacts/presigned/{path}
        /health /version /api/3.0/mlflow/server-info""",
    "PUT": "/api/2.0/mlflow-artifacts/artifacts/{path}",
    "DELETE": "/api/2.0/mlflow-artifacts/artifacts/{path}",
}
TIER_A = {(method, API + path) for method, paths in _UNDER_API.items() for path in paths.split()} | {
    (method, path) for method, paths in _ELSEWHERE.items() for path in paths.split()}

_PATTERNS = [
    (re.compile(r"(/mlflow-artifacts/(?:artifacts|presigned|mpu/\w+))/.+"), r"\1/{path}"),
    (re.compile(r"(/logged-models/)(?!search)[^/]+(/tags)/.+"), r"\1{id}\2/{key}"),
    (re.compile(r"(/logged-models/)(?!search)[^/]+"), r"\1{id}"),
]


def template(path):
    """The path without its ids and query."""
    path = path.partition("?")[0]
    for pattern, shape in _PATTERNS:
        path, changed = pattern.subn(shape, path, count=1)
        if changed:
            break
    return path
