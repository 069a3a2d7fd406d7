"""Jobs from submission to their end, with the real binary, real processes and both databases."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import textwrap
import time

import pytest

from engines import ENGINES, OnEngine
from server import Server, binary, environment

API = "/t/default/default/api"
# The file that keeps a second server out of a data folder, and names it.
LOCK = "server.id"
OVER = ("SUCCEEDED", "FAILED", "CANCELLED", "LOST")
# Two nodes of two cores, whatever the machine has, and little patience.
SMALL = {
    "FALAJ_TRAINING_LOCAL_CPU": "4", "FALAJ_TRAINING_LOCAL_MEMORY": "8GiB", "FALAJ_TRAINING_LOCAL_NODES": "2",
    "FALAJ_TRAINING_LOCAL_GPUS": "4", "FALAJ_TRAINING_LOCAL_GPU_TYPE": "toy", "FALAJ_TRAINING_GRACE": "3s",
    "FALAJ_TRAINING_CHECKPOINT_GRACE": "20s", "FALAJ_TRAINING_HANG_AFTER": "6s",
    "FALAJ_TRAINING_PRICES_CORE": "3600", "FALAJ_TRAINING_LOCAL_TENANTS": "trusted",
}


@pytest.fixture(scope="module", params=ENGINES)
def stage(request, tmp_path_factory):
    server = OnEngine(tmp_path_factory.mktemp(f"training-{request.param}"), request.param, **SMALL).start()
    yield server, server.client(server.admin_token())
    alive = server.process.poll() is None
    tail = server.tail()
    server.stop()
    assert alive and "panicked" not in server.log.read_text(errors="replace"), tail


@pytest.fixture(params=ENGINES)
def fragile(request, tmp_path):
    """A server that a test may kill."""
    server = OnEngine(tmp_path, request.param, **SMALL).start()
    yield server, server.client(server.admin_token())
    server.stop()


def submit(admin, command, **more):
    words = ["sh", "-c", command] if isinstance(command, str) else command
    body = {"name": "test", "command": words, "resources": {"cpu": 0.5, "memory": "64MiB"}} | more
    answer = admin.post(f"{API}/jobs", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def job(admin, id):
    answer = admin.get(f"{API}/jobs/{id}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def until(check, within=120, what="it"):
    """Waits for something to be true; long enough for a machine that has much else to do."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        found = check()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {within} s")


def ended(admin, id, state="SUCCEEDED", within=180):
    found = until(lambda: (now := job(admin, id))["state"] in OVER and now, within, f"the end of {id}")
    assert found["state"] == state, found
    return found


def in_state(admin, id, *states):
    return until(lambda: (now := job(admin, id))["state"] in states and now, what=f"{id} to be {states}")


def starts(admin, id):
    return admin.get(f"{API}/jobs/{id}/attempts").json()["items"]


def log(admin, id, **query):
    """All of an output."""
    text = b""
    while True:
        answer = admin.get(f"{API}/jobs/{id}/logs", params=query | {"offset": len(text)})
        assert answer.status_code == 200, answer.text
        if not answer.content:
            return text.decode()
        text += answer.content


def falaj(server, *words, code=0, plain=False):
    settings = environment(FALAJ_URL=server.url, FALAJ_TOKEN=server.admin_token())
    more = [] if plain else ["--output", "json"]
    separator = words.index("--") if "--" in words else len(words)
    words = [*words[:separator], *more, *words[separator:]]
    done = subprocess.run([binary(), *words], env=settings, capture_output=True, timeout=240)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout.decode() if plain else json.loads(done.stdout)


def test_a_job_runs_and_is_tracked(stage):
    _, admin = stage
    made = submit(admin, "echo out; echo err >&2; echo $GREETING $FALAJ_JOB_ID $MLFLOW_RUN_ID",
                  env={"GREETING": "salam"}, params={"lr": "0.1"}, datasets=["trips@gold"])
    assert made["state"] == "PENDING" and made["pool"] == "local"
    done = ended(admin, made["id"])
    assert done["tasks"] == {"count": 1, "succeeded": 1, "failed": 0, "cancelled": 0, "lost": 0}
    text = log(admin, made["id"])
    assert "out\n" in text and "err\n" in text and f"salam {made['id']} {made['run_id']}" in text
    (start,) = starts(admin, made["id"])
    assert (start["state"], start["exit_code"], start["world_size"]) == ("SUCCEEDED", 0, 1)
    assert start["cost"] > 0

    def finished():
        run = admin.get("/t/default/default/api/2.0/mlflow/runs/get", params={"run_id": made["run_id"]}).json()["run"]
        return run["info"]["status"] == "FINISHED" and run
    run = until(finished, what="the end of the run")
    assert {"key": "lr", "value": "0.1"} in run["data"]["params"]
    tags = {tag["key"]: tag["value"] for tag in run["data"]["tags"]}
    assert tags["falaj.job"] == made["id"] and tags["falaj.datasets"] == "trips@gold"
    kinds = [event["type"] for event in admin.get("/v1/events", params={"limit": 1000}).json()["items"]]
    assert "falaj.job.submitted" in kinds and "falaj.job.ended" in kinds


def test_output_is_the_same_while_it_runs_and_once_it_is_kept(stage):
    _, admin = stage
    made = submit(admin, "for i in $(seq 1 2000); do echo line $i; done; touch $PWD/x; sleep 2; echo last")
    early = until(lambda: len(log(admin, made["id"])) > 10000 and log(admin, made["id"]), what="some output")
    ended(admin, made["id"])
    expected = "".join(f"line {i}\n" for i in range(1, 2001)) + "last\n"
    until(lambda: log(admin, made["id"]) == expected, what="the whole output")
    assert expected.startswith(early)
    part = admin.get(f"{API}/jobs/{made['id']}/logs", params={"offset": 5, "limit": 6})
    assert part.content == expected[5:11].encode() and part.headers["x-falaj-log-done"] == "false"
    # What the executor kept is gone once it is in the object store.
    pool = stage[0].data / "training" / "pools" / "local"
    until(lambda: not list(pool.glob(f"{made['id']}*")), what="the executor to forget")
    assert log(admin, made["id"]) == expected


def test_failures_are_told_and_retried(stage):
    _, admin = stage
    made = submit(admin, "echo no; exit 7")
    done = ended(admin, made["id"], "FAILED")
    assert done["reason"] == "rank 0 ended with 7"
    made = submit(admin, 'echo start $FALAJ_START; test "$FALAJ_START" = 3', retries=3)
    ended(admin, made["id"])
    assert [(it["attempt"], it["state"]) for it in starts(admin, made["id"])] == [
        (1, "FAILED"), (2, "FAILED"), (3, "SUCCEEDED")]
    assert log(admin, made["id"], attempt=2) == "start 2\n"
    # Followed, it is shown from its first start on.
    assert falaj(stage[0], "job", "logs", made["id"], "-f", plain=True) == "start 1\nstart 2\nstart 3\n"
    made = submit(admin, ["/no/such/program"])
    assert "rank 0" in ended(admin, made["id"], "FAILED")["reason"]
    made = submit(admin, "sleep 60", time_limit="1s")
    assert ended(admin, made["id"], "FAILED")["reason"] == "it ran into its time limit"


def test_cancelling(stage):
    _, admin = stage
    made = submit(admin, "trap 'echo told; exit 0' TERM; echo on; while :; do sleep 0.1; done")
    until(lambda: "on" in log(admin, made["id"]), what="its first word")
    asked = admin.post(f"{API}/jobs/{made['id']}/cancel", json={})
    assert asked.status_code == 200 and asked.json()["cancel_requested_at"]
    done = until(lambda: (now := job(admin, made["id"]))["state"] in OVER and now)
    # Told to end it ended well, which its executor may tell as either.
    assert done["state"] in ("CANCELLED", "SUCCEEDED")
    until(lambda: "told" in log(admin, made["id"]), what="its last word")
    stubborn = submit(admin, "trap '' TERM; while :; do sleep 0.1; done")
    in_state(admin, stubborn["id"], "RUNNING")
    admin.post(f"{API}/jobs/{stubborn['id']}/cancel", json={})
    ended(admin, stubborn["id"], "CANCELLED")
    again = admin.post(f"{API}/jobs/{stubborn['id']}/cancel", json={})
    assert again.status_code == 200
    over = submit(admin, "true")
    ended(admin, over["id"])
    late = admin.post(f"{API}/jobs/{over['id']}/cancel", json={})
    assert (late.status_code, late.json()["code"]) == (409, "conflict")


def test_an_array_is_many_tasks_of_one_job(stage):
    _, admin = stage
    made = submit(admin, 'echo task $FALAJ_TASK of $FALAJ_TASKS; test "$FALAJ_TASK" != 3', count=8)
    done = ended(admin, made["id"], "FAILED")
    assert done["reason"] == "1 of 8 tasks failed"
    assert done["tasks"] == {"count": 8, "succeeded": 7, "failed": 1, "cancelled": 0, "lost": 0}
    assert log(admin, made["id"], task=5) == "task 5 of 8\n"
    runs = admin.post("/t/default/default/api/2.0/mlflow/runs/search", json={
        "experiment_ids": [made["experiment_id"]],
        "filter": f"tags.`mlflow.parentRunId` = '{made['run_id']}'"}).json()["runs"]
    assert len(runs) == 8
    waiting = submit(admin, "sleep 60", count=50, resources={"cpu": 2, "memory": "64MiB"})
    in_state(admin, waiting["id"], "RUNNING")
    admin.post(f"{API}/jobs/{waiting['id']}/cancel", json={})
    assert ended(admin, waiting["id"], "CANCELLED")["tasks"]["cancelled"] == 50


def test_a_gang_knows_itself_and_ends_together(stage):
    _, admin = stage
    script = "echo $RANK/$WORLD_SIZE local $LOCAL_RANK node $NODE_RANK at $MASTER_ADDR:$MASTER_PORT"
    made = submit(admin, script, resources={"cpu": 1, "memory": "64MiB", "nodes": 2, "ranks_per_node": 2})
    ended(admin, made["id"])
    (start,) = starts(admin, made["id"])
    assert start["world_size"] == 4 and {it["node"] for it in start["nodes"]} == {"local-0", "local-1"}
    lines = [log(admin, made["id"], rank=rank).strip() for rank in range(4)]
    ports = {line.rsplit(":", 1)[1] for line in lines}
    assert len(ports) == 1
    assert [line.split(" at ")[0] for line in lines] == [
        "0/4 local 0 node 0", "1/4 local 1 node 0", "2/4 local 0 node 1", "3/4 local 1 node 1"]
    # One that fails takes the others with it.
    broken = submit(admin, 'test "$RANK" = 1 && exit 5; sleep 900', resources={"cpu": 1, "ranks_per_node": 2})
    assert ended(admin, broken["id"], "FAILED", within=60)["reason"] == "rank 1 ended with 5"


def test_gpus_are_given_once(stage, tmp_path):
    _, admin = stage
    gpus = {"cpu": 0.2, "memory": "64MiB", "gpus": 1, "gpu_type": "toy"}
    # Each stays until all four have theirs.
    command = (f"echo $CUDA_VISIBLE_DEVICES; touch {tmp_path}/$FALAJ_JOB_ID; "
               f"while [ $(ls {tmp_path} | wc -l) -lt 4 ]; do sleep 0.1; done")
    made = [submit(admin, command, resources=gpus) for _ in range(4)]
    seen = set()
    for one in made:
        ended(admin, one["id"])
        seen.add(log(admin, one["id"]).strip())
    # As the machine calls them, though it is two nodes here.
    assert seen == {"0", "1", "2", "3"}


def test_what_can_never_run_is_refused_with_the_reason(stage):
    _, admin = stage
    for change, field, words in (
        ({"resources": {"cpu": 64}}, "resources", "the largest has 2 cores"),
        ({"resources": {"cpu": 1, "nodes": 3}}, "resources.nodes", "at most 2"),
        ({"resources": {"gpus": 1, "gpu_type": "h100"}}, "resources.gpu_type", "a type that some pool has"),
        ({"queue": "nowhere"}, "queue", "a queue of the tenant"),
        ({"pool": "nowhere"}, "pool", "local"),
        ({"zones": ["nowhere"]}, "zones", "zones of the pool"),
        ({"deadline": "2020-01-01T00:00:00Z"}, "deadline", "a time to come"),
        ({"secrets": {"X": "theirs"}}, "secrets.X", "a secret that this project may use"),
        ({"count": 0}, "count", "1 to 100000"),
    ):
        body = {"name": "test", "command": ["true"]} | change
        answer = admin.post(f"{API}/jobs", json=body)
        assert answer.status_code == 400, f"{change}: {answer.text}"
        told = answer.json()
        assert told.get("field") == field and words in told["detail"], f"{change}: {told}"
    unknown = admin.post(f"{API}/jobs", json={"name": "x", "command": ["true"], "gpu": 1})
    assert unknown.status_code == 400 and "unknown field" in unknown.text


def test_a_quota_makes_jobs_wait_and_tells_why(stage):
    server, admin = stage
    falaj(server, "queue", "set", "lab", "--cpu", "1", "--no-borrow")
    resources = {"cpu": 0.7, "memory": "64MiB"}
    first = submit(admin, "sleep 300", queue="lab", resources=resources, time_limit="10m")
    in_state(admin, first["id"], "RUNNING")
    second = submit(admin, "true", queue="lab", resources=resources)
    why = until(lambda: (told := falaj(server, "job", "why", second["id"])).get("rule") == "quota" and told)
    assert why["state"] == "PENDING"
    assert "queue `lab` leaves room for 0.3 cores, and it needs 0.7 cores" in why["why"]
    assert any("more for queue `lab`" in change for change in why["changes"]), why
    assert why["considered_at"]
    listed = {queue["name"]: queue for queue in falaj(server, "queue", "list")}
    assert listed["lab"]["held"]["cpu"] == 0.7
    busy = admin.delete(f"{API}/queues/lab", json={})
    assert (busy.status_code, busy.json()["code"]) == (409, "in-use")
    # Too large for its queue for ever: refused.
    never = admin.post(f"{API}/jobs", json={"name": "x", "command": ["true"], "queue": "lab",
                                            "resources": {"cpu": 1.5}})
    assert never.status_code == 400 and "queue `lab` can never have more" in never.json()["detail"]
    # A larger quota lets it start at once.
    falaj(server, "queue", "set", "lab", "--cpu", "2", "--no-borrow")
    ended(admin, second["id"])
    history = falaj(server, "job", "why", second["id"], "--history")["history"]
    assert [it["kind"] for it in history] == ["start"]
    falaj(server, "job", "cancel", first["id"], "--wait")
    falaj(server, "queue", "remove", "lab")


SAVER = textwrap.dedent("""
    import json, os, signal, sys, time, urllib.request
    def report(**more):
        body = json.dumps({"attempt": os.environ["FALAJ_ATTEMPT"], "rank": int(os.environ["RANK"])} | more).encode()
        request = urllib.request.Request(os.environ["FALAJ_REPORT_URL"], body, {
            "authorization": "Bearer " + os.environ["FALAJ_TOKEN"], "content-type": "application/json"})
        return json.load(urllib.request.urlopen(request))
    folder = os.environ["CHECKPOINT_DIR"]
    step = 0
    if "RESUME_FROM" in os.environ:
        step = json.load(open(os.path.join(os.environ["RESUME_FROM"], f"rank{os.environ['RANK']}.json")))["step"]
    print("begins at", step, flush=True)
    def save():
        import hashlib
        path = os.path.join(folder, f"step-{step}")
        os.makedirs(path, exist_ok=True)
        name = f"rank{os.environ['RANK']}.json"
        text = json.dumps({"step": step}).encode()
        with open(os.path.join(path, name), "wb") as file:
            file.write(text)
        # Said before it is told: whoever was asked to save may be stopped from then on.
        print("saved", step, flush=True)
        report(checkpoint={"step": step, "path": path, "files": {name: hashlib.sha256(text).hexdigest()}})
    def told(*_):
        save()
    signal.signal(signal.SIGUSR1, told)
""")


def test_it_goes_on_from_the_last_whole_checkpoint(stage, tmp_path):
    server, admin = stage
    script = tmp_path / "train.py"
    script.write_text(SAVER + textwrap.dedent("""
        first = os.environ["FALAJ_START"] == "1"
        while step < 30:
            step += 1
            if step % 10 == 0:
                # Of the last one, only one rank has its part when the other dies.
                if first and step == 20 and os.environ["RANK"] == "1":
                    time.sleep(1.5)
                    sys.exit(3)
                save()
            time.sleep(0.02)
        print("done", step)
    """))
    made = submit(admin, ["/usr/bin/env", "python3", str(script)], retries=1, checkpoint={},
                  resources={"cpu": 1, "memory": "256MiB", "ranks_per_node": 2})
    ended(admin, made["id"])
    tries = starts(admin, made["id"])
    assert [it["state"] for it in tries] == ["FAILED", "SUCCEEDED"], tries
    assert tries[1]["resumed_from"] == 10
    for rank in range(2):
        assert log(admin, made["id"], attempt=2, rank=rank).startswith("begins at 10")
    kept = falaj(server, "job", "checkpoints", made["id"])
    assert [it["step"] for it in kept] == [30, 20, 10] and kept[1]["attempt"] == 2
    assert kept[0]["ranks"] == 2 and "manifest" not in kept[0]


def test_files_that_were_changed_are_not_gone_on_from(stage, tmp_path):
    _, admin = stage
    folder = tmp_path / "saved"
    script = tmp_path / "train.py"
    script.write_text(SAVER + textwrap.dedent("""
        for step in (10, 20) if step < 20 else ():
            save()
        if os.environ["FALAJ_START"] == "1":
            open(os.path.join(folder, "step-20", "rank0.json"), "w").write("half")
            sys.exit(1)
    """))
    made = submit(admin, ["/usr/bin/env", "python3", str(script)], retries=1, checkpoint={"dir": str(folder)},
                  resources={"cpu": 0.5, "memory": "256MiB"})
    ended(admin, made["id"])
    assert [it.get("resumed_from") for it in starts(admin, made["id"])] == [None, 10]


def test_checkpoints_may_be_files_alone(stage, tmp_path):
    _, admin = stage
    command = textwrap.dedent("""
        echo from $RESUME_FROM
        test -n "$RESUME_FROM" && exit 0
        cd $CHECKPOINT_DIR; mkdir a b c d
        echo "{\\"step\\": 5, \\"attempt\\": $FALAJ_START, \\"world\\": $WORLD_SIZE}" > a/rank-0.json
        echo 'half' > b/rank-0.json
        # Of another start, and of two ranks of which one is not there.
        echo '{"step": 6, "attempt": 7, "world": 1}' > c/rank-0.json
        echo '{"step": 7, "attempt": 1, "world": 2}' > d/rank-0.json
        sleep SECONDS; exit 1
    """)
    # Those that a start finishes just before its end count as well.
    for seconds in ("4", "0"):
        made = submit(admin, command.replace("SECONDS", seconds), retries=1, checkpoint={})
        ended(admin, made["id"])
        second = starts(admin, made["id"])[1]
        assert second["resumed_from"] == 5
        text = log(admin, made["id"], attempt=2).strip()
        assert text.endswith("/a")
        folder = pathlib.Path(text.removeprefix("from ")).parent
        # What is not whole is cleared away.
        assert sorted(it.name for it in folder.iterdir()) == ["a", "c"]


def test_only_so_many_are_kept_and_never_the_newest_goes(stage):
    _, admin = stage
    command = textwrap.dedent("""
        cd $CHECKPOINT_DIR
        for step in 1 2 3; do
            mkdir -p $step last
            for to in $step last; do
                number=$((10 * step)); test $to = last && number=$((number + 1))
                echo "{\\"step\\": $number, \\"attempt\\": 1, \\"world\\": 1}" > $to/new
                mv $to/new $to/rank-0.json
                sleep 3
            done
        done
        ls > list; sleep 3; cat list
    """)
    made = submit(admin, command, checkpoint={"keep": 2})
    ended(admin, made["id"])
    kept = admin.get(f"{API}/jobs/{made['id']}/checkpoints").json()["items"]
    assert [(it["step"], it["path"].rsplit("/", 1)[1]) for it in kept] == [(31, "last"), (30, "3")], kept
    left = {it.name for it in pathlib.Path(kept[0]["path"]).parent.iterdir()}
    assert {"last", "3"} <= left and not {"1", "2"} & left, left


def test_what_is_reported_lies_in_the_folder_of_the_job(stage):
    server, admin = stage
    made = submit(admin, "echo $FALAJ_TOKEN; ln -s /etc $CHECKPOINT_DIR/out; touch $CHECKPOINT_DIR/ready;"
                         " echo $CHECKPOINT_DIR; sleep 300", checkpoint={})
    other = submit(admin, "echo $FALAJ_TOKEN; sleep 300")

    def lines(id, count):
        return until(lambda: len(found := log(admin, id).split()) == count and found, what="its output")
    (own, folder), (token,) = lines(made["id"], 2), lines(other["id"], 1)

    def report(token, path, **files):
        body = {"attempt": 1, "checkpoint": {"step": 1, "path": path, "files": files}}
        return server.client(token).post(f"{API}/jobs/{made['id']}/report", json=body)
    for path in ("/etc", "/dev", f"{folder}/../../..", folder, f"{folder}/out", f"{folder}/gone"):
        refused = report(own, path)
        assert (refused.status_code, refused.json()["field"]) == (400, "checkpoint.path"), refused.text
    good = pathlib.Path(folder) / "good"
    good.mkdir()
    os.mkfifo(good / "pipe")
    assert report(own, str(good), pipe="0" * 64).status_code == 400
    # The token of another job of the same owner reports for that one alone, and ends no other.
    assert report(token, str(good)).status_code == 403
    assert server.client(token).post(f"{API}/jobs/{made['id']}/cancel", json={}).status_code == 403
    assert report(own, str(good)).status_code == 200
    for one in (made, other):
        assert admin.post(f"{API}/jobs/{one['id']}/cancel", json={}).status_code == 200
        ended(admin, one["id"], "CANCELLED")


def test_the_urgent_displace_and_the_displaced_go_on(stage, tmp_path):
    _, admin = stage
    script = tmp_path / "train.py"
    script.write_text(SAVER + textwrap.dedent("""
        print("ready", flush=True)
        while not os.path.exists(sys.argv[1]):
            step += 1
            time.sleep(0.01)
        print("done", step)
    """))
    enough = tmp_path / "enough"
    whole = {"cpu": 2, "memory": "256MiB"}
    made = [submit(admin, ["/usr/bin/env", "python3", str(script), str(enough)], checkpoint={}, resources=whole)
            for _ in range(2)]
    for one in made:
        until(lambda: "ready" in log(admin, one["id"]), what="its beginning")
    time.sleep(0.3)
    urgent = submit(admin, "echo now", priority=10, resources=whole)
    ended(admin, urgent["id"])
    enough.write_text("")
    displaced = []
    for one in made:
        ended(admin, one["id"])
        tries = starts(admin, one["id"])
        if len(tries) == 2:
            displaced.append(one)
            assert tries[0]["state"] == "PREEMPTED" and tries[1]["resumed_from"] > 0
            assert "saved" in log(admin, one["id"], attempt=1)
    assert len(displaced) == 1


def test_a_rank_that_hangs_is_noticed(stage, tmp_path):
    _, admin = stage
    script = tmp_path / "train.py"
    script.write_text(SAVER + textwrap.dedent("""
        for step in range(1, 20):
            report(step=step)
            time.sleep(0.05)
        if os.environ["FALAJ_START"] == "1":
            time.sleep(300)
    """))
    made = submit(admin, ["/usr/bin/env", "python3", str(script)], checkpoint={},
                  resources={"cpu": 0.5, "memory": "256MiB"})
    ended(admin, made["id"])
    first, *_, last = starts(admin, made["id"])
    assert first["end"] == "its ranks made no progress" and last["state"] == "SUCCEEDED"


def test_a_budget_ends_a_job(stage):
    _, admin = stage
    # A core costs 1 a second here.
    made = submit(admin, "sleep 300", budget=3.0, resources={"cpu": 1, "memory": "64MiB"})
    done = ended(admin, made["id"], "FAILED")
    assert done["reason"] == "it cost what it may"
    lines = admin.get(f"{API}/costs", params={"by": "job"}).json()["items"]
    line = next(line for line in lines if line["key"] == made["id"])
    assert 3 <= line["cost"] < 200 and line["starts"] == 1 and line["core_hours"] > 0
    for by in ("queue", "project", "tenant"):
        (total, *_) = admin.get(f"{API}/costs", params={"by": by}).json()["items"]
        assert total["cost"] >= line["cost"]


def test_a_budget_of_a_project_holds_what_there_is_no_money_for(stage, tmp_path):
    """A core costs 1 a second here."""
    server, admin = stage
    admin.created("/v1/tenants", {"name": "thrifty"})
    admin.created("/v1/tenants/thrifty/projects", {"name": "lab"})
    api = "/t/thrifty/lab/api"
    place = ("-t", "thrifty", "-p", "lab")
    made = falaj(server, "budget", "set", "200", "--period", "total", "--warn-at", "2", *place)
    assert (made["amount"], made["action"], made["now"]) == (200.0, "hold", "all time")
    seen = tmp_path / "seen"

    def asked(command):
        body = {"name": "x", "command": ["sh", "-c", command], "time_limit": "110s",
                "resources": {"cpu": 1, "memory": "64MiB"}}
        answer = admin.post(f"{api}/jobs", json=body)
        assert answer.status_code == 200, answer.text
        return f"{api}/jobs/{answer.json()['id']}"
    # The first stays until it was seen that the second waits.
    first = asked(f"sleep 8; while [ ! -e {seen} ]; do sleep 0.1; done")
    second = asked("sleep 4")
    until(lambda: admin.get(first).json()["state"] == "RUNNING", what="the first")
    why = until(lambda: (told := admin.get(f"{second}/why").json()).get("rule") == "budget" and told, what="why")
    assert "may cost 110.00 until its own" in why["why"] and admin.get(second).json()["state"] == "PENDING"
    seen.touch()
    # The first has cost less than it might have, so there is room for the second.
    until(lambda: admin.get(second).json()["state"] == "SUCCEEDED", what="the second")
    assert admin.get(first).json()["state"] == "SUCCEEDED"
    (budget,) = falaj(server, "budget", "list", *place)
    assert 12 <= budget["spent"] < 200
    falaj(server, "budget", "list", *place, plain=True)
    # A start that may cost more than all of it is refused at once.
    dear = admin.post(f"{api}/jobs", json={"name": "x", "command": ["true"], "time_limit": "201s"})
    assert (dear.status_code, dear.json()["field"]) == (400, "time_limit"), dear.text
    falaj(server, "budget", "set", "1", "--period", "total", *place)
    until(lambda: admin.post(f"{api}/jobs", json={"name": "x", "command": ["true"]}).status_code == 409, what="a refusal")
    events = admin.get("/v1/events", params={"type": "falaj.budget.reached", "limit": 100})
    told = [it for it in events.json()["items"] if it["data"]["whose"] == "project"]
    assert told and all(it["type"] == "falaj.budget.reached" for it in told), events.text
    falaj(server, "budget", "remove", "--period", "total", *place)
    assert falaj(server, "budget", "list", *place) == []


def test_a_job_is_deleted_and_its_project_can_be(stage):
    server, admin = stage
    admin.created("/v1/tenants", {"name": "leaving"})
    admin.created("/v1/tenants/leaving/projects", {"name": "lab"})
    api = "/t/leaving/lab/api"
    ids = []
    for _ in range(2):
        made = admin.post(f"{api}/jobs", json={"name": "x", "command": ["echo", "hi"],
                                               "resources": {"cpu": 0.5, "memory": "64MiB"}})
        assert made.status_code == 200, made.text
        ids.append(made.json()["id"])
        until(lambda: admin.get(f"{api}/jobs/{ids[-1]}").json()["state"] == "SUCCEEDED", what="its end")
    place = ("-t", "leaving", "-p", "lab")
    (before,) = falaj(server, "cost", "report", *place)
    until(lambda: admin.delete(f"{api}/jobs/{ids[0]}", json={}).status_code == 200, what="the end of one")
    assert admin.get(f"{api}/jobs/{ids[0]}").status_code == 404
    (after,) = falaj(server, "cost", "report", *place)
    assert after["cost"] == pytest.approx(before["cost"]) and after["starts"] == 2
    busy = admin.delete("/v1/tenants/leaving/projects/lab")
    assert busy.status_code == 409, "its runs are there"
    experiment = made.json()["experiment_id"]
    gone = admin.post(f"/v1/tenants/leaving/projects/lab/experiments/{experiment}/purge", json={"force": True})
    assert gone.status_code == 200, gone.text
    gone = admin.delete("/v1/tenants/leaving/projects/lab")
    assert gone.status_code in (200, 204), gone.text
    assert admin.get(f"{api}/jobs/{ids[1]}").status_code == 404


def test_the_token_of_a_job_does_what_a_job_is_there_for(stage):
    server, admin = stage
    script = "echo $FALAJ_TOKEN; sleep 900"
    plain, boss = submit(admin, script), submit(admin, script, may_submit=True)
    other = submit(admin, "sleep 900")

    def client(job):
        return server.client(until(lambda: log(admin, job["id"]).strip(), what="its token"))
    body = {"name": "x", "command": ["true"], "resources": {"cpu": 0.1, "memory": "16MiB"}}
    tracking = {"experiment_id": plain["experiment_id"], "start_time": 0}
    for job, may in ((plain, False), (boss, True)):
        token = client(job)
        made = token.post("/t/default/default/api/2.0/mlflow/runs/create", json=tracking)
        assert made.status_code == 200, made.text
        named = token.post("/t/default/default/api/2.0/mlflow/registered-models/create", json={"name": f"of-{job['id']}"})
        assert named.status_code == 200, named.text
        # Neither data nor features of others are its to change, whatever its owner may do.
        for path, sent in (("datasets", {"name": f"made-by-{job['id']}"}), ("features/apply", {"entities": [{"name": "of-a-job", "join_keys": [{"name": "key", "type": "int64"}]}]})):
            assert token.post(f"{API}/{path}", json=sent).status_code == 403, path
        mlflow, run, name = "/t/default/default/api/2.0/mlflow", made.json()["run"]["info"], f"of-{job['id']}"
        for method, path, sent in (
            ("POST", f"{mlflow}/runs/delete-tag", {"run_id": run["run_id"], "key": "k"}),
            ("POST", f"{mlflow}/runs/delete", {"run_id": run["run_id"]}),
            ("POST", f"{mlflow}/registered-models/rename", {"name": name, "new_name": f"{name}-2"}),
            ("DELETE", f"{mlflow}/registered-models/delete-tag", {"name": name, "key": "k"}),
            ("DELETE", f"{mlflow}/registered-models/delete", {"name": name}),
            ("DELETE", f"{mlflow}-artifacts/artifacts/{run['experiment_id']}/{run['run_id']}/artifacts/x", None),
        ):
            assert token.request(method, path, json=sent).status_code == 403, path
        assert token.get(f"{API}/datasets").status_code == 200
        asked = token.post(f"{API}/jobs", json=body)
        # The machine of the server itself is for its admins, and no token of a job is one.
        assert asked.status_code == 403, asked.text
        assert ("may_submit" in asked.json()["detail"]) is not may, asked.text
        cancelled = token.post(f"{API}/jobs/{other['id']}/cancel", json={})
        assert cancelled.status_code == (200 if may else 403), cancelled.text
        assert token.delete(f"{API}/jobs/{other['id']}", json={}).status_code == 403
    assert client(plain).post(f"{API}/jobs/{plain['id']}/cancel", json={}).status_code == 200
    admin.post(f"{API}/jobs/{boss['id']}/cancel", json={})


def test_from_the_command_line(stage, tmp_path):
    server, _ = stage
    definition = tmp_path / "job.toml"
    definition.write_text(textwrap.dedent("""
        name = "from-a-file"
        command = ["sh", "-c", "echo $A; exit 4"]
        time_limit = "1m"
        [env]
        A = "file"
        [resources]
        cpu = 0.5
        memory = "64MiB"
    """))
    followed = falaj(server, "train", str(definition), "--follow", "--env", "A=option", code=4, plain=True)
    assert followed == "option\n"
    done = falaj(server, "train", "--name", "x", "--cpu", "0.5", "--wait", "--", "sh", "-c", "echo hi")
    assert done["state"] == "SUCCEEDED" and done["name"] == "x"
    shown = falaj(server, "job", "show", done["id"])
    assert shown["attempts"][0]["exit_code"] == 0
    assert falaj(server, "job", "logs", done["id"], plain=True) == "hi\n"
    assert done["id"] in [it["id"] for it in falaj(server, "job", "list", "--state", "SUCCEEDED")]
    (pool,) = falaj(server, "pool", "list")
    assert pool["name"] == "local" and len(pool["nodes"]) == 2
    for words in (("job", "list"), ("job", "show", done["id"]), ("pool", "list"), ("queue", "list"),
                  ("cost", "report"), ("job", "why", done["id"])):
        falaj(server, *words, plain=True)


def test_whoever_runs_commands_here_is_the_server_itself(stage):
    """A contributor of a tenant may not, until the configuration trusts the tenant with it."""
    server, admin = stage

    def somebody(tenant, role):
        admin.created("/v1/tenants", {"name": tenant})
        admin.created(f"/v1/tenants/{tenant}/projects", {"name": "lab"})
        account = admin.created("/v1/service-accounts", {"name": f"of-{tenant}", "tenant": tenant})
        admin.created("/v1/role-bindings", {"principal": account["name"], "role": role, "tenant": tenant})
        token = admin.created("/v1/tokens", {"owner": account["name"], "role": role, "tenant": tenant})
        return server.client(token["secret"])
    guest, friend = somebody("guests", "admin"), somebody("trusted", "contributor")
    made = friend.post("/t/trusted/lab/api/jobs", json={"name": "x", "command": ["true"]})
    assert made.status_code == 200, made.text
    path = f"/t/trusted/lab/api/jobs/{made.json()['id']}"
    until(lambda: friend.get(path).json()["state"] == "SUCCEEDED", what="a friend's job")
    assert guest.get(path).status_code == 404
    refused = guest.post("/t/guests/lab/api/jobs", json={"name": "x", "command": ["true"]})
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), refused.text
    assert "server's own user" in refused.json()["detail"]
    # Nor does one see jobs of others.
    theirs = submit(admin, "true")
    for path in ("", "/logs", "/why", "/attempts", "/checkpoints", "/decisions"):
        assert guest.get(f"/t/guests/lab/api/jobs/{theirs['id']}{path}").status_code == 404
    assert guest.put("/t/guests/lab/api/queues/own", json={"quota": {"cpu": 1.0}}).status_code == 200
    whole = guest.put("/t/guests/lab/api/queues/tenant", json={"quota": {"cpu": 1.0}})
    assert whole.status_code in (403, 404), whole.text


def test_the_token_of_a_job_is_its_own_and_ends_with_it(stage, tmp_path):
    server, admin = stage
    enough = tmp_path / "enough"
    made = submit(admin, f"echo $FALAJ_TOKEN; while [ ! -e {enough} ]; do sleep 0.1; done")
    token = until(lambda: log(admin, made["id"]).strip(), what="its token")
    client = server.client(token)
    assert client.get(f"{API}/jobs/{made['id']}").status_code == 200
    assert client.get("/v1/tenants").json().get("items", []) == []
    assert client.post("/v1/tenants", json={"name": "more"}).status_code in (403, 404)
    enough.write_text("")
    ended(admin, made["id"])
    until(lambda: client.get(f"{API}/jobs/{made['id']}").status_code == 401, what="the end of its token")


@pytest.mark.parametrize("moment", ["running", "starting", "waiting"])
def test_a_killed_server_finds_every_job_again(fragile, moment, tmp_path):
    server, admin = fragile
    once = tmp_path / "once"
    command = f"echo began; echo $FALAJ_START >> {once}; sleep 3; echo ended; exit 0"
    running = [submit(admin, command, resources={"cpu": 1, "memory": "64MiB"}) for _ in range(2)]
    failing = submit(admin, "sleep 2; echo bad; exit 9", resources={"cpu": 1, "memory": "64MiB"})
    waiting = submit(admin, "echo waited", resources={"cpu": 2, "memory": "64MiB"}, count=5)
    if moment == "running":
        for one in running:
            in_state(admin, one["id"], "RUNNING")
    elif moment == "starting":
        until(lambda: job(admin, running[0]["id"])["state"] != "PENDING")
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    # Long enough for some to end while nobody looks.
    time.sleep(2.5)
    server.start()
    admin = server.client(server.admin_token())
    for one in running:
        ended(admin, one["id"])
        assert log(admin, one["id"]) == "began\nended\n"
        assert len(starts(admin, one["id"])) == 1
    assert ended(admin, failing["id"], "FAILED")["reason"] == "rank 0 ended with 9"
    assert log(admin, failing["id"]) == "bad\n"
    assert ended(admin, waiting["id"])["tasks"]["succeeded"] == 5
    assert once.read_text().split() == ["1", "1"]


def test_a_server_killed_again_and_again_runs_everything_once(fragile, tmp_path):
    server, admin = fragile
    folder = tmp_path / "done"
    folder.mkdir()
    # A task that ran twice would leave two lines.
    made = submit(admin, f"echo x >> {folder}/$FALAJ_TASK; sleep 0.1", count=60,
                  resources={"cpu": 0.5, "memory": "64MiB"})
    for _ in range(3):
        time.sleep(0.9)
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        server.start()
        admin = server.client(server.admin_token())
    done = ended(admin, made["id"], within=300)
    assert done["tasks"]["succeeded"] == 60
    texts = [(folder / str(task)).read_text() for task in range(60)]
    assert texts == ["x\n"] * 60, [task for task, text in enumerate(texts) if text != "x\n"]


@pytest.mark.parametrize("engine", ["postgres"])
def test_what_another_servers_machine_runs_is_not_run_twice(engine, tmp_path):
    """Two servers on one database: while the second schedules, jobs of the first are away and nothing else."""
    first = OnEngine(tmp_path / "first", engine, **SMALL)
    first.data.parent.mkdir()
    first.start()
    second = None
    try:
        admin = first.client(first.admin_token())
        marks = tmp_path / "marks"
        made = submit(admin, f"echo x >> {marks}; sleep 12; echo y >> {marks}")
        gone = submit(admin, f"echo x >> {tmp_path / 'gone'}; sleep 300")
        for id in (made["id"], gone["id"]):
            in_state(admin, id, "RUNNING")
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        second = Server(tmp_path / "second", **first.settings)
        # The same keys, and another machine.
        shutil.copytree(first.data, second.data, ignore=shutil.ignore_patterns("training", LOCK))
        second.start()
        admin = second.client(first.admin_token())

        def why(id):
            return admin.get(f"{API}/jobs/{id}/why").json()
        until(lambda: why(made["id"]).get("rule") == "away", within=180, what="the other to schedule")
        ended(admin, submit(admin, "true")["id"])
        time.sleep(3)
        assert job(admin, made["id"])["state"] == "RUNNING" and len(starts(admin, made["id"])) == 1
        told = admin.post(f"{API}/jobs/{gone['id']}/lost", json={})
        assert told.status_code == 200, told.text
        until(lambda: len(starts(admin, gone["id"])) == 2, what="a second start")
        in_state(admin, gone["id"], "RUNNING")
        assert admin.post(f"{API}/jobs/{gone['id']}/cancel", json={}).status_code == 200
        ended(admin, gone["id"], "CANCELLED")
        second.stop()
        first.start()
        admin = first.client(first.admin_token())
        ended(admin, made["id"])
        assert marks.read_text() == "x\ny\n" and len(starts(admin, made["id"])) == 1
    finally:
        if second:
            second.stop()
        first.stop()
