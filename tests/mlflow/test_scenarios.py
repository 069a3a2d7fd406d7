"""Each scenario runs on the real MLflow and on Falaj; every reply must say the same."""

import json
import os
import pathlib

import pytest
import scenarios  # noqa: F401  fills the list
from compare import unlike
from endpoints import TIER_A, template
from recorder import SCENARIOS, Recorder

# A folder to keep every reply in, for looking at them.
KEPT = os.environ.get("MLFLOW_RECORDINGS")
_recorded = {}


def recorded(server, name):
    """What a server answers in a scenario; each is run once."""
    key = (server.url, name)
    if key not in _recorded:
        _recorded[key] = Recorder(server.client(), name).run()
        if KEPT:
            write_down(_recorded[key], pathlib.Path(KEPT, type(server).__name__))
    return _recorded[key]


def write_down(recording, folder):
    folder.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps([step.name, step.status, step.body], ensure_ascii=False) for step in recording.steps)
    (folder / f"{recording.scenario}.jsonl").write_text("\n".join(lines))


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(original, target, name):
    theirs = recorded(original, name)
    assert not theirs.aborted, f"the scenario is wrong: {theirs.aborted}"
    if target is original:
        return
    problems = unlike(theirs, recorded(target, name))
    assert not problems, f"{len(problems)} of {len(theirs.steps)} replies differ:\n  " + "\n  ".join(problems[:25])


def test_every_endpoint_is_covered(original):
    asked = {(step.method, template(step.path)) for name in SCENARIOS for step in recorded(original, name).steps}
    assert not (missing := sorted(TIER_A - asked)), missing
