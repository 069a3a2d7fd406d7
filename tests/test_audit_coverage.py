"""Every route leaves its trace: a refusal and a change are on the audit log under the request's own id.

Two callers walk all routes of the document: a viewer of one tenant, whom most of them refuse, and the
administrator, whom they obey. A route that takes a body and is not in the table below fails the walk."""

import json
import time
import uuid

import pytest

import mlflow_bodies
from server import Server
from test_routes import OPEN, operations

POLICY = 'forbid (principal, action == Action::"object:delete", resource);'

PROJECT = "/v1/tenants/{tenant}/projects/{project}"

# One of every kind of definition, all of them called `thing`.
FEATURES = {
    "entities": [{"name": "thing", "join_keys": [{"name": "key", "type": "int64"}]}],
    "sources": [{"name": "thing", "kind": "push"}],
    "views": [{"name": "thing", "entities": ["thing"], "source": "thing",
               "schema": [{"name": "value", "type": "float64"}]}],
    "services": [{"name": "thing", "features": ["thing:value"]}],
}

FEATURE_ROWS = {"key": [1], "value": [0.5], "event_timestamp": ["2026-01-01T00:00:00Z"]}

# What to send so that the request is judged rather than refused as malformed.
BODIES = {
    ("post", "/v1/tenants"): {"name": "fresh-tenant"},
    ("patch", "/v1/tenants/{tenant}"): {"display_name": "x"},
    ("post", "/v1/tenants/{tenant}/projects"): {"name": "fresh-project"},
    ("patch", "/v1/tenants/{tenant}/projects/{project}"): {"purpose": "x"},
    ("post", "/v1/zones"): {"name": "fresh-zone", "jurisdiction": "AE"},
    ("post", "/v1/zones/{zone}/transfers"): {"to": "elsewhere", "basis": "x"},
    ("post", "/v1/me/password"): {"current": "wrong", "password": "violet-otter-7-canal"},
    ("post", "/v1/residency/check"): {"from": "local", "to": "local"},
    ("post", "/v1/users"): {"name": "fresh-user", "password": "correct horse battery"},
    ("patch", "/v1/users/{name}"): {"display_name": "x"},
    ("post", "/v1/service-accounts"): {"name": "fresh-account"},
    ("patch", "/v1/service-accounts/{name}"): {"display_name": "x"},
    ("post", "/v1/tokens"): {"role": "admin", "owner": "admin"},
    ("post", "/v1/role-bindings"): {"principal": "walker-account", "role": "auditor"},
    ("post", "/v1/tenants/{tenant}/group-roles"): {"issuer": "https://id.example", "group": "g", "role": "viewer"},
    ("put", "/v1/tenants/{tenant}/policies/{name}"): {"source": POLICY},
    ("post", "/v1/policies/test"): {"action": "tenant:read", "resource": {"kind": "tenant", "id": "x"}},
    ("put", "/v1/subscriptions/{name}"): {},
    ("post", "/v1/subscriptions/{name}/ack"): {"cursor": "0-1"},
    ("put", f"{PROJECT}/model-policy"): {},
    ("put", f"{PROJECT}/models/{{name}}/versions/{{version}}/card"): {"fields": {"owner": "x"}},
    ("post", f"{PROJECT}/model-approvals"): {"model": "thing", "version": 1, "alias": "blessed"},
    ("post", f"{PROJECT}/model-approvals/{{approval}}/approve"): {},
    ("post", f"{PROJECT}/model-approvals/{{approval}}/reject"): {"reason": "x"},
    ("post", f"{PROJECT}/model-approvals/{{approval}}/withdraw"): {},
    ("put", f"{PROJECT}/endpoints/{{name}}"): {"spec": {"variants": [{"name": "main", "model": "served"}]}},
    ("post", f"{PROJECT}/endpoints/{{name}}/rollback"): {},
    ("post", "/api/datasets"): {"name": "fresh-dataset"},
    ("put", "/api/datasets/{name}"): {"owner": "x"},
    ("post", "/api/datasets/{name}/restore"): {},
    ("post", "/api/datasets/{name}/versions"): {"files": ["0" * 64]},
    ("post", "/api/datasets/{name}/rollback"): {"to": "1"},
    ("put", "/api/datasets/{name}/tags/{tag}"): {"version": 1},
    ("post", "/api/features/views/{name}/profile"): {},
    ("post", "/api/features/views/{name}/check"): {"entities": 10},
    ("post", "/api/features/apply"): FEATURES,
    ("post", "/api/features/training-sets"): {
        "service": "thing", "moments": {"key": [1], "event_timestamp": ["2026-01-01T00:00:00Z"]}},
    ("post", "/api/features/online"): {"features": ["thing:value"], "entities": {"key": [1]}},
    ("post", "/api/features/push"): {"view": "thing", "columns": FEATURE_ROWS},
    ("post", "/api/features/materialize"): {"views": ["thing"]},
    ("post", "/api/features/materialize/{job}/cancel"): {},
    ("delete", "/api/features/entities/{name}/rows"): {"keys": {"key": 1}},
    ("post", "/get-online-features"): {"feature_service": "thing", "entities": {"key": [1]}},
    ("post", "/push"): {"push_source_name": "thing", "df": FEATURE_ROWS},
    ("post", "/write-to-online-store"): {"feature_view_name": "thing", "df": FEATURE_ROWS},
    ("post", "/materialize"): {"feature_views": ["thing"], "disable_event_timestamp": True},
    ("post", "/materialize-incremental"): {"feature_views": ["thing"], "end_ts": "2026-01-02T00:00:00Z"},
    ("post", "/api/jobs"): {"name": "walked", "command": ["true"]},
    ("post", "/api/jobs/{job_id}/cancel"): {},
    ("post", "/api/jobs/{job_id}/report"): {"attempt": 1, "step": 1},
    ("post", "/api/jobs/{job_id}/lost"): {},
    ("delete", "/api/jobs/{job_id}"): {},
    ("put", "/api/queues/{queue}"): {"quota": {"cpu": 1.0}},
    ("put", "/api/budgets/{whose}/{period}"): {"amount": 1e6},
    ("delete", "/api/budgets/{whose}/{period}"): {},
    ("put", "/api/pools/{pool}/nodes/{node}"): {"address": "127.0.0.1"},
    ("delete", "/api/pools/{pool}/nodes/{node}"): {},
    ("post", f"{PROJECT}/endpoints/{{name}}/outcomes"): {
        "outcomes": [{"prediction": "01999d2c-0000-7000-8000-00000000000a", "value": 1.0}]},
}
RAW = {("post", "/api/datasets/{name}/files"): b"no Parquet",
       ("put", "/v1/tenants/{tenant}/projects/{project}/objects/{name}"): b"bytes",
       ("post", f"{PROJECT}/endpoints/{{name}}/requests"): json.dumps(mlflow_bodies.ROWS).encode()}
# Not walked: streams that last.
ENDLESS = {("get", "/v1/events/stream"), ("get", "/v1/tenants/{tenant}/projects/{project}/runs/{run}/follow")}


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """A server with one of everything that a route can name."""
    # A webhook may go to this machine, where nothing listens.
    server = Server(tmp_path_factory.mktemp("walk"), FALAJ_REGISTRY_WEBHOOKS_ALLOWED_HOSTS="127.0.0.1",
                    FALAJ_REGISTRY_WEBHOOKS_ALLOW_PRIVATE_ADDRESSES="true").start()
    admin = server.client(server.admin_token())
    admin.created("/v1/zones", {"name": "elsewhere", "jurisdiction": "EU"})
    admin.created("/v1/tenants", {"name": "walked"})
    admin.created("/v1/tenants/walked/projects", {"name": "lab"})
    admin.put("/v1/tenants/walked/projects/lab/objects/thing", data=b"x")
    admin.created("/v1/users", {"name": "thing"})
    admin.created("/v1/service-accounts", {"name": "walker-account", "tenant": "walked"})
    admin.created("/v1/role-bindings", {"principal": "walker-account", "role": "viewer", "tenant": "walked"})
    token = admin.created("/v1/tokens", {"owner": "walker-account", "role": "viewer", "tenant": "walked"})
    walker = server.client(token["secret"])
    # Every MLflow route is asked about the one project that has something in it.
    for client in (admin, walker):
        client.headers["x-falaj-project"] = "walked/lab"
    ids = mlflow_bodies.furnish(admin)
    asked = admin.created("/v1/tenants/walked/projects/lab/model-approvals",
                          {"model": "thing", "version": 2, "alias": "blessed"})
    ids |= {"approval": asked["id"], "version": "1", "file": str(uuid.uuid4())}
    deployed = admin.put("/v1/tenants/walked/projects/lab/endpoints/thing",
                         json={"spec": {"variants": [{"name": "main", "model": "served", "version": 1}]}})
    assert deployed.status_code == 200, deployed.text
    for path, sent in (("", {"json": {"name": "thing"}}), ("/thing/files?format=csv", {"data": b"key,value\n1,2\n"})):
        answer = admin.post(f"/api/datasets{path}", **sent)
        assert answer.status_code == 200, answer.text
    ids |= {"sha256": answer.json()["sha256"], "tag": "gold"}
    versioned = admin.post("/api/datasets/thing/versions", json={"files": [ids["sha256"]]})
    assert versioned.status_code == 200, versioned.text
    declared = admin.post("/api/features/apply", json=FEATURES)
    assert declared.status_code == 200, declared.text
    job = admin.post("/api/features/materialize", json={"views": ["thing"]})
    erased = admin.delete("/api/features/entities/thing/rows", json={"keys": {"key": 9}})
    assert (job.status_code, erased.status_code) == (202, 200), job.text + erased.text
    ids |= {"job": job.json()["id"], "erasure": erased.json()["id"]}
    # It runs until it is cancelled, so that it can report.
    trained = admin.post("/api/jobs", json={"name": "thing", "command": ["sleep", "600"],
                                            "resources": {"cpu": 0.1, "memory": "16MiB"}})
    assert trained.status_code == 200, trained.text
    queued = admin.put("/api/queues/thing", json={"quota": {"cpu": 1.0}})
    assert queued.status_code == 200, queued.text
    ids |= {"job_id": trained.json()["id"], "queue": "thing", "whose": "project", "period": "month", "pool": "local", "node": "local"}
    yield server, admin, walker, ids
    # Nothing of it outlives the server.
    admin.post(f"/api/jobs/{ids['job_id']}/cancel", json={})
    for _ in range(100):
        if admin.get(f"/api/jobs/{ids['job_id']}").json().get("ended_at"):
            break
        time.sleep(0.1)
    server.stop()


def target(path, values):
    for name, value in values.items():
        path = path.replace("{" + name + "}", value)
    return path


def call(client, method, path, values):
    sent = {}
    name = f"{method} {path}"
    if (method, path) in BODIES:
        sent = {"json": BODIES[method, path]}
    elif name in mlflow_bodies.BODIES:
        sent = {"json": mlflow_bodies.filled(mlflow_bodies.BODIES[name], values)}
    elif (method, path) in RAW or name in mlflow_bodies.RAW:
        sent = {"data": RAW.get((method, path)) or mlflow_bodies.RAW[name]}
    if name in mlflow_bodies.QUERIES:
        sent["params"] = mlflow_bodies.filled(mlflow_bodies.QUERIES[name], values)
    headers = {"Connection": "close"} | mlflow_bodies.filled(mlflow_bodies.HEADERS.get(name, {}), values)
    return client.request(method.upper(), target(path, values), headers=headers, **sent)


def audit_by_request(admin):
    """All entries, by the id of the request that caused them."""
    found = {}
    for line in admin.get("/v1/audit/export").text.splitlines():
        line = json.loads(line)
        if "entry" in line:
            entry = line["entry"] if isinstance(line["entry"], dict) else json.loads(line["entry"])
            found.setdefault(entry["request"], []).append(entry)
    return found


def is_told(method, path):
    name = f"{method} {path}"
    return (method, path) in BODIES or (method, path) in RAW or name in mlflow_bodies.BODIES or name in mlflow_bodies.RAW


def walk(client, openapi, ids):
    """Calls every guarded route once; answers with what was asked and what came back."""
    values = {"tenant": "walked", "project": "lab", "zone": "local", "name": "thing",
              "id": f"tok_{uuid.uuid4().hex}", "to": "elsewhere", "path": "notes/x.bin", "alias": "first",
              "model_id": ids["model"], "tag_key": "tag", "other": ids["other_run"]} | ids
    answers = []
    for method, path, operation in operations(openapi):
        if (method, path) in OPEN | ENDLESS or method == "delete":
            continue
        takes = "requestBody" in operation
        assert not takes or is_told(method, path), f"say what to send to {method} {path}"
        answers.append((method, path, operation["x-falaj-action"], call(client, method, path, values)))
    # What takes things away comes last, the inner before the outer.
    deletes = [(m, p, o) for m, p, o in operations(openapi) if m == "delete"]
    for method, path, operation in sorted(deletes, key=lambda d: -len(d[1])):
        answers.append((method, path, operation["x-falaj-action"], call(client, method, path, values)))
    return answers


def is_question(path):
    """MLflow asks some questions by POST."""
    return path.rsplit("/", 1)[-1] in ("search", "search-datasets", "get-latest-versions", "batchGetInfos", "metrics",
                                        "calculate-filter-correlation", "check", "files", "marks", "infer",
                                        "invocations", "index", "graphql", "requests", "online", "get-online-features")


def test_every_refusal_is_on_record(stage):
    server, admin, viewer, ids = stage
    answers = walk(viewer, admin.get("/openapi.json").json(), ids)
    entries = audit_by_request(admin)
    refused = 0
    for method, path, action, answer in answers:
        assert answer.status_code < 500, f"{method} {path}: {answer.text}"
        if answer.status_code in (403, 404):
            refused += 1
            own = entries.get(answer.headers["x-request-id"], [])
            assert any(entry["decision"] == "deny" for entry in own), f"{method} {path}: no trace of the refusal"
        else:
            assert answer.status_code < 300 or answer.status_code in (400, 409, 422), f"{method} {path}: {answer.text}"
            asks = method in ("get", "head") or "check" in path or is_question(path)
            assert asks or answer.status_code >= 400, \
                f"a viewer may {method} {path}"
    assert refused > 30


def test_every_change_is_on_record(stage):
    server, admin, _, ids = stage
    answers = walk(admin, admin.get("/openapi.json").json(), ids)
    entries = audit_by_request(admin)
    changed = 0
    for method, path, action, answer in answers:
        assert answer.status_code < 500, f"{method} {path}: {answer.text}"
        if method in ("get", "head") or path in ("/v1/residency/check", "/v1/policies/test") or is_question(path):
            continue
        if answer.status_code < 300:
            changed += 1
            own = entries.get(answer.headers["x-request-id"], [])
            assert any(e["action"] == action and e["decision"] == "allow" for e in own), f"{method} {path}: {own}"
    assert changed > 20
