"""A real PyTorch job of two ranks, killed in the middle, ends with the loss that it would have had.

It runs `docs/examples/ddp.py` as it is, with the system's Python and PyTorch and no `torchrun`.
"""

import os
import pathlib
import re
import signal
import subprocess

import pytest

from engines import OnEngine
from server import binary, environment
from test_training import API, SMALL, ended, in_state, log, starts, submit, until

ROOT = pathlib.Path(__file__).parents[1]
SCRIPT = ROOT / "docs" / "examples" / "ddp.py"
PYTHON = "/usr/bin/python3"
STEPS, EVERY = 300, 20
COMMAND = [PYTHON, str(SCRIPT), "--steps", str(STEPS), "--save-every", str(EVERY), "--pause", "0.02"]
JOB = {"name": "ddp", "retries": 1, "framework": "torch", "checkpoint": {"keep": 4},
       "env": {"PYTHONPATH": str(ROOT / "sdk" / "python" / "src")},
       "resources": {"cpu": 2, "memory": "2GiB", "ranks_per_node": 2}}

pytestmark = pytest.mark.skipif(
    subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode != 0,
    reason="the system's Python has no PyTorch: scripts/setup test installs it")


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    server = OnEngine(tmp_path_factory.mktemp("ddp"), "sqlite", **SMALL).start()
    yield server, server.client(server.admin_token())
    server.stop()
    assert "panicked" not in server.log.read_text(errors="replace"), server.tail()


@pytest.fixture(scope="module")
def undisturbed(stage):
    """What the job comes to if nobody touches it, from the command line."""
    server, _ = stage
    words = ["--name", "ddp", "--cpu", "2", "--memory", "2GiB", "--ranks", "2", "--checkpoint",
             "--env", f"PYTHONPATH={JOB['env']['PYTHONPATH']}", "--follow"]
    settings = environment(FALAJ_URL=server.url, FALAJ_TOKEN=server.admin_token())
    done = subprocess.run([binary(), "train", *words, "--", *COMMAND], env=settings, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    text = done.stdout.decode()
    assert text.startswith(f"begins at step 0 of {STEPS}, rank 0 of 2\n"), text
    return final(text)


def final(text):
    (found,) = re.findall(r"^final loss (\S+), weights ([0-9a-f]{64})$", text, re.M)
    # It was about 4 before training.
    assert 0 < float(found[0]) < 0.5, text
    return found


def ranks(id):
    """The processes of a job, by rank."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            settings = dict(it.split(b"=", 1) for it in (folder / "environ").read_bytes().split(b"\0") if b"=" in it)
        except OSError:
            continue
        if str(SCRIPT).encode() in words and settings.get(b"FALAJ_JOB_ID") == id.encode():
            found[int(settings[b"RANK"])] = int(folder.name)
    return found


def begin(admin, least):
    """A job that is in the middle: some checkpoints are whole, and more are to come."""
    made = submit(admin, COMMAND, **JOB)

    def in_the_middle():
        kept = admin.get(f"{API}/jobs/{made['id']}/checkpoints").json()["items"]
        return kept and kept[0]["step"] >= least
    until(in_the_middle, what="a whole checkpoint")
    processes = ranks(made["id"])
    assert sorted(processes) == [0, 1]
    return made["id"], processes


def resumed(admin, id, least):
    """Where the second start of a job began; it has succeeded."""
    ended(admin, id)
    first, second = starts(admin, id)
    assert (first["state"], second["state"]) == ("FAILED", "SUCCEEDED"), (first, second)
    step = second["resumed_from"]
    assert least <= step < STEPS and step % EVERY == 0
    for rank in range(2):
        beginning = f"begins at step {step} of {STEPS}, rank {rank} of 2\n"
        assert log(admin, id, attempt=2, rank=rank).startswith(beginning)
    assert "final" not in log(admin, id, attempt=1)
    return step


def test_a_rank_is_killed(stage, undisturbed):
    _, admin = stage
    id, processes = begin(admin, 2 * EVERY)
    os.kill(processes[1], signal.SIGKILL)
    resumed(admin, id, 2 * EVERY)
    assert final(log(admin, id, attempt=2)) == undisturbed


def test_the_server_and_a_rank_are_killed(stage, undisturbed):
    server, admin = stage
    id, processes = begin(admin, 2 * EVERY)
    server.process.kill()
    server.process.wait()
    # It goes on without the server, and saves: files say what was saved.
    def saved():
        parts = (server.data / "training" / "checkpoints").rglob("rank-1.json")
        return {part.parent for part in parts if (part.parent / "rank-0.json").exists()}

    before = saved()
    until(lambda: saved() > before, what="a checkpoint without the server")
    os.kill(processes[0], signal.SIGKILL)
    until(lambda: not ranks(id), what="the end of the other rank")
    server.start()
    resumed(admin, id, 3 * EVERY)
    assert final(log(admin, id, attempt=2)) == undisturbed


def test_it_leaves_when_others_need_its_nodes(stage, undisturbed):
    """Told to, it saves at that very step and goes on later, with nothing lost and nothing failed."""
    _, admin = stage
    id, _ = begin(admin, EVERY)
    all_there_is = {"cpu": 2, "memory": "64MiB", "nodes": 2}
    urgent = submit(admin, "true", priority=10, resources=all_there_is)
    ended(admin, urgent["id"])
    in_state(admin, id, "STARTING", "RUNNING", "SUCCEEDED")
    ended(admin, id)
    first, second = starts(admin, id)
    assert (first["state"], second["state"]) == ("PREEMPTED", "SUCCEEDED"), (first, second)
    last = log(admin, id, attempt=1).splitlines()[-1]
    assert last.startswith(f"step {second['resumed_from']}: loss "), last
    assert final(log(admin, id, attempt=2)) == undisturbed
