"""Runs by the command line: run a command, follow it, compare, do it again, and delete for good."""

import json
import signal
import socket
import subprocess
import sys

import pytest

from server import binary, environment

# Logs one metric the way MLflow's client does, without needing it here.
SCRIPT = """
import json, os, sys, urllib.request
print("learning rate", sys.argv[1])
print("to stderr", file=sys.stderr)
body = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": "loss", "value": float(sys.argv[1]) * 2, "timestamp": 1}
for path, body in [("log-metric", body), ("log-parameter", {"run_id": body["run_id"], "key": "lr", "value": sys.argv[1]})]:
    request = urllib.request.Request(
        os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/" + path, json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]})
    urllib.request.urlopen(request).read()
print("seed", os.environ.get("FALAJ_SEED"))
sys.exit(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
"""


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.ae", *command], cwd=folder, check=True)
    return folder


@pytest.fixture
def falaj(server, tmp_path):
    def run(*arguments, code=0, **options):
        env = environment(FALAJ_URL=server.url, FALAJ_TOKEN=server.admin_token(), HOME=str(tmp_path),
                          XDG_CONFIG_HOME=str(tmp_path / "config"))
        done = subprocess.run([binary(), *map(str, arguments)], env=env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=120, **options)
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done
    run.env = environment(FALAJ_URL=server.url, FALAJ_TOKEN=server.admin_token(), HOME=str(tmp_path))
    return run


def as_json(done):
    return json.loads(done.stdout)


def started(done):
    line = next(line for line in done.stderr.splitlines() if line.startswith("run "))
    return line.split()[1]


def test_a_command_becomes_a_run_that_can_be_done_again(falaj, repository, tmp_path):
    exec_ = ("run", "exec", "--experiment", "cli/train", "--seed", "7", "--tag", "team=a", "--")
    done = falaj(*exec_, sys.executable, "train.py", "0.1", cwd=repository)
    assert done.stdout == "learning rate 0.1\nseed 7\n"
    assert "to stderr" in done.stderr
    first = started(done)
    shown = as_json(falaj("run", "show", first, "--output", "json"))
    assert shown["status"] == "FINISHED"
    assert shown["metrics"]["loss"]["value"] == 0.2
    assert shown["tags"]["team"] == "a" and shown["tags"]["falaj.seed"] == "7"
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, capture_output=True, text=True).stdout.strip()
    assert shown["tags"]["mlflow.source.git.commit"] == commit
    assert shown["tags"]["falaj.git.dirty"] == "false"

    kept = falaj("run", "log", first).stdout
    assert sorted(kept.splitlines()) == ["learning rate 0.1", "seed 7", "to stderr"]
    assert falaj("run", "log", first, "--tail", "7", "--follow").stdout == kept[-7:]

    # The code is changed, a file is new, and it fails.
    with open(repository / "train.py", "a") as script:
        script.write("# changed\n")
    (repository / "new file.txt").write_text("new\n")
    done = falaj(*exec_, sys.executable, "train.py", "0.3", "3", cwd=repository, code=3)
    second = started(done)
    assert as_json(falaj("run", "show", second, "--output", "json"))["status"] == "FAILED"
    followed = [json.loads(line) for line in falaj("run", "follow", second, "--output", "json").stdout.splitlines()]
    assert followed[-1]["event"] == "end" and followed[-1]["status"] == "FAILED"

    diff = as_json(falaj("run", "diff", first, second, "--output", "json"))
    assert {"key": "lr", "left": "0.1", "right": "0.3"} in diff["params"]
    assert {one["key"] for one in diff["code"]} == {"command", "dirty", "patch"}
    assert diff["environment"] == []
    assert "lr" in falaj("run", "diff", first, second).stdout

    script = falaj("run", "replay", second).stdout
    assert commit in script and "train.py 0.3 3" in script and "git apply" in script
    again = tmp_path / "again"
    done = falaj("run", "replay", second, "--start", "--into", again, "--no-env", "--yes", code=3)
    assert "learning rate 0.3" in done.stdout
    assert (again / "code" / "train.py").read_text() == SCRIPT + "# changed\n"
    assert (again / "code" / "new file.txt").read_text() == "new\n"
    third = started(done)
    shown = as_json(falaj("run", "show", third, "--output", "json"))
    assert shown["tags"]["falaj.replay_of"] == second
    diff = as_json(falaj("run", "diff", second, third, "--output", "json"))
    assert diff["params"] == [] and diff["metrics"] == []
    assert {one["key"] for one in diff["code"]} <= {"repository", "branch"}, diff["code"]

    found = as_json(falaj("run", "search", "metrics.loss > 0.5", "--experiment", "cli/train",
                          "--columns", "params.lr", "--output", "json"))
    assert {run["run_id"] for run in found} == {second, third}
    assert found[0]["params"] == {"lr": "0.3"} and found[0]["metrics"] == {}
    assert "params.lr" in falaj("run", "search", "--columns", "params.lr").stdout.lower()
    assert len(as_json(falaj("run", "list", "cli/train", "--output", "json"))) == 3
    assert "loss" in falaj("run", "metrics", first).stdout
    tree = falaj("experiment", "tree").stdout
    assert "cli/" in tree and "train" in tree


def test_a_command_that_is_not_there_fails_its_run(falaj, tmp_path):
    done = falaj("run", "exec", "--experiment", "cli/absent", "--no-packages", "--", "no-such-command-here", code=2,
                 cwd=tmp_path)
    assert as_json(falaj("run", "show", started(done), "--output", "json"))["status"] == "FAILED"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_and_its_run(falaj, tmp_path, number):
    command = [binary(), "run", "exec", "--experiment", "cli/killed", "--no-packages", "--", sys.executable, "-c",
               "import time; print('ready', flush=True); time.sleep(60)"]
    # Whoever runs the tests in the background has SIGINT ignored, and that is inherited.
    with subprocess.Popen(command, env=falaj.env, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    # Python ends by SIGINT with an exception, and then by the signal itself.
    assert process.returncode in (128 + number, 1), said
    run = next(line for line in said.splitlines() if line.startswith("run ")).split()[1]
    status = as_json(falaj("run", "show", run, "--output", "json"))["status"]
    assert status == "KILLED", said


def test_deleting_for_good(falaj, tmp_path):
    falaj("project", "create", "bin")
    place = ("-p", "bin")
    experiment = as_json(falaj("experiment", "create", "to/purge", "--output", "json", *place))
    held = as_json(falaj("experiment", "create", "to/hold", "--output", "json", *place))
    runs = []
    for name in ("to/purge", "to/purge", "to/hold"):
        done = falaj("run", "exec", "--experiment", name, "--no-packages", *place, "--", "echo", "hello", cwd=tmp_path)
        runs.append(started(done))
    falaj("hold", "set", "case-1", "--reason", "a case", "--experiment", "to/hold", *place)
    assert "case-1" in falaj("hold", "list", *place).stdout
    falaj("run", "delete", runs[2], *place)
    refused = falaj("run", "purge", runs[2], "--yes", *place, code=6)
    assert "case-1" in refused.stderr and "a case" in refused.stderr

    falaj("run", "purge", runs[0], "--yes", *place, code=1)
    falaj("run", "delete", runs[0], *place)
    falaj("run", "restore", runs[0], *place)
    falaj("run", "delete", runs[0], *place)
    falaj("run", "purge", runs[0], "--yes", *place)
    falaj("run", "show", runs[0], *place, code=5)
    falaj("experiment", "delete", "to/purge", *place)
    assert falaj("retention", "show", "--output", "json", *place)
    would = as_json(falaj("gc", "--dry-run", "--older-than-days", "0", "--output", "json", *place))
    assert (would["experiments"], would["runs"], would["kept_count"]) == (1, 0, 1)
    done = as_json(falaj("gc", "--older-than-days", "0", "--yes", "--output", "json", *place))
    assert (done["experiments"], done["kept_count"]) == (1, 1)
    falaj("run", "show", runs[1], *place, code=5)
    again = as_json(falaj("experiment", "create", "to/purge", "--output", "json", *place))
    assert int(again["experiment_id"]) > int(held["experiment_id"]) > int(experiment["experiment_id"])

    falaj("retention", "set", "30", *place)
    refused = falaj("gc", "--older-than-days", "1", "--yes", *place, code=1)
    assert "30 or more" in refused.stderr
    falaj("retention", "clear", *place)
    falaj("hold", "release", "case-1", "--yes", *place)
    falaj("run", "purge", runs[2], "--yes", *place)


def test_a_log_is_followed_while_it_grows(falaj, server, admin):
    own = "/v1/tenants/default/projects/default/runs"
    run = admin.post("/api/2.0/mlflow/runs/create", json={"experiment_id": "0"}).json()["run"]["info"]["run_id"]
    with subprocess.Popen([binary(), "run", "log", run, "--follow"], env=falaj.env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True) as process:
        offset = 0
        for line in ("one\n", "zwö\n", "three\n"):
            piece = line.encode()
            answer = admin.post(f"{own}/{run}/log", params={"offset": offset}, data=piece)
            assert answer.json() == {"size": offset + len(piece), "repeated": False}, answer.text
            # Sent again after a lost reply, it is there once.
            answer = admin.post(f"{own}/{run}/log", params={"offset": offset}, data=piece)
            assert answer.json()["repeated"] is True
            offset += len(piece)
            assert process.stdout.readline() == line
        admin.post("/api/2.0/mlflow/runs/update", json={"run_id": run, "status": "FINISHED", "end_time": 1})
        assert process.communicate(timeout=30)[0] == ""
    assert process.returncode == 0


def create_by_hand(server, token, body):
    """Sends a creation on a connection of its own; the connection, with the reply still to be read."""
    text = json.dumps(body)
    stream = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    stream.sendall((f"POST /api/2.0/mlflow/runs/create HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
                    f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(text)}\r\n\r\n{text}").encode())
    return stream


def run_of(stream):
    reply = b""
    while b"run_id" not in reply or not reply.rstrip().endswith(b"}"):
        piece = stream.recv(65536)
        assert piece, reply
        reply += piece
    return json.loads(reply.split(b"\r\n\r\n", 1)[1])["run"]["info"]["run_id"]


def test_a_creation_is_repeated_after_a_lost_reply_and_happens_once(server, admin):
    token = server.admin_token()
    experiment = admin.post("/api/2.0/mlflow/experiments/create", json={"name": "repeated"}).json()["experiment_id"]

    def runs():
        found = admin.post("/api/2.0/mlflow/runs/search", json={"experiment_ids": [experiment]}).json()
        return [run["info"]["run_id"] for run in found.get("runs", [])]

    body = {"experiment_id": experiment, "start_time": 1700000000000, "run_name": "once"}
    lost = create_by_hand(server, token, body)
    lost.recv(1)  # The reply has begun, so the run is made; the rest of it never arrives.
    made = runs()
    assert len(made) == 1
    lost.shutdown(socket.SHUT_RDWR)
    # The server answers the end of a connection with the end of it.
    lost.settimeout(10)
    lost.close()
    # A connection that is gone is noticed by the time another one has been opened, used and closed.
    for _ in range(20):
        assert admin.get("/health/live", headers={"Connection": "close"}).status_code == 200
    with create_by_hand(server, token, body) as again:
        assert run_of(again) == made[0]
    assert runs() == made

    # Workers that start alike at the same moment, each on a living connection, are two.
    body["run_name"] = "twice"
    with create_by_hand(server, token, body) as one, create_by_hand(server, token, body) as two:
        first = run_of(one)
        assert run_of(two) != first
        # And once something was logged, a repeat is a second run however its connection ended.
    assert len(runs()) == 3
