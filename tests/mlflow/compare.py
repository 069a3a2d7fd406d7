"""Whether two recordings of one scenario say the same, once what must differ is taken out.

Ids are replaced by their order of appearance, times made by the server and page tokens by a word. Lists
that have no order on the original (tags, params, a run's latest metrics) are sorted. Of an error, status
and `error_code` are compared, and the message where clients and MLflow's own tests look at it.
"""

import json
import re

from differences import DIFFERENCES, RULES

HEX_ID = re.compile(r"\b(m-|tr-|a-|d-|dr-|iss-)?[0-9a-f]{32}\b")
PROXIED = re.compile(r"(mlflow-artifacts:/)(\d+)(?=/|$)")
RANDOM_NAME = re.compile(r"^[a-z]+-[a-z]+-\d+$")
# What a message begins with is what MLflow's tests match on; the rest is prose.
LEADS = [re.compile(r"^Missing value for required parameter '[^']*'"),
         re.compile(r"^Invalid value .* for parameter '[^']*' supplied", re.DOTALL),
         re.compile(r"^Prompt text exceeds max length of \d+ characters")]
# No test chooses a time of this century, so any such number was made by the server.
CENTURY = range(1_600_000_000_000, 4_000_000_000_000)
UNORDERED = {"tags", "params", "aliases", "dataset_inputs", "model_inputs", "model_outputs",
             "dataset_summaries"}
# Optional in the error body; clients do not read them.
IGNORED_IN_ERRORS = {"sqlstate", "error_class"}


class Normaliser:
    """Replaces what is different on every server, consistently within one recording."""

    def __init__(self, steps):
        self.ids = {}
        self.experiments = {}
        for step in steps:
            self._find_experiments(step.body)

    def _find_experiments(self, value):
        if isinstance(value, dict):
            for key, inner in value.items():
                if key == "experiment_id" and isinstance(inner, str) and inner != "0":
                    self.experiments.setdefault(inner, f"<experiment {len(self.experiments) + 1}>")
                self._find_experiments(inner)
        elif isinstance(value, list):
            for inner in value:
                self._find_experiments(inner)

    def text(self, value):
        value = HEX_ID.sub(lambda hit: self.ids.setdefault(hit[0], f"<{hit[1] or ''}id {len(self.ids) + 1}>"), value)
        return PROXIED.sub(lambda hit: hit[1] + self.experiments.get(hit[2], hit[2]), value)

    def body(self, value, key=None, parent=None):
        if isinstance(value, dict):
            if RANDOM_NAME.match(str(value.get("value"))) and value.get("key") == "mlflow.runName":
                value = value | {"value": "<random name>"}
            return {self.text(k): self.body(v, k, key) for k, v in value.items()}
        if isinstance(value, list):
            items = [self.body(item, key, parent) for item in value]
            if key in UNORDERED or (key == "metrics" and parent == "data"):
                items.sort(key=lambda item: json.dumps(item, sort_keys=True))
            return items
        if isinstance(value, str):
            if key in ("next_page_token",):
                return "<token>"
            if key == "experiment_id":
                return self.experiments.get(value, value)
            if key == "run_name" and RANDOM_NAME.match(value):
                return "<random name>"
            return self.text(value)
        if isinstance(value, int) and not isinstance(value, bool) and value in CENTURY:
            return "<time>"
        return value

    def step(self, step):
        body = step.body
        if step.status >= 400:
            body = self.error(body)
        return {"status": step.status, "body": self.body(body), "headers": step.headers}

    def error(self, body):
        if not isinstance(body, dict) or "error_code" not in body:
            return "<not an API error>"
        rest = {k: v for k, v in body.items() if k not in IGNORED_IN_ERRORS and k != "message"}
        lead = next((hit[0] for lead in LEADS if (hit := lead.match(str(body.get("message"))))), None)
        return rest | ({"message": lead} if lead else {})


def normalised(recording):
    normaliser = Normaliser(recording.steps)
    return {step.name: normaliser.step(step) for step in recording.steps}


def unlike(original, ours):
    """Every way in which our recording is not what the original, and the table of deliberate
    differences, ask for. Empty if there is none."""
    theirs, mine = normalised(original), normalised(ours)
    found = []
    if ours.aborted:
        found.append(f"could not go on: {ours.aborted}")
    for name, expected in theirs.items():
        got = mine.get(name)
        if got is None:
            found.append(f"{name}: never asked")
            continue
        problem = judge(original.scenario, name, expected, got)
        if problem:
            message = next(step.body for step in ours.steps if step.name == name)
            found.append(f"{name}: {problem}\n      ours in full: {str(message)[:600]}")
    return found


def judge(scenario, name, expected, got):
    """What is wrong with one reply; None if nothing is."""
    deliberate = DIFFERENCES.get((scenario, name))
    if deliberate:
        if expected["status"] != deliberate.original:
            return f"the table says {deliberate.original} for the original, it answers {expected['status']}"
        code = got["body"].get("error_code") if isinstance(got["body"], dict) else None
        if (got["status"], code) != (deliberate.ours, deliberate.code):
            return f"deliberately {deliberate.ours} {deliberate.code}, but it is {got['status']} {code}"
        return None
    for rule in RULES:
        if rule.applies(expected):
            return None if rule.met(got) else f"{rule.reason}: got {got['status']} {got['body']}"
    if expected["body"] == "<not an API error>":
        return None if got["status"] == expected["status"] else f"{expected['status']} != {got['status']}"
    return "\n      ".join(first_differences(expected, got)) or None


def first_differences(expected, got, path="", limit=4):
    """Where two values part, with the path to each place."""
    if expected == got and type(expected) is type(got):
        return []
    if isinstance(expected, dict) and isinstance(got, dict):
        found = []
        for key in sorted(expected.keys() | got.keys()):
            if key not in got:
                found.append(f"{path}.{key}: missing, should be {short(expected[key])}")
            elif key not in expected:
                found.append(f"{path}.{key}: should be absent, is {short(got[key])}")
            else:
                found += first_differences(expected[key], got[key], f"{path}.{key}", limit)
        return found[:limit]
    if isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        found = []
        for index, (left, right) in enumerate(zip(expected, got)):
            found += first_differences(left, right, f"{path}[{index}]", limit)
        return found[:limit]
    if isinstance(expected, (int, float)) and isinstance(got, (int, float)) and expected == got \
            and isinstance(expected, bool) == isinstance(got, bool):
        return []
    return [f"{path}: should be {short(expected)}, is {short(got)}"]


def short(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}… ({len(text)} characters)"
