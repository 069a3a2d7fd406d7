"""One scenario against one server: sends what it is told to send, and writes down what came back.

A scenario is a plain function that takes a `Recorder`. It runs once on the real MLflow and once on each
Falaj, and must do the same on all of them: no branches on who answers, no names that differ from run to
run. Nothing is asserted here; `compare.py` does that with two finished recordings.
"""

import dataclasses
import hashlib
import json
import re
import time

API = "/api/2.0/mlflow/"
SHORT = 4096
# The folder of a run or model, and an id: they differ from server to server, so no name holds them.
FOLDER = re.compile(r"\d+/(models/m-)?[0-9a-f]{32}/artifacts")
ID = re.compile(r"\b(m-|tr-|a-|d-|dr-|iss-)?[0-9a-f]{32}\b")

SCENARIOS = {}


def scenario(function):
    """Adds a function to the scenarios, under the name `file.function`."""
    name = f"{function.__module__.removeprefix('scenarios.')}.{function.__name__}"
    assert name not in SCENARIOS, name
    SCENARIOS[name] = function
    return function


class Missing(Exception):
    """The scenario needs something from a reply that the reply does not have."""


@dataclasses.dataclass
class Step:
    """One request and its reply."""
    name: str
    method: str
    path: str
    status: int
    body: object
    headers: dict

    def __getitem__(self, key):
        try:
            return self.body[key]
        except (KeyError, TypeError):
            raise Missing(f"{self.name}: no {key!r} in {self.status} {str(self.body)[:500]}") from None

    def get(self, key, default=None):
        return self.body.get(key, default) if isinstance(self.body, dict) else default


class Recorder:
    def __init__(self, http, scenario):
        self.http = http
        self.scenario = scenario
        self.steps = []
        self.aborted = None
        self._names = {}

    def run(self):
        try:
            SCENARIOS[self.scenario](self)
        except Missing as missing:
            self.aborted = str(missing)
        return self

    def unique(self, name):
        """A name that no other scenario uses."""
        return f"{self.scenario}-{name}"

    def experiment(self, name="e"):
        return self.post("experiments/create", {"name": self.unique(name)})["experiment_id"]

    def start(self, experiment, **fields):
        """A run; returns its id."""
        fields = {"experiment_id": experiment, "start_time": 1000, "run_name": "r"} | fields
        return self.post("runs/create", fields)["run"]["info"]["run_id"]

    def tick(self):
        """Lets the clock of the server move on, where times decide an order."""
        time.sleep(0.005)

    def get(self, path, params=None, label=""):
        return self.send("GET", path, label, params=params)

    def post(self, path, body, label=""):
        return self.send("POST", path, label, json=body)

    def patch(self, path, body, label=""):
        return self.send("PATCH", path, label, json=body)

    def delete(self, path, body=None, label=""):
        return self.send("DELETE", path, label, **({} if body is None else {"json": body}))

    def send(self, method, path, label="", keep=(), **options):
        """`path` is under the REST prefix, or absolute if it begins with a slash. `keep` names the
        headers of the reply that are compared."""
        full = path if path.startswith("/") else API + path
        answer = self.http.request(method, full, **options)
        place = ID.sub("{id}", FOLDER.sub("{folder}", path.partition("?")[0]))
        name = f"{method} {place}" + (f": {label}" if label else "")
        self._names[name] = count = self._names.get(name, 0) + 1
        headers = {key: answer.headers.get(key) for key in keep}
        step = Step(name if count == 1 else f"{name} #{count}", method, full, answer.status_code,
                    readable(answer), headers)
        self.steps.append(step)
        return step


def readable(answer):
    """The body as JSON if it is that, as text if it is short text, and as a digest otherwise."""
    try:
        return json.loads(answer.content)
    except ValueError:
        pass
    try:
        if len(answer.content) <= SHORT:
            return answer.content.decode()
    except UnicodeDecodeError:
        pass
    return f"{len(answer.content)} bytes, SHA-256 {hashlib.sha256(answer.content).hexdigest()}"
