"""What to send to each route of the MLflow API so that it is judged rather than refused as malformed.

`{run}`, `{model}` and so on stand for the ids of things that the stage holds."""

from onnx_model import one_operator

RUN = {"run_id": "{run}"}
API = "/api/2.0/mlflow"
# Our own routes about the same things.
OWN = "/v1/tenants/{tenant}/projects/{project}"
EVENTS = [{"entity": "MODEL_VERSION", "action": "CREATED"}]
V3 = "/api/3.0/mlflow/traces"
EVAL = "/api/3.0/mlflow"
HERE = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "{experiment}"}}
INFO = {"trace_id": "tr-stage", "trace_location": HERE, "request_time": "2001-01-01T00:00:00Z", "state": "OK",
        "tags": {"tag": "v"}}
GOOD = {"assessment_name": "good", "source": {"source_type": "HUMAN", "source_id": "ada"}, "feedback": {"value": True}}
IMPORT = "/v1/tenants/{tenant}/projects/{project}/import"
SYNC = "/v1/tenants/{tenant}/projects/{project}/sync"
# A run that came from elsewhere.
BROUGHT = "f123456789abcdef0123456789abcdef"

ROWS = {"inputs": [{"name": "X", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.0]}]}

BODIES = {
    # The inference protocol, whose model `thing` is an endpoint.
    "post /v2/models/{name}/infer": ROWS,
    "post /v2/models/{name}/versions/{version}/infer": ROWS,
    "post /endpoints/{name}/invocations": {"inputs": [[1.0, 2.0]]},
    "post /v1/models/{name}": {"instances": [[1.0, 2.0]]},
    "post /v2/repository/index": {},
    "post /v2/repository/models/{name}/load": {},
    "post /v2/repository/models/{name}/unload": {},
    f"post {API}/experiments/create": {"name": "fresh"},
    f"post {API}/experiments/update": {"experiment_id": "{experiment}", "new_name": "renamed"},
    f"post {API}/experiments/delete": {"experiment_id": "{other_experiment}"},
    f"post {API}/experiments/restore": {"experiment_id": "{other_experiment}"},
    f"post {API}/experiments/set-experiment-tag": {"experiment_id": "{experiment}", "key": "k", "value": "v"},
    f"post {API}/experiments/delete-experiment-tag": {"experiment_id": "{experiment}", "key": "tag"},
    f"post {API}/experiments/search": {},
    f"post {API}/experiments/search-datasets": {"experiment_ids": ["{experiment}"]},
    f"post {API}/runs/create": {"experiment_id": "{experiment}"},
    f"post {API}/runs/update": RUN | {"status": "RUNNING"},
    f"post {API}/runs/delete": {"run_id": "{other_run}"},
    f"post {API}/runs/restore": {"run_id": "{other_run}"},
    f"post {API}/runs/search": {"experiment_ids": ["{experiment}"]},
    f"post {API}/runs/log-metric": RUN | {"key": "m", "value": 1.5, "timestamp": 1},
    f"post {API}/runs/log-parameter": RUN | {"key": "p", "value": "1"},
    f"post {API}/runs/log-batch": RUN | {"metrics": [{"key": "m", "value": 2, "timestamp": 2}]},
    f"post {API}/runs/log-inputs": RUN | {
        "datasets": [{"dataset": {"name": "d", "digest": "1", "source_type": "s", "source": "x"}}]},
    f"post {API}/runs/outputs": RUN | {"models": [{"model_id": "{model}", "step": 1}]},
    f"post {API}/runs/log-model": RUN | {
        "model_json": '{"artifact_path": "m", "flavors": {}, "utc_time_created": "x", "run_id": "r"}'},
    f"post {API}/runs/set-tag": RUN | {"key": "k", "value": "v"},
    f"post {API}/runs/delete-tag": RUN | {"key": "tag"},
    f"post {API}/artifacts/presigned-upload-url": RUN | {"path": "a.txt"},
    f"post {API}/artifacts/presigned-download-url": RUN | {"path": "a.txt"},
    f"post {API}/logged-models": {"experiment_id": "{experiment}"},
    f"post {API}/logged-models/search": {"experiment_ids": ["{experiment}"]},
    f"patch {API}/logged-models/{{model_id}}": {"status": "LOGGED_MODEL_READY"},
    f"delete {API}/logged-models/{{model_id}}": {},
    f"post {API}/logged-models/{{model_id}}/params": {"params": [{"key": "p", "value": "1"}]},
    f"patch {API}/logged-models/{{model_id}}/tags": {"tags": [{"key": "tag", "value": "v"}]},
    f"delete {API}/logged-models/{{model_id}}/tags/{{tag_key}}": {},
    f"post {API}/registered-models/create": {"name": "fresh"},
    f"post {API}/registered-models/rename": {"name": "{registered}", "new_name": "{registered}"},
    f"patch {API}/registered-models/update": {"name": "{registered}", "description": "x"},
    f"delete {API}/registered-models/delete": {"name": "fresh"},
    f"post {API}/registered-models/get-latest-versions": {"name": "{registered}"},
    f"post {API}/registered-models/set-tag": {"name": "{registered}", "key": "k", "value": "v"},
    f"delete {API}/registered-models/delete-tag": {"name": "{registered}", "key": "k"},
    f"post {API}/registered-models/alias": {"name": "{registered}", "alias": "champion", "version": "1"},
    f"delete {API}/registered-models/alias": {"name": "{registered}", "alias": "champion"},
    f"post {API}/model-versions/create": {"name": "{registered}", "source": "s3://bucket/model"},
    f"patch {API}/model-versions/update": {"name": "{registered}", "version": "1", "description": "x"},
    f"post {API}/model-versions/transition-stage": {"name": "{registered}", "version": "1", "stage": "Staging"},
    f"delete {API}/model-versions/delete": {"name": "{registered}", "version": "2"},
    f"post {API}/model-versions/set-tag": {"name": "{registered}", "version": "1", "key": "k", "value": "v"},
    f"delete {API}/model-versions/delete-tag": {"name": "{registered}", "version": "1", "key": "k"},
    f"post {OWN}/experiments": {"name": "fresh/native"},
    f"post {OWN}/experiments/{{experiment}}/purge": {},
    f"post {OWN}/runs/search": {"experiment_ids": ["{experiment}"]},
    f"post {OWN}/runs/{{run}}/purge": {},
    f"post {OWN}/logged-models/{{model}}/purge": {},
    f"post {OWN}/gc": {"older_than_days": 1},
    f"put {OWN}/retention": {"deleted_days": 1},
    f"put {OWN}/holds/{{name}}": {"reason": "x", "experiment_id": "{other_experiment}"},
    f"post {API}/webhooks": {"name": "hook", "url": "https://127.0.0.1:9/x", "events": EVENTS},
    f"patch {API}/webhooks/{{webhook_id}}": {"description": "x"},
    f"delete {API}/webhooks/{{webhook_id}}": {},
    f"post {API}/webhooks/{{webhook_id}}/test": {},
    f"post {V3}": {"trace": {"trace_info": INFO | {"trace_id": "tr-fresh"}}},
    f"post {V3}/search": {"locations": [HERE]},
    f"post {V3}/batchGetInfos": {"trace_ids": ["{trace}"]},
    f"patch {V3}/{{trace_id}}/tags": {"key": "k", "value": "v"},
    f"delete {V3}/{{trace_id}}/tags": {"key": "tag"},
    f"patch {API}/traces/{{trace_id}}/tags": {"key": "tag", "value": "v"},
    f"delete {API}/traces/{{trace_id}}/tags": {"key": "tag"},
    f"post {V3}/delete-traces": {"experiment_id": "{experiment}", "request_ids": ["tr-fresh"]},
    f"post {API}/traces/delete-traces": {"experiment_id": "{experiment}", "max_timestamp_millis": 5},
    f"post {API}/traces/link-to-run": {"trace_ids": ["{trace}"], "run_id": "{run}"},
    f"post {API}/traces/link-prompts": {"trace_id": "{trace}", "prompt_versions": [{"name": "p", "version": "1"}]},
    f"post {API}/traces": {"experiment_id": "{experiment}", "timestamp_ms": 1000},
    f"patch {API}/traces/{{trace_id}}": {"timestamp_ms": 3000, "status": "OK"},
    f"post {V3}/calculate-filter-correlation": {
        "experiment_ids": ["{experiment}"], "filter_string1": "status = 'OK'", "filter_string2": "tags.a = 'b'"},
    f"post {V3}/metrics": {"experiment_ids": ["{experiment}"], "view_type": "TRACES", "metric_name": "trace_count",
                           "aggregations": [{"aggregation_type": "COUNT"}]},
    f"post {V3}/{{trace_id}}/assessments": {"assessment": GOOD},
    f"patch {V3}/{{trace_id}}/assessments/{{assessment_id}}": {
        "assessment": {"rationale": "x"}, "update_mask": "rationale"},
    f"delete {V3}/{{trace_id}}/assessments/{{assessment_id}}": {},
    "post /v1/traces": {"resourceSpans": [{"scopeSpans": [{"spans": [
        {"traceId": "0a" * 16, "spanId": "0b" * 8, "name": "work", "startTimeUnixNano": "1", "endTimeUnixNano": "2"}]}]}]},
    "post /graphql": {"query": '{ mlflowGetRun(input: {runId: "{run}"}) { run { info { status } } } }'},
    f"post {EVAL}/datasets/create": {"name": "fresh"},
    f"post {EVAL}/datasets/search": {},
    f"patch {EVAL}/datasets/{{dataset_id}}/tags": {"tags": '{"key": "v"}'},
    f"delete {EVAL}/datasets/{{dataset_id}}/tags/{{key}}": {},
    f"post {EVAL}/datasets/{{dataset_id}}/records": {"records": '[{"inputs": {"q": 1}}]'},
    f"delete {EVAL}/datasets/{{dataset_id}}/records": {"dataset_record_ids": ["dr-x"]},
    f"post {EVAL}/datasets/{{dataset_id}}/add-experiments": {"experiment_ids": ["{experiment}"]},
    f"post {EVAL}/datasets/{{dataset_id}}/remove-experiments": {"experiment_ids": ["{experiment}"]},
    f"delete {EVAL}/datasets/{{dataset_id}}": {},
    f"post {EVAL}/scorers/register": {"experiment_id": "{experiment}", "name": "polite", "serialized_scorer": "{}"},
    f"delete {EVAL}/scorers/delete": {"experiment_id": "{experiment}", "name": "polite"},
    f"post {EVAL}/issues": {"experiment_id": "{experiment}", "name": "slow", "description": "x"},
    f"post {EVAL}/issues/search": {},
    f"patch {EVAL}/issues/{{issue_id}}": {"status": "resolved"},
    f"post {IMPORT}/models": {"models": [
        {"name": "brought", "created_at": 1, "updated_at": 2, "last_version": 1, "aliases": [["best", 1]], "versions": [
            {"version": 1, "stage": "None", "source": "s3://b/x", "location": "s3://b/x", "created_at": 1,
             "updated_at": 1}]}]},
    f"post {IMPORT}/check": {"runs": ["{run}"], "logged_models": ["{model}"], "series": True},
    f"post {IMPORT}/files": {"folder": "{experiment}/{run}/artifacts"},
    f"post {IMPORT}/marks": {"source": "old"},
    f"post {SYNC}/versions": {"source": "old", "name": "synced", "versions": [
        {"version": 1, "source": "s3://b/synced", "run_id": None, "model_id": None}]},
    f"post {SYNC}/settled": {"source": "old", "runs": [["{brought}", "1-a"]]},
    "post /api/2.0/mlflow-artifacts/mpu/create/{path}": {"path": "x.bin", "num_parts": 2},
    "post /api/2.0/mlflow-artifacts/mpu/complete/{path}": {"path": "x.bin", "upload_id": "x", "parts": []},
    "post /api/2.0/mlflow-artifacts/mpu/abort/{path}": {"path": "x.bin", "upload_id": "x"},
}

for number, way in enumerate((IMPORT, SYNC)):
    BODIES |= {
        f"post {way}/experiments": {"source": "old", "experiments": [
            {"id": f"{77 + number}", "name": f"brought {number}", "created_at": 5, "updated_at": 6, "tags": [["k", "v"]]}]},
        f"post {way}/runs": {"source": "old", "runs": [
            {"id": f"{number}123456789abcdef0123456789abcdef", "experiment": "{experiment}", "name": "brought",
             "status": "FINISHED", "start_time": 1, "params": [["p", "1"]]}]},
        f"post {way}/points": {"source": "old", "series": [{"run": "{brought}", "key": "m", "points": "AAAA" * 8}]},
        f"post {way}/logged-models": {"source": "old", "logged_models": [
            {"id": f"m-{number}123456789abcdef0123456789abcdef", "experiment": "{experiment}", "name": "brought", "status": 2,
             "created_at": 1, "updated_at": 2, "outputs": [["{run}", 1]]}]},
    }

# What else a request must say in its headers.
HEADERS = {"post /v1/traces": {"x-mlflow-experiment-id": "{experiment}"}}

RAW = {
    f"post {OWN}/runs/{{run}}/log": b"bytes",
    f"post {API}/upload-artifact": b"bytes",
    f"put {IMPORT}/artifacts/{{path}}": b"bytes",
    f"put {SYNC}/artifacts/{{path}}": b"bytes",
    "put /api/2.0/mlflow-artifacts/artifacts/{path}": b"bytes",
}

# What a GET must be asked with.
QUERIES = {
    f"get {API}/experiments/get": {"experiment_id": "{experiment}"},
    f"get {API}/experiments/get-by-name": {"experiment_name": "stage"},
    f"get {API}/runs/get": RUN,
    f"get {API}/metrics/get-history": RUN | {"metric_key": "m"},
    f"get {API}/metrics/get-history-bulk": RUN | {"metric_key": "m"},
    f"get {API}/metrics/get-history-bulk-interval": {"run_ids": "{run}", "metric_key": "m"},
    f"get {API}/artifacts/list": RUN,
    f"get {API}/registered-models/get": {"name": "{registered}"},
    f"get {API}/registered-models/alias": {"name": "{registered}", "alias": "first"},
    f"get {API}/registered-models/get-latest-versions": {"name": "{registered}"},
    f"get {API}/model-versions/get": {"name": "{registered}", "version": "1"},
    f"get {API}/model-versions/get-download-uri": {"name": "{registered}", "version": "1"},
    f"get {API}/logged-models/{{model_id}}/artifacts/files": {"artifact_file_path": "a.txt"},
    f"get {V3}/get": {"trace_id": "{trace}", "allow_partial": "true"},
    f"get {V3}/batchGet": {"trace_ids": "{trace}"},
    f"get {API}/traces": {"experiment_ids": "{experiment}"},
    f"get {API}/get-trace-artifact": {"request_id": "{trace}"},
    "get /api/3.0/mlflow/get-trace-artifact": {"request_id": "{trace}"},
    f"get {EVAL}/scorers/list": {"experiment_id": "{experiment}"},
    f"get {EVAL}/scorers/online-configs": {"scorer_ids": "x"},
    f"get {EVAL}/scorers/get": {"experiment_id": "{experiment}", "name": "polite"},
    f"get {EVAL}/scorers/versions": {"experiment_id": "{experiment}", "name": "polite"},
    "get /get-artifact": RUN | {"path": "a.txt"},
    "get /model-versions/get-artifact": {"name": "{registered}", "version": "1", "path": "a.txt"},
    f"get {OWN}/gc": {"older_than_days": "1"},
    f"put {IMPORT}/artifacts/{{path}}": {"source": "old"},
    f"put {SYNC}/artifacts/{{path}}": {"source": "old"},
    f"post {OWN}/runs/{{run}}/log": {"offset": "0"},
    f"post {API}/upload-artifact": {"run_uuid": "{run}", "path": "up.txt"},
}


def filled(value, ids):
    """The same with every `{id}` replaced."""
    if isinstance(value, dict):
        return {key: filled(item, ids) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, ids) for item in value]
    if isinstance(value, str):
        for name, id_ in ids.items():
            value = value.replace("{" + name + "}", id_)
    return value


def furnish(client):
    """Makes one of everything in the client's project; answers with the ids."""
    def post(path, body):
        answer = client.post(f"{API}/{path}", json=body)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        return answer.json()

    experiment = post("experiments/create", {"name": "stage", "tags": [{"key": "tag", "value": "v"}]})
    other = post("experiments/create", {"name": "other"})
    run = post("runs/create", {"experiment_id": experiment["experiment_id"],
                               "tags": [{"key": "tag", "value": "v"}]})["run"]["info"]["run_id"]
    other_run = post("runs/create", {"experiment_id": experiment["experiment_id"]})["run"]["info"]["run_id"]
    model = post("logged-models", {"experiment_id": experiment["experiment_id"], "name": "net"})
    id_ = experiment["experiment_id"]
    model_id = model["model"]["info"]["model_id"]
    tenant, name = client.headers["x-falaj-project"].split("/")
    brought = {"id": BROUGHT, "experiment": id_, "name": "brought", "status": "FINISHED", "start_time": 1}
    answer = client.post(filled(f"{IMPORT}/runs", {"tenant": tenant, "project": name}),
                         json={"source": "old", "runs": [brought]})
    assert answer.status_code == 201, answer.text
    for path in ("notes/x.bin", f"{id_}/{run}/artifacts/a.txt", f"{id_}/models/{model_id}/artifacts/a.txt"):
        answer = client.put(f"/api/2.0/mlflow-artifacts/artifacts/{path}", data=b"bytes")
        assert answer.status_code == 200, answer.text
    post("registered-models/create", {"name": "thing"})
    for _ in range(2):
        post("model-versions/create", {"name": "thing", "source": "s3://bucket/model"})
    post("registered-models/alias", {"name": "thing", "alias": "first", "version": "1"})
    answer = client.put(f"/api/2.0/mlflow-artifacts/artifacts/{id_}/{run}/artifacts/served/model.onnx",
                        data=one_operator("Identity"))
    assert answer.status_code == 200, answer.text
    post("registered-models/create", {"name": "served"})
    post("model-versions/create", {"name": "served", "source": f"runs:/{run}/served", "run_id": run})
    hook = post("webhooks", {"name": "stage", "url": "https://127.0.0.1:9/x", "events": EVENTS})
    where = {"experiment": id_}
    answer = client.post(V3, json=filled({"trace": {"trace_info": INFO}}, where))
    assert answer.status_code == 200, answer.text
    answer = client.post(f"{V3}/tr-stage/assessments", json={"assessment": GOOD})
    assert answer.status_code == 200, answer.text
    made = {}
    for what, body in {"datasets/create": {"name": "stage", "tags": '{"tag": "v"}'},
                       "scorers/register": BODIES[f"post {EVAL}/scorers/register"],
                       "issues": BODIES[f"post {EVAL}/issues"]}.items():
        done = client.post(f"{EVAL}/{what}", json=filled(body, where))
        assert done.status_code == 200, done.text
        made |= done.json()
    return {
        "dataset_id": made["dataset"]["dataset_id"], "issue_id": made["issue"]["issue_id"], "key": "tag",
        "webhook_id": hook["webhook"]["webhook_id"],
        "trace": "tr-stage", "trace_id": "tr-stage", "assessment_id": answer.json()["assessment"]["assessment_id"],
        "experiment": experiment["experiment_id"], "other_experiment": other["experiment_id"],
        "run": run, "other_run": other_run, "model": model["model"]["info"]["model_id"],
        "registered": "thing", "brought": BROUGHT,
    }
