"""Questions in GraphQL and records of datasets that an attacker sends: depths, floods, circles and lies. The server
refuses or answers them, in time and within its memory."""

import json
import random

import pytest

DATASETS = "/api/3.0/mlflow/datasets"


def answered(answer):
    assert answer.status_code < 500, f"{answer.status_code} {answer.text[:500]}"
    assert answer.elapsed.total_seconds() < 10
    return answer


def ask(client, query, **more):
    return answered(client.post("/graphql", json={"query": query} | more))


def doubling(count, inside):
    """Fragments that hold the next one twice: 2^count fields if they were counted late."""
    return " ".join(f"fragment f{n} on T {{ {inside.replace('N', str(n + 1))} }}" for n in range(count))


@pytest.mark.parametrize("query", [
    "{" * 50_000,
    "{ a " * 20_000 + "}" * 20_000,
    "{ test(inputString: " + "[" * 20_000 + "1" + "]" * 20_000 + ") { output } }",
    "{ test(inputString: " + "{a: " * 20_000 + "1" + "}" * 20_000 + ") { output } }",
    "{ ...f0 } " + doubling(60, "...fN ...fN") + " fragment f60 on T { test { output } }",
    "{ a { ...f0 } } " + doubling(60, "a { ...fN } b { ...fN }") + " fragment f60 on T { x }",
    "{ ...f } fragment f on T { ...f }",
    "query(" + "$a: Int " * 10_000 + ") { test { output } }",
    "{ test" + " @skip(if: false)" * 5_000 + " { output } }",
    "#" * 200_000,
    "\ufeff" * 30_000,
    '{ test(inputString: "' + "\\u0041" * 10_000 + '") { output } }',
    '{ test(inputString: "\\ud83d") { output } }',
    '{ test(inputString: "\\u{110000}") { output } }',
    '{ test(inputString: """' + '"' * 1000 + '""") { output } }',
    "{ test(inputString: 1" + "0" * 50_000 + ") { output } }",
    "{ __schema { types { name } } }",
], ids=lambda query: query[:20])
def test_documents(admin, query):
    reply = ask(admin, query)
    assert reply.status_code in (200, 400, 413) and (reply.status_code != 200 or set(reply.json()) == {"data", "errors"})


def test_random_documents(admin):
    words = ["{", "}", "(", ")", "query", "mutation", "mlflowGetRun", "input", ":", "$x", '"a"', "...", "f", "fragment", "on",
             "@include", "if", "true", "[", "]", "run", "info", "\\", "\0", "é", "#", "\n"]
    chance = random.Random(7)
    for _ in range(300):
        ask(admin, " ".join(chance.choices(words, k=chance.randrange(1, 60))))


@pytest.mark.parametrize("body", [{}, {"query": None}, {"query": 5}, {"query": "{ test { output } }", "variables": [1]},
                                  {"query": "{ test { output } }", "operationName": 5}])
def test_bodies(admin, body):
    assert answered(admin.post("/graphql", json=body)).status_code == 400


def test_a_question_tells_nothing_of_others(server, admin, ours, theirs):
    """An experiment of another tenant reads like one that is not there."""
    query = '{ mlflowGetExperiment(input: {experimentId: "0"}) { experiment { name } } mlflowSearchModelVersions(input: {}) { modelVersions { name } } }'
    named = {"x-falaj-project": f"{theirs.name}/lab"}
    for client in (ours.client, server.client("falaj_nonsense")):
        reply = answered(client.post("/graphql", json={"query": query}, headers=named))
        assert reply.status_code in (401, 404), reply.text
    gone = ask(admin, '{ mlflowGetExperiment(input: {experimentId: "987654"}) { experiment { name } } }').json()
    assert gone["data"] == {"mlflowGetExperiment": None} and "987654" in gone["errors"][0]


def test_lookups_are_counted(admin):
    """Each run of a list would be looked up in the registry; there are limits on how often."""
    experiment = admin.post("/api/2.0/mlflow/experiments/create", json={"name": "lookups"}).json()["experiment_id"]
    for _ in range(3):
        admin.post("/api/2.0/mlflow/runs/create", json={"experiment_id": experiment})
    fields = " ".join(f"r{n}: mlflowSearchRuns(input: {{experimentIds: [\"{experiment}\"]}}) {{ runs {{ a: modelVersions {{ name }} experiment {{ name }} }} }}"
                      for n in range(10))
    reply = ask(admin, "{ " + fields + " }").json()
    assert reply["errors"] is None and all(len(part["runs"]) == 3 for part in reply["data"].values())


@pytest.fixture(scope="module")
def dataset(admin):
    return admin.post(f"{DATASETS}/create", json={"name": "hostile"}).json()["dataset"]["dataset_id"]


@pytest.mark.parametrize("records", [
    "[" * 100_000, "[" + "[]," * 100_000 + "[]]", "[" + "1," * 200_000 + "1]", '[{"inputs": ' + '{"a":' * 5000 + "1" + "}" * 5000 + "}]",
    '[{"inputs": {"a": ' + "[" * 200 + "]" * 200 + "}}]", '{"inputs": {}}', "null", '"x"', "[null]", '[{"inputs": null}]', '[{"inputs": {}}',
    '[{"inputs": {"a": 1e999}}]', '[{"inputs": {"a": NaN}}]', '[{"inputs": {}, "tags": [1]}]', '[{"inputs": {}, "source": 5}]',
    '[{"inputs": {}, "source": {}}]', '[{"inputs": {}, "expectations": "x"}]',
    json.dumps([{"inputs": {"q": "x" * (5 << 20)}}]),
], ids=lambda records: records[:24])
def test_records(admin, dataset, records):
    answer = answered(admin.post(f"{DATASETS}/{dataset}/records", json={"records": records}))
    assert answer.status_code in (400, 413), answer.text


def test_odd_records_come_back_as_they_were(admin, dataset):
    odd = [{"inputs": {"nul": "a\0b", "é": "\U0001f600", "": [], "big": 10**30, "deep": [[[[{}]]]]}, "expectations": {"\0": "\0"}, "tags": {"": ""}}]
    assert admin.post(f"{DATASETS}/{dataset}/records", json={"records": json.dumps(odd)}).status_code == 200
    kept = json.loads(admin.get(f"{DATASETS}/{dataset}/records").json()["records"])
    assert [{key: record[key] for key in ("inputs", "expectations", "tags")} for record in kept] == odd
    assert admin.get(f"{DATASETS}/{dataset}/records", params={"page_token": "eyJhdCI6MSwiaWQiOiJcdTAwMDAifQ=="}).status_code == 400
    for name in ("a\0", "\0"):
        assert admin.post(f"{DATASETS}/create", json={"name": name}).status_code == 400
        assert answered(admin.get("/api/3.0/mlflow/scorers/get", params={"experiment_id": "0", "name": name})).status_code == 404
        assert answered(admin.get(f"{DATASETS}/{name.replace(chr(0), '%00')}")).status_code in (400, 404)
