"""Borders that are easy to forget: between two tokens of one owner, between a caller and the log that
watches it, between two tenants that ask about each other in a query."""

import json
import subprocess
import threading
import uuid

from server import binary, environment


def test_a_remembered_reply_is_for_the_same_token_only(server, admin, ours):
    """The reply to a new token holds its secret. A weaker token of the same owner must not get it."""
    key = {"Idempotency-Key": uuid.uuid4().hex}
    body = {"role": "admin", "tenant": ours.name}
    first = ours.client.post("/v1/tokens", json=body, headers=key)
    assert first.status_code == 201, first.text
    again = ours.client.post("/v1/tokens", json=body, headers=key)
    assert again.status_code == 201 and again.json() == first.json(), "the same token is given the same reply"

    weak = admin.created("/v1/tokens", {"owner": ours.account, "role": "viewer", "tenant": ours.name})
    stolen = server.client(weak["secret"]).post("/v1/tokens", json=body, headers=key)
    assert stolen.status_code >= 400, stolen.text
    assert first.json()["secret"] not in stolen.text


def test_a_reply_is_not_remembered_beyond_the_rights_it_was_given_under(server, admin, ours):
    name = f"fading-{uuid.uuid4().hex[:8]}"
    admin.created("/v1/service-accounts", {"name": name, "tenant": ours.name})
    binding = admin.created("/v1/role-bindings", {"principal": name, "role": "admin", "tenant": ours.name})
    token = admin.created("/v1/tokens", {"owner": name, "role": "admin", "tenant": ours.name})
    client = server.client(token["secret"])
    key, body = {"Idempotency-Key": uuid.uuid4().hex}, {"role": "viewer", "tenant": ours.name}
    first = client.post("/v1/tokens", json=body, headers=key)
    assert first.status_code == 201, first.text
    assert admin.delete(f"/v1/role-bindings/{binding['id']}").status_code in (200, 204)
    later = client.post("/v1/tokens", json=body, headers=key)
    assert later.status_code >= 400 and first.json()["secret"] not in later.text


def test_nobody_can_make_the_audit_log_unreadable(own_server, tmp_path):
    admin = own_server.client(own_server.admin_token())
    long = "x" * 2_000_000
    for path, body in [("/v1/tokens", {"role": "viewer", "owner": long}),
                       ("/v1/role-bindings", {"role": "viewer", "principal": long}),
                       ("/v1/policies/test", {"action": "tenant:read", "principal": long,
                                              "resource": {"kind": "tenant", "id": long}})]:
        assert 400 <= admin.post(path, json=body).status_code < 500, path
    assert admin.put("/v1/subscriptions/x", json={"type": long}).status_code == 400
    files = {}
    for name in ("export", "checkpoint", "key"):
        files[name] = tmp_path / name
        files[name].write_bytes(admin.get(f"/v1/audit/{name}").content)
    done = subprocess.run([binary(), "audit", "verify", "--export", files["export"], "--checkpoint",
                           files["checkpoint"], "--key", files["key"]], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_asking_for_another_tenants_log_tells_nothing(ours, theirs):
    fake = "x" * len(theirs.name)
    for path in ("/v1/audit", "/v1/audit/export", "/v1/audit/checkpoint", "/v1/events"):
        real, made_up = (ours.client.get(path, params={"tenant": name}) for name in (theirs.name, fake))
        assert real.status_code == made_up.status_code == 404, f"{path}: {real.status_code} {made_up.status_code}"
        assert real.content.replace(theirs.name.encode(), fake.encode()) == made_up.content, path


def test_two_changes_of_different_fields_both_stay(admin):
    name = f"race-{uuid.uuid4().hex[:8]}"
    admin.created("/v1/tenants", {"name": name})
    admin.created(f"/v1/tenants/{name}/projects", {"name": "lab"})
    path = f"/v1/tenants/{name}/projects/lab"
    for round in range(20):
        wanted = {"purpose": f"p{round}", "classification": f"c{round}"}
        threads = [threading.Thread(target=admin.patch, args=(path,), kwargs={"json": {field: value}})
                   for field, value in wanted.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        now = admin.get(path).json()
        assert {field: now[field] for field in wanted} == wanted


def test_a_deleted_projects_tokens_are_dead(server, admin):
    name = f"gone-{uuid.uuid4().hex[:8]}"
    admin.created("/v1/tenants", {"name": name})
    admin.created(f"/v1/tenants/{name}/projects", {"name": "lab"})
    admin.created("/v1/service-accounts", {"name": f"{name}-robot", "tenant": name})
    admin.created("/v1/role-bindings", {"principal": f"{name}-robot", "role": "viewer", "tenant": name,
                                        "project": "lab"})
    token = admin.created("/v1/tokens", {"owner": f"{name}-robot", "role": "viewer", "tenant": name,
                                         "project": "lab"})
    robot = server.client(token["secret"])
    assert robot.get(f"/v1/tenants/{name}/projects/lab").status_code == 200
    assert admin.delete(f"/v1/tenants/{name}/projects/lab").status_code == 204
    assert robot.get("/v1/whoami").status_code == 401
    assert admin.delete(f"/v1/tenants/{name}").status_code == 204
    listed = admin.get("/v1/service-accounts?page_size=1000").json()["items"]
    assert f"{name}-robot" not in [account["name"] for account in listed]
    assert json.loads(admin.get("/v1/tenants?page_size=1000").text)
