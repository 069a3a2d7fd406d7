"""Endpoints whose model another server computes: this platform again, and servers that misbehave."""

import json
import subprocess

import pytest

from deployed import ROWS, TURNED, Far, deploy, place, register, running
from server import Server, binary, environment


@pytest.fixture(scope="module")
def near_and_far(tmp_path_factory):
    """Two servers: the first one may ask the second, with a token that only its operator knows."""
    folder = tmp_path_factory.mktemp("remote")
    for name in ("near", "far"):
        (folder / name).mkdir()
    far = Server(folder / "far").start()
    there = far.client(far.admin_token())
    register(there, "turned")
    deploy(there, "turned")
    there.created("/v1/service-accounts", {"name": "asker", "tenant": "default"})
    there.created("/v1/role-bindings", {"principal": "asker", "role": "viewer", "tenant": "default"})
    token = there.created("/v1/tokens", {"owner": "asker", "role": "viewer", "tenant": "default"})["secret"]
    (folder / "token").write_text(token + "\n")
    config = folder / "falaj.toml"
    config.write_text(f"""
[serving.remote]
allowed_hosts = ["http://127.0.0.1", "https://models.example.com"]
allow_private_addresses = true
max_answer = "1MiB"

[[serving.remote.tokens]]
name = "far"
host = "127.0.0.1"
file = "{folder / 'token'}"

[[serving.remote.tokens]]
name = "theirs"
host = "127.0.0.1"
file = "{folder / 'token'}"
tenants = ["somebody"]
""")
    near = Server(folder / "near", FALAJ_CONFIG=str(config)).start()
    yield near, far, token
    for server in (near, far):
        server.stop()
        assert "panicked" not in server.log.read_text(errors="replace"), server.tail()


def remote(url, **more):
    return {"remote": {"url": url, "model": "turned"} | more}


def test_another_falaj_answers(near_and_far):
    near, far, token = near_and_far
    admin = near.client(near.admin_token())
    made = deploy(admin, "turned", remote(f"{far.url}/t/default/default", version="1", token="far"), log=1.0)
    assert made["running"][0]["remote"] == "1"
    assert token not in json.dumps(made) and token not in admin.get(place("turned")).text
    answer = admin.post("/v2/models/turned/infer", json=ROWS)
    assert answer.status_code == 200, answer.text
    assert answer.json()["outputs"][0]["data"] == TURNED
    assert (answer.json()["model_version"], answer.json()["model_name"]) == ("1", "turned")
    assert answer.json()["parameters"]["prediction_id"], "it is kept like any other"
    told = admin.get("/v2/models/turned").json()
    assert [(value["name"], value["datatype"]) for value in told["inputs"]] == [("X", "FP32")]
    wrong = {"inputs": [{"name": "Z", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}
    assert admin.post("/v2/models/turned/infer", json=wrong).status_code == 400
    scored = admin.post("/endpoints/turned/invocations", json={"inputs": [[1.0, 2.0, 3.0]]})
    assert scored.status_code == 200, scored.text
    assert token not in near.log.read_text(errors="replace")
    statistics = admin.get("/v2/models/turned/stats").json()["model_stats"][0]
    assert statistics["inference_stats"]["success"]["count"] == 2
    assert admin.post(f"{place('turned')}/pause").status_code == 200
    assert admin.post("/v2/models/turned/infer", json=ROWS).status_code == 503
    assert admin.post(f"{place('turned')}/resume").status_code == 200
    assert admin.post("/v2/models/turned/infer", json=ROWS).status_code == 200


@pytest.mark.parametrize("variant, field", [
    (remote("http://example.com"), "remote.url"),
    (remote("https://127.0.0.1"), "remote.url"),
    (remote("ftp://127.0.0.1"), "variants[0].remote.url"),
    (remote("http://me@127.0.0.1"), "variants[0].remote.url"),
    (remote("http://127.0.0.1", token="none"), "remote.token"),
    (remote("http://127.0.0.1", token="theirs"), "remote.token"),
    (remote("http://127.0.0.1") | {"model": "turned"}, "variants[0].remote"),
    (remote("http://127.0.0.1") | {"alias": "a"}, "variants[0].version"),
    ({}, "variants[0].model"),
])
def test_what_may_not_be_asked(near_and_far, variant, field):
    admin = near_and_far[0].client(near_and_far[0].admin_token())
    answer = admin.put(place("refused"), json={"spec": {"variants": [{"name": "main"} | variant]}})
    assert answer.status_code == 400, answer.text
    assert answer.json()["field"] == field, answer.text
    assert admin.get(place("refused")).status_code == 404


def test_a_server_that_is_not_there_or_does_not_know_the_model(near_and_far):
    near, far, _ = near_and_far
    admin = near.client(near.admin_token())
    for variant in (remote("http://127.0.0.1:9"), remote(f"{far.url}/t/default/default"),
                    {"remote": {"url": f"{far.url}/t/default/default", "model": "none", "token": "far"}}):
        answer = admin.put(place("absent"), json={"spec": {"variants": [{"name": "main"} | variant]}})
        assert answer.status_code == 503, answer.text
        assert "does not answer as it should" in answer.json()["detail"]


def test_what_the_other_server_does_wrong_is_not_ours(near_and_far):
    admin = near_and_far[0].client(near_and_far[0].admin_token())
    with running(Far()) as far:
        deploy(admin, "distant", {"remote": {"url": far.url, "model": "far"}}, runs={"timeout": "2s"})
        ask = lambda: admin.post("/v2/models/distant/infer", json=ROWS)
        assert ask().json()["outputs"][0]["data"] == TURNED
        assert ask().json()["model_version"] == "latest"
        assert "authorization" not in {name.lower() for name in far.headers_seen[-1]}
        for step, status in (("busy", 503), ("bad", 400), ("broken", 503), (10, 504)):
            far.script[:] = [step]
            answer = ask()
            assert answer.status_code == status, f"{step}: {answer.text}"
        assert ask().status_code == 200
        # Side by side with a registered model.
        register(admin, "own")
        variants = [{"name": "main", "remote": {"url": far.url, "model": "far"}}, {"name": "near", "model": "own"}]
        both = deploy(admin, "both", variants=variants)
        seen = {admin.post("/v2/models/both/infer", json=ROWS, headers={"x-falaj-routing-key": str(key)})
                .json()["parameters"]["variant"] for key in range(20)}
        assert seen == {"main", "near"} and len(both["running"]) == 2


def test_the_command(near_and_far, tmp_path):
    near, far, _ = near_and_far
    env = environment(FALAJ_URL=near.url, FALAJ_TOKEN=near.admin_token(), HOME=str(tmp_path),
                      XDG_CONFIG_HOME=str(tmp_path / "config"))
    run = lambda *arguments: subprocess.run([binary(), *arguments], env=env, capture_output=True, text=True,
                                            stdin=subprocess.DEVNULL, timeout=60)
    done = run("deploy", "--remote", f"{far.url}/t/default/default", "--remote-token", "far", "--name", "turned")
    assert done.returncode == 0, done.stderr
    assert f"turned at {far.url}" in done.stdout
    asked = run("predict", "turned", "--json", json.dumps(ROWS))
    assert json.loads(asked.stdout)["outputs"][0]["data"] == TURNED
    assert run("deploy", "own", "--remote", far.url, "--name", "x").returncode == 2
