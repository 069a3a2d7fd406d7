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

BAD_REQUEST = "INVALID_PARAMETER_VALUE"
NOT_FOUND = "RESOURCE_DOES_NOT_EXIST"
V3 = "/api/3.0/mlflow/traces"

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
    ("versions.sources", "POST model-versions/create: https"): Difference(
        400, 200, None, "a source is kept as a text: unlike the original, the server never connects to one"),
    ("versions.sources", "POST model-versions/create: model"): Difference(
        200, 200, None, "a version also says which logged model it was made from"),
    ("traces.life", f"PATCH {V3}/{{id}}/tags: unknown"): Difference(
        400, 404, NOT_FOUND, "a trace that is not there is not found, whatever is done to it"),
    ("traces.assessments", f"POST {V3}/{{id}}/assessments: no name"): Difference(
        200, 400, BAD_REQUEST, "an assessment without a name can not be searched for"),
    **{("traces.search", f"POST {V3}/search: {filter}"): Difference(400, 200, None, MORE_FILTERS)
       for filter in ("status = 'OK' OR status = 'ERROR'", "(status = 'OK')")},
    ("traces.search", f"POST {V3}/search: timestamp_ms = 'x'"): Difference(200, 400, BAD_REQUEST, WRONG_TYPE),
    ("traces.otlp", "POST /v1/traces: unknown experiment"): Difference(
        200, 404, NOT_FOUND, "every id that a request names must be there"),
}


if __name__ == "__main__":
    print("| request | MLflow | Falaj | why |\n|---|---|---|---|")
    for rule in RULES:
        print(f"| any that makes MLflow answer 5xx | 5xx | 4xx | {rule.reason} |")
    for (scenario, step), entry in sorted(DIFFERENCES.items()):
        print(f"| `{step}` | {entry.original} | {entry.ours} {entry.code or ''} | {entry.reason} |")
