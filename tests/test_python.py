"""Jobs from Python, through the package as `pip` installs it, with the real server and nothing else."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import venv

import pytest

from engines import OnEngine
from server import binary, environment
from test_training import SMALL, until

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "sdk" / "python" / "src"))

import falaj  # noqa: E402

SMALLEST = {"cpu": 0.5, "memory": "64MiB"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = OnEngine(tmp_path_factory.mktemp("python"), "sqlite", **SMALL).start()
    yield server
    alive = server.process.poll() is None
    server.stop()
    assert alive and "panicked" not in server.log.read_text(errors="replace"), server.tail()


@pytest.fixture
def jobs(server, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("FALAJ_", "XDG_CONFIG")) and "TEST" not in name and name != "FALAJ_BIN":
            monkeypatch.delenv(name)
    return falaj.Jobs(server.url, server.admin_token())


def in_a_job(jobs, body, *words, **more):
    """A job that runs this Python."""
    # Some tens of MiB go to the interpreter alone.
    more = {"cpu": 0.5, "memory": "256MiB", "checkpoint": True} | more
    env = {"PYTHONPATH": str(ROOT / "sdk" / "python" / "src")}
    return jobs.train([sys.executable, "-c", textwrap.dedent(body), *words], name="test", env=env, **more)


def test_a_job_from_its_submission_to_its_end(server, jobs, monkeypatch):
    monkeypatch.setenv("FALAJ_URL", server.url + "/")
    monkeypatch.setenv("FALAJ_TOKEN", server.admin_token())
    job = falaj.train(["sh", "-c", "echo salam $A; echo half; printf end; exit 0"], **SMALLEST, env={"A": 1},
                      params={"lr": 0.1}, time_limit=60, tags={"of": "test"})
    assert job.name == "sh" and job.definition["params"] == {"lr": "0.1"}
    assert job.definition["time_limit"] == "1m" and job.definition["resources"]["cpu"] == 0.5
    assert list(job.logs(follow=True)) == ["salam 1", "half", "end"]
    assert job.wait(timeout=30) == "SUCCEEDED" == job.state
    assert list(job.logs()) == ["salam 1", "half", "end"]
    (start,) = job.attempts()
    assert start["exit_code"] == 0 and job.run_id and job.checkpoints() == []
    assert [it.id for it in jobs.list(state="SUCCEEDED")] == [job.id] and jobs.list(state="FAILED") == []
    again = jobs.job(job.id)
    assert again.state == "SUCCEEDED" and job.id in repr(again)


def test_one_that_fails_says_so(jobs):
    job = jobs.train(["sh", "-c", "echo start $FALAJ_START; exit 7"], retries=1, **SMALLEST)
    # Both its starts are followed, also by one who comes late.
    assert list(job.logs(follow=True)) == ["start 1", "start 2"]
    with pytest.raises(falaj.JobFailed, match="rank 0 ended with 7") as caught:
        job.wait(timeout=30)
    assert (caught.value.state, caught.value.job) == ("FAILED", job)
    assert job.wait(check=False) == "FAILED"
    assert list(job.logs(follow=True)) == ["start 1", "start 2"]
    assert list(job.logs(attempt=1)) == ["start 1"]


def test_waiting_and_why_and_an_end_before_time(jobs):
    first = jobs.train(["sleep", "300"], cpu=2, memory="64MiB", nodes=2, name="first")
    until(lambda: first.state == "RUNNING", what="its beginning")
    with pytest.raises(TimeoutError):
        first.wait(timeout=0.2)
    second = jobs.train(["true"], cpu=2, memory="64MiB")
    why = until(lambda: (told := second.why()).rule == "no-room" and told, what="a reason")
    assert why.state == "PENDING" and "nodes" in str(why) and why.considered_at, why
    second.cancel()
    assert second.wait(timeout=30, check=False) == "CANCELLED"
    first.cancel().wait(timeout=30, check=False)
    assert first.state == "CANCELLED"


def test_output_comes_while_it_runs(jobs, tmp_path):
    go = tmp_path / "go"
    script = f"echo first; while ! test -e {go}; do sleep 0.05; done; echo last"
    job = jobs.train(["sh", "-c", script], **SMALLEST)
    lines = job.logs(follow=True)
    assert next(lines) == "first" and job.state in ("STARTING", "RUNNING")
    go.touch()
    assert list(lines) == ["last"]
    job.wait(timeout=30)


def test_what_is_refused_is_told(server, jobs):
    with pytest.raises(falaj.FalajError, match="the largest has 2 cores") as caught:
        jobs.train(["true"], cpu=64)
    assert (caught.value.status, caught.value.code, caught.value.field) == (400, "invalid-input", "resources")
    with pytest.raises(falaj.FalajError) as caught:
        jobs.train(["true"], nonsense=1)
    assert "nonsense" in caught.value.detail
    with pytest.raises(falaj.FalajError) as caught:
        jobs.job("job_nowhere")
    assert caught.value.code == "not-found"
    with pytest.raises(falaj.FalajError) as caught:
        falaj.Jobs(server.url, "flj_wrong").list()
    assert caught.value.code == "unauthenticated"
    with pytest.raises(TypeError, match="a list"):
        jobs.train("python train.py")
    with pytest.raises(ValueError, match="TENANT/PROJECT"):
        falaj.Jobs(server.url, "x", "nowhere")


def test_what_login_has_kept_is_used(server, jobs, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(ValueError, match="falaj login"):
        falaj.Jobs()
    token = tmp_path / "token"
    token.write_text(server.admin_token())
    settings = environment(XDG_CONFIG_HOME=str(tmp_path), FALAJ_URL=server.url)
    subprocess.run([binary(), "login", "--token-file", str(token)], env=settings, check=True, capture_output=True,
                   timeout=60)
    job = falaj.train(["true"], **SMALLEST)
    assert job.wait(timeout=30) == "SUCCEEDED"
    kept = tmp_path / "falaj" / "credentials.toml"
    kept.chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        falaj.Jobs()


def test_inside_of_a_job(jobs, tmp_path):
    job = in_a_job(jobs, """
        import falaj, sys
        saved = falaj.resume()
        step = saved.step if saved else 0
        assert not falaj.stopping() and not falaj.report(step)
        if saved:
            print("on with", step, (saved.path / "model").read_text())
            mine = falaj.Jobs().job(__import__("os").environ["FALAJ_JOB_ID"])
            assert mine.state in ("STARTING", "RUNNING"), mine.state
            sys.exit()
        for step in (1, 2):
            folder = falaj.checkpoint_folder(step)
            (folder / "model").write_text(f"weights {step}")
            print("whole", falaj.checkpoint(step, ["model"]))
        # Not saved by all: what it says of itself is too much.
        try:
            falaj.checkpoint(3, ["/etc/hostname"])
        except ValueError as error:
            print(error)
        try:
            falaj.checkpoint(3, [], folder=sys.argv[1])
        except falaj.FalajError as error:
            print(error.field)
        sys.exit(3)
    """, str(tmp_path), retries=1)
    job.wait(timeout=60)
    first, second = list(job.logs(attempt=1)), list(job.logs(attempt=2))
    assert first[:2] == ["whole True", "whole True"]
    assert "files of a checkpoint lie in its folder" in first[2] and first[3] == "checkpoint.path"
    assert second == ["on with 2 weights 2"]
    newest, older = job.checkpoints()
    assert (newest["step"], older["step"]) == (2, 1)
    note = json.loads((pathlib.Path(newest["path"]) / "rank-0.json").read_text())
    assert (note["attempt"], note["world"], len(note["files"]["model"])) == (1, 1, 64)


def test_every_rank_says_so_before_it_counts(jobs):
    job = in_a_job(jobs, """
        import falaj, os, time
        rank = int(os.environ["RANK"])
        folder = falaj.checkpoint_folder(5)
        (folder / f"part{rank}").write_text("x")
        if rank == 1:
            while not (folder / "go").exists():
                time.sleep(0.05)
        print(rank, falaj.checkpoint(5, [f"part{rank}"]))
        if rank == 0:
            (folder / "go").touch()
    """, ranks_per_node=2, cpu=1, memory="512MiB")
    job.wait(timeout=60)
    assert list(job.logs(rank=0)) == ["0 False"] and list(job.logs(rank=1)) == ["1 True"]


def test_it_hears_that_it_is_to_leave(jobs, tmp_path):
    body = """
        import falaj, sys, time
        falaj.stopping()
        saved = falaj.resume()
        if saved:
            sys.exit(print("on with", saved.step))
        print("listens", flush=True)
        step = 0
        while not falaj.stopping():
            step += 1
            falaj.report(step)
            time.sleep(0.01)
        falaj.checkpoint(step)
        sys.exit(75)
    """
    job = in_a_job(jobs, body, cpu=2)
    until(lambda: list(job.logs()) == ["listens"], what="its first word")
    urgent = jobs.train(["true"], cpu=2, memory="64MiB", nodes=2, priority=9)
    urgent.wait(timeout=60)
    job.wait(timeout=60)
    first, second = job.attempts()
    assert (first["state"], second["state"]) == ("PREEMPTED", "SUCCEEDED")
    assert list(job.logs()) == [f"on with {second['resumed_from']}"]


def test_a_server_that_is_away_stops_nobody(tmp_path):
    server = OnEngine(tmp_path, "sqlite", **SMALL).start()
    try:
        jobs = falaj.Jobs(server.url, server.admin_token())
        ready, go = tmp_path / "ready", tmp_path / "go"
        job = in_a_job(jobs, f"""
            import falaj, pathlib, time
            falaj.report(1)
            pathlib.Path({str(ready)!r}).touch()
            while not pathlib.Path({str(go)!r}).exists():
                time.sleep(0.05)
            assert not falaj.checkpoint(7)
            pathlib.Path({str(ready)!r}).unlink()
            time.sleep(1)
            # Said with the next word, once somebody listens.
            while falaj._inside._state.unsaid:
                falaj.report(8)
                time.sleep(0.1)
            print("said")
        """)
        until(ready.exists, what="its beginning")
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        go.touch()
        until(lambda: not ready.exists(), what="a checkpoint")
        server.start()
        # Whoever waits sees nothing of it either.
        assert job.wait(timeout=60) == "SUCCEEDED"
        assert list(job.logs()) == ["said"] and [it["step"] for it in job.checkpoints()] == [7]
    finally:
        server.stop()


def test_by_hand_nothing_is_said(jobs, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert falaj.resume() is None and not falaj.report(1)
    (falaj.checkpoint_folder(4) / "x").write_text("x")
    assert falaj.checkpoint(4, ["x"])
    assert sorted(it.name for it in (tmp_path / "checkpoints" / "step-4").iterdir()) == ["rank-0.json", "x"]
    with pytest.raises(FileNotFoundError):
        falaj.checkpoint(5, ["gone"])


def test_it_needs_nothing_but_python(tmp_path):
    """As it is installed, into an environment that has nothing."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    site = next((tmp_path / "venv" / "lib").glob("python3*")) / "site-packages"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation",
                    "--disable-pip-version-check", "--no-compile", "--target", str(site), str(ROOT / "sdk" / "python")],
                   check=True, timeout=120, cwd=tmp_path)

    def said(script):
        done = subprocess.run([python, "-c", script], capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr
    assert said("import falaj; print(falaj.train.__name__, 'FeatureStore' in dir(falaj))") == "train True\n"
    assert "No module named 'pyarrow'" in said("import falaj; falaj.FeatureStore")
