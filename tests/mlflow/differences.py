"""Where Falaj deliberately does not do what MLflow does, and why.

Each entry is checked on both sides: a scenario fails when the original stops behaving as the table says,
and when Falaj does not behave as it says. `python differences.py` prints the table for the documentation.
"""

from typing import Callable, NamedTuple


class Difference(NamedTuple):
    original: int
    ours: int
    code: str | None
    reason: str


class Rule(NamedTuple):
    """A difference that holds wherever the original answers in a certain way."""
    name: str
    applies: Callable[[dict], bool]
    met: Callable[[dict], bool]
    reason: str


RULES = [
    Rule("server errors",
         lambda original: original["status"] >= 500,
         lambda ours: 400 <= ours["status"] < 500,
         "a request can not cause a server error: where the original fails, Falaj refuses"),
]

UNREADABLE = "a body that can not be read is refused; the original treats it as {}"
WRONG_TYPE = "a field of the wrong type is refused; the original drops or coerces it"
UNKNOWN_ENUM = "an unknown enum value is refused; the original falls back to the default"

MORE_FILTERS = "filters take OR, NOT and parentheses"
NO_RESULTS = "a page of no results is refused; the original answers it with an endless list of empty pages"

UNSAFE_PATH = "a path that could mean another place is refused; the original takes it for a name"
ABSENT = "what is not there is not found; the original does as if it were there, and empty"
ONE_CODE = "the same refusal in other words"
NAMELESS = "a dataset has a name, a digest and a source; the original keeps it without"
LENIENT = "one text stands for a list of one, and either spelling of a field will do"
NAN = "a value that is no number stays one; the original keeps it as zero"

BAD_REQUEST = "INVALID_PARAMETER_VALUE"
NOT_FOUND = "RESOURCE_DOES_NOT_EXIST"
V3 = "/api/3.0/mlflow/traces"
DATASETS = "/api/3.0/mlflow/datasets"

PROXY = "/api/2.0/mlflow-artifacts/artifacts"
# What the original answers, what we do, and where.
CLIMBING = [
    (200, 400, BAD_REQUEST, [
        *(f"GET {PROXY}: {what}" for what in ("absolute", "encoded absolute", "drive", "backslash", "dot", "file URI")),
        "GET artifacts/list: backslash", "GET artifacts/list: dot",
        "POST /ajax-api/2.0/mlflow/upload-artifact: backslash",
        f"DELETE {PROXY}/{{folder}}/%2Fetc/passwd: encoded absolute",
        *(f"{method} {PROXY}/{{folder}}/C:/x: drive" for method in ("DELETE", "PUT")),
        *(f"{method} {PROXY}/{{folder}}/..%5Cx: backslash" for method in ("GET", "DELETE", "PUT")),
        *(f"{method} {PROXY}/{{folder}}/a%00b: null" for method in ("GET", "DELETE", "PUT"))]),
    (404, 400, BAD_REQUEST, [
        "GET /get-artifact: backslash", "GET /get-artifact: dot",
        f"GET {PROXY}/{{folder}}/%2Fetc/passwd: encoded absolute", f"GET {PROXY}/{{folder}}/C:/x: drive"]),
    (200, 404, NOT_FOUND, [
        f"DELETE {PROXY}/{{folder}}//etc/passwd: absolute",
        f"DELETE {PROXY}/{{folder}}/file:///etc/passwd: file URI"]),
]

# (scenario, step): what both answer.
DIFFERENCES = {
    **{("protocol.bodies", f"POST runs/search: {body}"): Difference(200, 400, BAD_REQUEST, UNREADABLE)
       for body in ("not JSON", "a list", "not UTF-8", "two values")},
    **{("protocol.bodies", f"POST experiments/create: {body}"): Difference(400, 400, BAD_REQUEST, UNREADABLE)
       for body in ("not JSON", "not UTF-8", "two values")},
    **{("metrics.fields", f"POST runs/log-metric: {body}"): Difference(200, 400, BAD_REQUEST, WRONG_TYPE)
       for body in ("fraction as time", "fraction as step", "huge step")},
    ("metrics.numbers", "POST runs/log-metric: nan"): Difference(200, 400, BAD_REQUEST, WRONG_TYPE),
    ("metrics.numbers", "POST runs/log-metric: inf"): Difference(200, 400, BAD_REQUEST, WRONG_TYPE),
    ("runs.batches", "POST runs/log-batch: text as value"): Difference(200, 400, BAD_REQUEST, WRONG_TYPE),
    ("runs.create_refusals", "POST runs/create: number as user"): Difference(200, 400, BAD_REQUEST, WRONG_TYPE),
    ("runs.create_refusals", "POST runs/create: text as tags"): Difference(200, 400, BAD_REQUEST, WRONG_TYPE),
    **{("runs.life", f"POST runs/update: status {status!r}"): Difference(200, 400, BAD_REQUEST, UNKNOWN_ENUM)
       for status in ("finished", "BOGUS")},
    ("experiments.search_refusals", "POST experiments/search: bad view"): Difference(200, 400, BAD_REQUEST, UNKNOWN_ENUM),
    ("run_search.pages", "POST runs/search: view BOGUS"): Difference(200, 400, BAD_REQUEST, UNKNOWN_ENUM),
    ("datasets.inputs", "POST runs/log-inputs: number as name"): Difference(200, 400, BAD_REQUEST, WRONG_TYPE),
    ("metrics.history", "GET metrics/get-history: word"): Difference(200, 400, BAD_REQUEST, WRONG_TYPE),
    ("registry.create_refusals", "POST registered-models/create: long"): Difference(
        200, 400, BAD_REQUEST, "a name has at most 256 characters; on the original that depends on its database"),
    **{(f"registry_search.{noun}", f"GET {path}/search: {filter}"): Difference(400, 200, None, MORE_FILTERS)
       for noun, path in (("models", "registered-models"), ("versions", "model-versions"))
       for filter in ("name = 'a' OR name = 'b'", "(name = 'a')")},
    **{("registry_search.models", f"GET registered-models/search: {count}"): Difference(200, 400, BAD_REQUEST, NO_RESULTS)
       for count in ("zero", "negative")},
    ("versions.sources", "POST model-versions/create: model"): Difference(
        200, 200, None, "a version also says which logged model it was made from"),
    ("traces.life", f"PATCH {V3}/{{id}}/tags: unknown"): Difference(
        400, 404, NOT_FOUND, "a trace that is not there is not found, whatever is done to it"),
    ("traces.assessments", f"POST {V3}/{{id}}/assessments: no name"): Difference(
        200, 400, BAD_REQUEST, "an assessment without a name can not be searched for"),
    **{("traces.search", f"POST {V3}/search: {filter}"): Difference(400, 200, None, MORE_FILTERS)
       for filter in ("status = 'OK' OR status = 'ERROR'", "(status = 'OK')")},
    ("traces.search", f"POST {V3}/search: timestamp_ms = 'x'"): Difference(200, 400, BAD_REQUEST, WRONG_TYPE),
    ("artifacts.proxy", f"GET {PROXY}/{{folder}}/uni-é.txt: uni-é.txt"): Difference(
        200, 200, None, "the name of a file outside ASCII is sent in UTF-8 alone, without a rough spelling beside it"),
    ("artifacts.of_a_run", "GET /get-artifact: accent"): Difference(
        200, 200, None, "the name of a file outside ASCII is sent in UTF-8 alone, without a rough spelling beside it"),
    **{("artifacts.climbing", step): Difference(original, ours, code, UNSAFE_PATH)
       for original, ours, code, steps in CLIMBING for step in steps},
    ("artifacts.of_a_logged_model", "GET /ajax-api/2.0/mlflow/logged-models/{id}/artifacts/files: no path"): Difference(
        400, 400, BAD_REQUEST, ONE_CODE),
    **{("datasets.inputs", f"POST runs/log-inputs: {what}"): Difference(200, 400, BAD_REQUEST, NAMELESS)
       for what in ("no name", "no digest", "no source", "no type", "no dataset", "empty name")},
    ("datasets.models_in_and_out", "POST runs/outputs: again"): Difference(
        400, 200, None, "what is logged again is logged already"),
    ("experiments.create_refusals", "POST experiments/create: location that climbs"): Difference(
        200, 400, BAD_REQUEST, UNSAFE_PATH),
    ("experiments.create_refusals", "POST experiments/create: tag without a key"): Difference(
        400, 400, BAD_REQUEST, ONE_CODE),
    ("experiments.rename_refusals", "POST experiments/update: taken"): Difference(
        400, 400, "RESOURCE_ALREADY_EXISTS", "a name that is taken is refused in the same words everywhere"),
    **{("experiments.search_refusals", f"POST experiments/search: {what}"): Difference(400, 200, None, MORE_FILTERS)
       for what in ("or", "parentheses", "not")},
    ("experiments.search_refusals", "POST experiments/search: fraction"): Difference(400, 400, BAD_REQUEST, ONE_CODE),
    ("experiments.search_refusals", "POST experiments/search: order is text"): Difference(400, 200, None, LENIENT),
    ("logged_models.life", "POST logged-models/{id}/params: id in the path alone"): Difference(
        400, 200, None, "the id in the path is enough"),
    ("logged_models.life", "PATCH logged-models/{id}/tags: long key"): Difference(
        200, 400, BAD_REQUEST, "a key has at most 250 characters; on the original that depends on its database"),
    ("logged_models.life", "DELETE logged-models/{id}: again"): Difference(200, 404, NOT_FOUND, ABSENT),
    ("logged_models.life", "PATCH logged-models/{id}: deleted"): Difference(200, 404, NOT_FOUND, ABSENT),
    ("logged_models.life", "PATCH logged-models/{id}: bogus status"): Difference(200, 400, BAD_REQUEST, UNKNOWN_ENUM),
    ("logged_models.life", "POST logged-models/{id}/params: same again"): Difference(
        400, 200, None, "a parameter that is sent again with its value is no change: a reply may have been lost"),
    ("logged_models.life", "POST logged-models/{id}/params: changed"): Difference(400, 400, BAD_REQUEST, ONE_CODE),
    ("logged_models.life", "POST logged-models/{id}/params: bad key"): Difference(
        200, 400, BAD_REQUEST, "keys are checked as those of runs are"),
    ("logged_models.search", "PATCH logged-models/{id}: delta"): Difference(200, 200, None, NAN),
    **{("logged_models.search", f"POST logged-models/search: status {test}"): Difference(
        200, 200, None, "a status is found by its name; the original finds none")
       for test in ("= 'READY'", "= 'PENDING'", "!= 'READY'")},
    ("logged_models.search", "POST logged-models/search: order without field"): Difference(
        400, 400, BAD_REQUEST, ONE_CODE),
    ("logged_models.search", "POST logged-models/search: digest without dataset"): Difference(
        200, 200, None, "a digest without the name of its dataset is ignored"),
    ("runs.lookups_that_fail", "POST runs/log-batch: long"): Difference(400, 400, BAD_REQUEST, ONE_CODE),
    **{("artifacts.presigned", step): Difference(
        501, 200, None, "parts and signed addresses work with every store of artifacts")
       for step in ("POST /api/2.0/mlflow-artifacts/mpu/create/{folder}",
                    "GET /api/2.0/mlflow-artifacts/presigned/{folder}/a.txt")},
    ("logged_models.create", "POST logged-models: long name"): Difference(
        200, 400, BAD_REQUEST, "a name has at most 500 characters; on the original that depends on its database"),
    ("logged_models.create", "POST logged-models: unknown run"): Difference(
        200, 404, NOT_FOUND, "every id that a request names must be there"),
    ("logged_models.create", "POST logged-models: param twice"): Difference(
        400, 400, BAD_REQUEST, ONE_CODE),
    ("logged_models.metrics", "POST runs/log-metric: unknown model"): Difference(
        400, 404, NOT_FOUND, "every id that a request names must be there"),
    **{("logged_models.search", f"POST logged-models/search: {filter}"): Difference(400, 200, None, MORE_FILTERS)
       for filter in ("name = 'a' OR name = 'b'", "(name = 'a')")},
    **{("logged_models.search", f"POST logged-models/search: {what}"): Difference(200, 200, None, NAN)
       for what in ("metrics.acc < 0.6", "by metric asc", "whole")},
    ("logged_models.search", "POST logged-models/search: negative"): Difference(200, 400, BAD_REQUEST, NO_RESULTS),
    ("logged_models.search", "POST logged-models/search: too many"): Difference(
        200, 400, BAD_REQUEST, "there is a limit on everything"),
    ("logged_models.search", "POST logged-models/search: empty experiments"): Difference(
        200, 400, BAD_REQUEST, "a request without anything in it is a mistake"),
    ("metrics.history", "GET metrics/get-history: unknown run"): Difference(200, 404, NOT_FOUND, ABSENT),
    **{(f"metrics.{what}", f"GET /ajax-api/2.0/mlflow/metrics/get-history-{path}: unknown run"): Difference(
        200, 404, NOT_FOUND, ABSENT) for what, path in (("bulk", "bulk"), ("interval", "bulk-interval"))},
    ("protocol.bodies", "POST experiments/create: null"): Difference(400, 400, BAD_REQUEST, UNREADABLE),
    ("protocol.bodies", "POST runs/search: null"): Difference(200, 400, BAD_REQUEST, UNREADABLE),
    ("protocol.bodies", "POST experiments/create: twice the same field"): Difference(
        200, 400, BAD_REQUEST, "a field that is given twice could mean either; the original takes the last"),
    ("protocol.spellings", "POST experiments/create: both spellings"): Difference(400, 400, BAD_REQUEST, ONE_CODE),
    ("protocol.spellings", "GET experiments/get: camel case"): Difference(400, 200, None, LENIENT),
    **{("run_search.refused_filters", f"POST runs/search: {filter}"): Difference(400, 200, None, MORE_FILTERS)
       for filter in ("metrics.acc > 0.5 OR metrics.acc < 0", "(metrics.acc > 0.5)", "NOT metrics.acc > 0.5")},
    ("run_search.orders", "POST runs/search: ['`run name`']"): Difference(400, 200, None, LENIENT),
    **{("run_search.pages", f"POST runs/search: text as {what}"): Difference(400, 200, None, LENIENT)
       for what in ("order", "experiments")},
    **{("runs.create_refusals", f"POST runs/create: {what} tag key"): Difference(
        200, 400, BAD_REQUEST, "a key that can not be set later can not be set at the start either")
       for what in ("bad", "long")},
    **{("runs.log_model", f"POST runs/log-model: {what}"): Difference(400, 400, BAD_REQUEST, ONE_CODE)
       for what in ("empty", "unknown run")},
    ("runs.log_model", "GET runs/get"): Difference(
        200, 200, None, "the history of logged models is the same JSON, without spaces and in another order of keys"),
    **{("evaluation.dataset_records", f"{method} {DATASETS}/{{id}}/records: unknown"): Difference(200, 404, NOT_FOUND, ABSENT)
       for method in ("GET", "POST")},
    ("evaluation.dataset_search", f"POST {DATASETS}/search: name > 'a'"): Difference(
        200, 400, BAD_REQUEST, "names are the same or alike, not larger or smaller, as everywhere else"),
    ("traces.otlp", "POST /v1/traces: unknown experiment"): Difference(
        200, 404, NOT_FOUND, "every id that a request names must be there"),
}


if __name__ == "__main__":
    print("| request | MLflow | Falaj | why |\n|---|---|---|---|")
    for rule in RULES:
        print(f"| any that makes MLflow answer 5xx | 5xx | 4xx | {rule.reason} |")
    for (scenario, step), entry in sorted(DIFFERENCES.items()):
        print(f"| `{step}` | {entry.original} | {entry.ours} {entry.code or ''} | {entry.reason} |")
