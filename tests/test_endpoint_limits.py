"""How often one may ask an endpoint, how long it keeps what it was asked, and what it runs at all."""

import http.client
import json
import threading
import time
import uuid

import pytest

from deployed import ROWS, TURNED, deploy, place, register, until
from engines import ENGINES, OnEngine


@pytest.fixture(scope="module", params=ENGINES)
def stage(request, tmp_path_factory):
    server = OnEngine(tmp_path_factory.mktemp(f"limits-{request.param}"), request.param).start()
    admin = server.client(server.admin_token())
    register(admin, "turned")
    deploy(admin, "turned")
    yield server, admin
    server.stop()
    assert "panicked" not in server.log.read_text(errors="replace"), server.tail()


def account(server, admin, tokens=1):
    """Clients of one new account, each with a token of its own."""
    name = f"asker-{uuid.uuid4().hex[:8]}"
    admin.created("/v1/service-accounts", {"name": name, "tenant": "default"})
    admin.created("/v1/role-bindings", {"principal": name, "role": "viewer", "tenant": "default"})
    made = [admin.created("/v1/tokens", {"owner": name, "role": "viewer", "tenant": "default"}) for _ in range(tokens)]
    return [server.client(token["secret"]) for token in made]


def ask(client, body=ROWS):
    return client.post("/v2/models/turned/infer", json=body)


def metric(admin, name):
    lines = admin.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def test_a_caller_is_limited_by_its_token(stage):
    server, admin = stage
    deploy(admin, "turned", rate={"per_second": 0.2, "burst": 3})
    before = metric(admin, "falaj_serving_rate_limited_total")
    one, other = account(server, admin, tokens=2)
    assert [ask(one).status_code for _ in range(5)] == [200, 200, 200, 429, 429]
    refused = ask(one)
    assert int(refused.headers["retry-after"]) >= 1
    assert "0.2 a second" in refused.json()["error"]
    assert one.post("/v2/models/turned/infer", data=b"not even JSON").status_code == 429, "before the body is read"
    assert one.post("/endpoints/turned/invocations", json={"inputs": [[1, 2, 3]]}).status_code == 429
    later = one.post(f"{place('turned')}/requests", json=ROWS)
    assert (later.status_code, later.json()["code"]) == (429, "rate-limited")
    assert one.get("/v2/models/turned").status_code == 200, "looking is not asking"
    assert ask(other).status_code == 200, "another token of the same account"
    time.sleep(5.2)
    assert [ask(one).status_code for _ in range(2)] == [200, 429]
    assert metric(admin, "falaj_serving_rate_limited_total") >= before + 6
    # The spec says it, and can say it no more.
    assert admin.get(place("turned")).json()["spec"]["rate"] == {"per_second": 0.2, "burst": 3}
    assert "rate" not in deploy(admin, "turned")["spec"]
    assert {ask(one).status_code for _ in range(20)} == {200}
    wrong = admin.put(place("turned"), json={"spec": {"variants": [{"name": "main", "model": "turned"}],
                                                      "rate": {"per_second": 0}}})
    assert wrong.status_code == 400 and wrong.json()["field"] == "rate.per_second"


def test_how_long_predictions_are_kept_is_the_endpoints_to_say(stage):
    _, admin = stage
    made = deploy(admin, "turned", log=1.0, keep_predictions="7d")
    assert made["spec"]["keep_predictions"] == "7d"
    offered = metric(admin, "falaj_predictions_offered_total")
    assert ask(admin).json()["outputs"][0]["data"] == TURNED
    assert metric(admin, "falaj_predictions_offered_total") == offered + 1
    for name in ("kept", "dropped", "lost"):
        assert metric(admin, f"falaj_predictions_{name}_total") >= 0
    wrong = admin.put(place("turned"), json={"spec": {"variants": [{"name": "main", "model": "turned"}],
                                                      "keep_predictions": "4000d"}})
    assert wrong.status_code == 400 and wrong.json()["field"] == "keep_predictions"
    deploy(admin, "turned")


def test_no_endpoint_runs_a_version_that_is_gone(stage):
    """Deployed and deleted at the same moment: one of the two is refused."""
    server, admin = stage
    won = set()
    for round_ in range(8):
        version = register(admin, "fleeting")
        profile = f"/v1/tenants/default/projects/default/models/fleeting/versions/{version}/profile"
        until(lambda: admin.get(profile).status_code == 200)
        spec = {"variants": [{"name": "main", "model": "fleeting", "version": version}]}
        begin, answers = threading.Barrier(2), {}

        def deploy_it():
            client = server.client(server.admin_token())
            begin.wait()
            answers["deploy"] = client.put(place("fleeting"), json={"spec": spec})

        def delete_it():
            client = server.client(server.admin_token())
            begin.wait()
            time.sleep(0.004 * round_)
            answers["delete"] = client.delete("/api/2.0/mlflow/model-versions/delete",
                                              json={"name": "fleeting", "version": str(version)})

        threads = [threading.Thread(target=work) for work in (deploy_it, delete_it)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        there = admin.get("/api/2.0/mlflow/model-versions/get", params={"name": "fleeting", "version": str(version)})
        endpoint = admin.get(place("fleeting"))
        runs = endpoint.status_code == 200 and version in [one["version"] for one in endpoint.json()["running"]]
        assert not (runs and there.status_code == 404), {name: answer.text for name, answer in answers.items()}
        assert (answers["delete"].status_code == 200) == (there.status_code == 404)
        assert all(answer.status_code < 500 for answer in answers.values()), {n: a.text for n, a in answers.items()}
        won.add("deploy" if runs else "delete")
        if runs:
            admin.delete(place("fleeting"))
    assert won, "each round had a winner"


def raw(server, path, body, headers):
    """Asked without a library that would tidy the path up."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    told = {name.lower(): value for name, value in answer.getheaders()}
    for changing in ("date", "x-request-id"):
        assert told.pop(changing), changing
    text = answer.read()
    connection.close()
    with_id = json.loads(text) if text.startswith(b"{") else text
    if isinstance(with_id, dict) and "id" in with_id:
        del with_id["id"]
    return answer.status, told, with_id


def test_a_name_with_something_encoded_is_answered_alike(stage):
    """One is found without the router and the other by it; both pass the same layers."""
    server, admin = stage
    deploy(admin, "turned")
    admin.created("/v1/tenants", {"name": "elsewhere"})
    stranger = f"stranger-{uuid.uuid4().hex[:8]}"
    admin.created("/v1/service-accounts", {"name": stranger, "tenant": "elsewhere"})
    secret = admin.created("/v1/tokens", {"owner": stranger, "role": "viewer", "tenant": "elsewhere"})["secret"]
    token = {"Authorization": f"Bearer {server.admin_token()}", "Content-Type": "application/json"}
    rows = json.dumps(ROWS)
    statuses = []
    for case, (body, headers) in {
        "an answer": (rows, token),
        "no token": (rows, {}),
        "a token of nobody": (rows, {"Authorization": "Bearer flj_nobody"}),
        "a token of elsewhere": (rows, token | {"Authorization": f"Bearer {secret}"}),
        "no JSON": ("{", token),
        "no inputs": ("{}", token),
        "no body": (None, token),
        "a foreign host": (rows, token | {"Host": "evil.example"}),
        "a foreign page": (rows, token | {"Origin": "http://evil.example"}),
        "more than its shape": (json.dumps({"inputs": [ROWS["inputs"][0] | {"data": [0.5] * 300_000}]}), token),
        "packed by nothing known": (rows, token | {"Content-Encoding": "x-unknown"}),
        "a deadline that is over": (rows, token | {"X-Request-Timeout": "0"}),
        "a page of text": (rows, token | {"Content-Type": "text/html"}),
    }.items():
        for place_of in ("/v2/models/{}/infer", "/t/default/default/v2/models/{}/infer"):
            for plain, encoded in (("turned", "%74urned"), ("missing", "%6dissing")):
                short = raw(server, place_of.format(plain), body, headers)
                routed = raw(server, place_of.format(encoded), body, headers)
                assert short == routed, f"{case}, {plain}"
                statuses.append(short[0])
    assert {200, 400, 401, 403, 404, 415} <= set(statuses) and max(statuses) < 500, sorted(set(statuses))
