"""The same jobs on real engines: a Slurm and a Ray, of three nodes each, and the Kubernetes of KUBECONFIG."""

import os
import subprocess
import textwrap

import pytest

from server import Server, binary, environment
from test_training import ended, in_state, job, log, starts, submit, until

POOL = """
    [training]
    default_pool = "{kind}"
    grace = "3s"
    [training.local]
    enabled = false
    [[training.pool]]
    name = "{kind}"
    kind = "{kind}"
    folder = "{folder}"
    tenants = ["default"]
    {where}
"""
NODE = """
    [[training.pool.node]]
    name = "n{number}"
    cpu = 4.0
    memory = "4GiB"
    gpus = 4
    gpu_type = "a100"
"""


def pool_of(kind, variable, where, folder):
    """A server whose jobs all run on one engine."""
    if variable not in os.environ:
        pytest.skip(f"{variable} is not set: scripts/with-services sets it")
    config = folder / "falaj.toml"
    text = POOL.format(kind=kind, folder=folder / "shared", where=f'{where} = "{os.environ[variable]}"')
    config.write_text(textwrap.dedent(text + "".join(NODE.format(number=number) for number in (1, 2, 3))))
    server = Server(folder, FALAJ_CONFIG=str(config)).start()
    yield server, server.client(server.admin_token())
    tail = server.tail()
    server.stop()
    assert "panicked" not in server.log.read_text(errors="replace"), tail


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    yield from pool_of("slurm", "FALAJ_TEST_SLURM_CONF", "conf", tmp_path_factory.mktemp("slurm"))


@pytest.fixture(scope="module")
def ray(tmp_path_factory):
    yield from pool_of("ray", "FALAJ_TEST_RAY_URL", "url", tmp_path_factory.mktemp("ray"))


def test_a_job_and_a_gang_on_slurm(slurm):
    _, admin = slurm
    made = submit(admin, "echo $RANK/$WORLD_SIZE on $SLURMD_NODENAME; echo $MLFLOW_RUN_ID")
    ended(admin, made["id"], within=90)
    text = log(admin, made["id"])
    assert text.startswith("0/1 on n") and made["run_id"] in text
    gang = submit(admin, "echo $RANK/$WORLD_SIZE", resources={"cpu": 1, "memory": "64MiB", "nodes": 3})
    ended(admin, gang["id"], within=90)
    assert [log(admin, gang["id"], rank=rank) for rank in range(3)] == ["0/3\n", "1/3\n", "2/3\n"]
    (start,) = starts(admin, gang["id"])
    assert {it["node"] for it in start["nodes"]} == {"n1", "n2", "n3"} and start["isolation"] == "slurm"


def ranks_pick_their_gpus(admin, within):
    def seen(framework):
        made = submit(admin, "echo $LOCAL_RANK of $CUDA_VISIBLE_DEVICES", framework=framework, resources={
            "cpu": 1, "memory": "64MiB", "gpus": 2, "gpu_type": "a100", "ranks_per_node": 2})
        ended(admin, made["id"], within=within)
        return [log(admin, made["id"], rank=rank).strip() for rank in range(2)]

    first, second = seen("torch")
    # Both see both, in one order: their number on the node picks one.
    gpus = first.removeprefix("0 of ")
    assert len(gpus.split(",")) == 2 and second == f"1 of {gpus}"
    own = [line.rsplit(" ", 1)[1] for line in seen("tensorflow")]
    assert len(set(own)) == 2 and not any("," in one for one in own)


def test_ranks_pick_their_gpus_on_slurm(slurm):
    ranks_pick_their_gpus(slurm[1], 90)


def test_ranks_pick_their_gpus_on_ray(ray):
    ranks_pick_their_gpus(ray[1], 300)


def what_it_uses_is_told(admin, within):
    made = submit(admin, ["bash", "-c", "until [ $SECONDS -ge 4 ]; do :; done"])
    ended(admin, made["id"], within=within)
    (start,) = starts(admin, made["id"])
    assert 0.5 < start["cpu_seconds"] < 30 and start["peak_memory_bytes"] > 100_000, start


def test_what_a_job_uses_is_told_on_slurm(slurm):
    what_it_uses_is_told(slurm[1], 90)


def test_what_a_job_uses_is_told_on_ray(ray):
    what_it_uses_is_told(ray[1], 300)


def fails_and_is_cancelled(admin):
    made = submit(admin, "exit 6")
    assert ended(admin, made["id"], "FAILED", within=90)["reason"] == "rank 0 ended with 6"
    long = submit(admin, "echo on; sleep 600")
    until(lambda: "on" in log(admin, long["id"]), 60, "its first word")
    admin.post(f"/t/default/default/api/jobs/{long['id']}/cancel", json={})
    ended(admin, long["id"], "CANCELLED", within=90)


def is_found_after_a_kill(server, admin):
    made = submit(admin, "echo began; sleep 4; echo ended")
    in_state(admin, made["id"], "RUNNING")
    server.process.kill()
    server.process.wait()
    server.start()
    admin = server.client(server.admin_token())
    ended(admin, made["id"], within=90)
    assert log(admin, made["id"]) == "began\nended\n" and len(starts(admin, made["id"])) == 1
    assert job(admin, made["id"])["tasks"]["succeeded"] == 1


def test_failing_and_cancelling_on_slurm(slurm):
    fails_and_is_cancelled(slurm[1])


def test_a_killed_server_finds_its_jobs_on_slurm(slurm):
    is_found_after_a_kill(*slurm)


def test_jobs_on_ray(ray):
    _, admin = ray
    # The first question starts the cluster, which takes a while.
    made = submit(admin, "echo $RANK/$WORLD_SIZE; echo $FALAJ_JOB_ID")
    ended(admin, made["id"], within=300)
    assert log(admin, made["id"]) == f"0/1\n{made['id']}\n"
    gang = submit(admin, "echo $RANK/$WORLD_SIZE", resources={"cpu": 1, "memory": "64MiB", "nodes": 2})
    ended(admin, gang["id"], within=120)
    assert [log(admin, gang["id"], rank=rank) for rank in range(2)] == ["0/2\n", "1/2\n"]
    broken = submit(admin, "exit 6")
    assert ended(admin, broken["id"], "FAILED", within=120)["reason"] == "rank 0 ended with 6"


KUBERNETES = """
    [training]
    default_pool = "cluster"
    grace = "3s"
    [training.local]
    enabled = false
    [[training.pool]]
    name = "cluster"
    kind = "kubernetes"
    tenants = ["default"]
    [training.pool.kubernetes]
    kubeconfig = "{kubeconfig}"
    owner = "{owner}"
    image = "{image}"
"""


def test_pools_that_would_take_each_others_jobs_are_refused(tmp_path):
    pool = KUBERNETES.partition("[[training.pool]]")[2] + NODE.format(number=1)

    def check(*owners):
        config = tmp_path / "falaj.toml"
        pools = ["    [[training.pool]]" + pool.format(kubeconfig="/k", owner=owner, image="x").replace(
            'name = "cluster"', f'name = "cluster-{number}"') for number, owner in enumerate(owners)]
        config.write_text(textwrap.dedent("".join(pools)))
        return subprocess.run([binary(), "config", "check"], env=environment(FALAJ_CONFIG=str(config)),
                              capture_output=True, text=True, timeout=60)

    assert check("a", "b").returncode == 0, check("a", "b").stderr
    same = check("a", "a")
    assert same.returncode != 0 and "training.pool[1].kubernetes.owner" in same.stderr, same.stderr


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory):
    if "KUBECONFIG" not in os.environ:
        pytest.skip("KUBECONFIG is not set")
    folder = tmp_path_factory.mktemp("kubernetes")
    config = folder / "falaj.toml"
    image = os.environ.get("FALAJ_TEST_IMAGE", "debian:bookworm-slim")
    text = KUBERNETES.format(kubeconfig=os.environ["KUBECONFIG"], owner=f"test-{os.getpid()}", image=image)
    config.write_text(textwrap.dedent(text + "".join(NODE.format(number=number) for number in (1, 2, 3))))
    server = Server(folder, FALAJ_CONFIG=str(config)).start()
    yield server, server.client(server.admin_token())
    server.stop()
    assert "panicked" not in server.log.read_text(errors="replace"), server.tail()


def test_a_job_and_a_gang_on_kubernetes(kubernetes):
    _, admin = kubernetes
    made = submit(admin, "echo $RANK/$WORLD_SIZE at $MASTER_ADDR; echo $MLFLOW_RUN_ID")
    ended(admin, made["id"], within=90)
    text = log(admin, made["id"])
    assert text.startswith("0/1 at 127.0.0.1\n") and made["run_id"] in text
    gang = submit(admin, "echo $RANK/$WORLD_SIZE; echo $MASTER_ADDR >&2", resources={
        "cpu": 1, "memory": "64MiB", "nodes": 2, "ranks_per_node": 2})
    ended(admin, gang["id"], within=90)
    said = [log(admin, gang["id"], rank=rank).splitlines() for rank in range(4)]
    assert [lines[0] for lines in said] == ["0/4", "1/4", "2/4", "3/4"]
    # All of them look for the first pod by the name of its service.
    (master,) = {lines[1] for lines in said}
    pod, service = master.split(".")
    assert pod == f"{service}-0"
    (start,) = starts(admin, gang["id"])
    assert start["isolation"] == "kubernetes"
    own = submit(admin, "echo own", image=os.environ.get("FALAJ_TEST_IMAGE", "debian:bookworm-slim"))
    ended(admin, own["id"], within=90)
    assert log(admin, own["id"]) == "own\n"


def test_what_kubernetes_cannot_have_is_refused_when_it_is_submitted(kubernetes):
    _, admin = kubernetes

    def refused(**more):
        body = {"name": "no", "command": ["true"], "resources": {"cpu": 1, "memory": "64MiB"}, **more}
        answer = admin.post("/t/default/default/api/jobs", json=body)
        assert answer.status_code == 400, answer.text
        return answer.text

    assert "gpu_fraction" in refused(resources={"cpu": 1, "memory": "64MiB", "gpu_fraction": 0.5})
    assert "mig" in refused(resources={"cpu": 1, "memory": "64MiB", "mig": "1g"})
    assert "checkpoint.dir" in refused(checkpoint={"every": "1m"})
    assert "no image" in refused(image="a b")


def test_failing_and_cancelling_on_kubernetes(kubernetes):
    fails_and_is_cancelled(kubernetes[1])


def test_a_killed_server_finds_its_jobs_on_kubernetes(kubernetes):
    is_found_after_a_kill(*kubernetes)
