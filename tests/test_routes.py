"""Every route of the platform, walked: closed to strangers, and one tenant's things are not there
for another."""

import re
import uuid

METHODS = ("get", "put", "post", "patch", "delete", "head")
# Health, the pages about errors, the ways to sign in, and what a signed URL opens. A route that is added
# here is open to the world.
OPEN = {
    ("get", "/health"), ("get", "/health/live"), ("get", "/health/ready"), ("get", "/docs/errors/{code}"),
    ("get", "/v2/health/live"), ("get", "/v2/health/ready"),
    ("post", "/v1/login"), ("get", "/login"), ("post", "/auth/login"), ("post", "/auth/logout"),
    ("get", "/auth/oidc/start"), ("get", "/auth/oidc/callback"),
    ("get", "/api/2.0/mlflow-artifacts/signed/file"), ("put", "/api/2.0/mlflow-artifacts/signed/part"),
}
ANY = {"tenant": "default", "project": "default", "zone": "local", "name": "x", "id": "x", "to": "x"}


def operations(openapi):
    for path, item in openapi["paths"].items():
        for method in METHODS:
            if method in item:
                yield method, path, item[method]


def fill(path, values=ANY):
    return re.sub(r"\{(\w+)\}", lambda m: values.get(m.group(1), "x"), path)


def comparable(answer):
    """What a caller could tell two answers apart by: all but what differs for every request."""
    per_request = {"date", "x-request-id", "traceparent", "server-timing"}
    headers = {k.lower(): v for k, v in answer.headers.items() if k.lower() not in per_request}
    return answer.status_code, headers, answer.content


def test_the_surface_is_there(openapi):
    paths = set(openapi["paths"])
    for path in ["/v1/tenants", "/v1/tenants/{tenant}/projects", "/v1/tokens", "/v1/role-bindings",
                 "/v1/zones", "/v1/users", "/v1/service-accounts", "/v1/audit", "/v1/audit/export",
                 "/v1/events", "/v1/whoami", "/v1/policies/test", "/v1/backup", "/metrics"]:
        assert path in paths, f"{path} is missing from /openapi.json"
    assert openapi["openapi"].startswith("3.1")


def test_only_what_is_listed_is_open(openapi):
    declared = {(m, p) for m, p, operation in operations(openapi) if operation.get("security") == []}
    assert declared <= OPEN, f"open, and should not be: {declared - OPEN}"
    for method, path, operation in operations(openapi):
        if (method, path) not in OPEN:
            assert operation.get("x-falaj-action"), f"{method} {path} names no action"


def test_every_other_route_refuses_a_stranger(openapi, nobody):
    for method, path, operation in operations(openapi):
        if (method, path) in OPEN:
            continue
        target = fill(path)
        for body in ({}, {"json": {}}, {"data": b"x" * 100}):
            if body and method in ("get", "head"):
                continue
            # A connection each: the server hangs up on a body that it refused to read.
            answer = nobody.request(method.upper(), target, headers={"Connection": "close"}, **body)
            assert answer.status_code == 401, f"{method} {target}: {answer.status_code} {answer.text}"
            if method != "head":
                said = answer.json()
                # In our own words, in MLflow's, or in those of the inference protocol.
                assert said.get("code") == "unauthenticated" or said.get("error_code") == "UNAUTHENTICATED" \
                    or (path.startswith("/v2") and list(said) == ["error"]), f"{method} {target}: {said}"


def test_a_wrong_credential_is_no_better_than_none(openapi, server, nobody):
    wrong = [
        "Bearer flj_" + "0" * 32 + "_" + "A" * 43, "Bearer ", "Bearer x", "Basic eDp5", "Basic !!!",
        "bearer null", "Digest x", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9.", "Bearer \x7f",
    ]
    for credential in wrong:
        answer = nobody.get("/v1/whoami", headers={"Authorization": credential})
        assert answer.status_code in (400, 401), f"{credential!r}: {answer.status_code}"
    for method, path, _ in operations(openapi):
        if (method, path) not in OPEN:
            answer = nobody.request(method.upper(), fill(path), headers={"Authorization": wrong[0]})
            assert answer.status_code == 401, f"{method} {path}: {answer.status_code}"


def test_another_tenants_things_look_like_nothing(openapi, ours, theirs):
    """Each route below a tenant, asked by a foreign admin, with a real name and a made-up one of the
    same length: the answers must be equal, byte for byte."""
    checked = 0
    for method, path, operation in operations(openapi):
        if "{tenant}" not in path:
            continue
        fake = "x" * len(theirs.name)
        rest = {"project": theirs.project, "name": "notes.txt", "id": "x", "object": "notes.txt"}
        body = {} if method in ("get", "head") else {"json": {"name": "x"}}
        real = ours.client.request(method.upper(), fill(path, {"tenant": theirs.name} | rest), **body)
        made_up = ours.client.request(method.upper(), fill(path, {"tenant": fake} | rest), **body)
        assert real.status_code < 500, f"{method} {path}: {real.text}"
        assert real.status_code >= 400, f"{method} {path} reached another tenant: {real.text}"
        left = (real.status_code, real.content.replace(theirs.name.encode(), fake.encode()))
        assert left == (made_up.status_code, made_up.content), f"{method} {path}"
        assert set(comparable(real)[1]) == set(comparable(made_up)[1]), f"{method} {path}"
        checked += 1
    assert checked >= 10
    # And nothing happened to them.
    assert theirs.client.get(f"/v1/tenants/{theirs.name}").status_code == 200
    notes = theirs.client.get(f"/v1/tenants/{theirs.name}/projects/lab/objects/notes.txt")
    assert notes.content == b"canary of " + theirs.name.encode()


def test_another_tenants_project_and_object_look_like_nothing(ours, theirs):
    for real, fake in [
        (f"/v1/tenants/{theirs.name}/projects/lab", f"/v1/tenants/{theirs.name}/projects/bal"),
        (f"/v1/tenants/{theirs.name}/projects/lab/objects/notes.txt",
         f"/v1/tenants/{theirs.name}/projects/lab/objects/seton.txt"),
    ]:
        for method in ("GET", "HEAD", "DELETE"):
            left, right = ours.client.request(method, real), ours.client.request(method, fake)
            assert left.status_code == right.status_code == 404, f"{method} {real}: {left.status_code}"
            a, b = real.rsplit("/", 1)[1].encode(), fake.rsplit("/", 1)[1].encode()
            assert left.content.replace(a, b) == right.content


def test_another_tenants_principals_and_tokens_look_like_nothing(ours, theirs):
    tokens = f"/v1/tokens/{theirs.token_id}", f"/v1/tokens/tok_{uuid.uuid4().hex}"
    for method in ("GET", "DELETE"):
        left, right = (ours.client.request(method, path) for path in tokens)
        assert left.status_code == right.status_code == 404, left.text
        assert len(left.content) == len(right.content)
    for method in ("GET", "DELETE"):
        left = ours.client.request(method, f"/v1/service-accounts/{theirs.account}")
        fake = "x" * len(theirs.account)
        right = ours.client.request(method, f"/v1/service-accounts/{fake}")
        assert left.status_code == right.status_code == 404, left.text
        assert left.content.replace(theirs.account.encode(), fake.encode()) == right.content
    assert theirs.client.get("/v1/whoami").status_code == 200


def test_lists_show_what_get_allows(ours, theirs):
    for path in ("/v1/tenants", "/v1/service-accounts", "/v1/tokens", "/v1/role-bindings",
                 "/v1/users", "/v1/audit", "/v1/events"):
        answer = ours.client.get(path)
        assert answer.status_code in (200, 403), f"{path}: {answer.status_code} {answer.text}"
        assert theirs.name not in answer.text, f"{path} shows another tenant"
    names = [tenant["name"] for tenant in ours.client.get("/v1/tenants").json()["items"]]
    assert names == [ours.name]


def test_an_id_in_the_body_is_authorised_too(ours, theirs):
    """The route is ours; what the body names is not."""
    for path, body in [
        ("/v1/role-bindings", {"principal": theirs.account, "role": "viewer", "tenant": ours.name}),
        ("/v1/role-bindings", {"principal": ours.account, "role": "viewer", "tenant": theirs.name}),
        ("/v1/role-bindings", {"principal": ours.account, "role": "admin"}),
        ("/v1/tokens", {"owner": theirs.account, "role": "viewer", "tenant": theirs.name}),
        ("/v1/tokens", {"owner": ours.account, "role": "admin", "tenant": theirs.name}),
        ("/v1/service-accounts", {"name": "spy", "tenant": theirs.name}),
        ("/v1/users", {"name": "spy", "tenant": theirs.name, "password": "correct horse battery"}),
    ]:
        answer = ours.client.post(path, json=body)
        assert answer.status_code in (400, 403, 404, 422), f"{path} {body}: {answer.status_code} {answer.text}"


def test_a_denial_is_on_the_audit_log(admin, ours, theirs):
    answer = ours.client.delete(f"/v1/tenants/{theirs.name}")
    assert answer.status_code == 404
    request = answer.headers["x-request-id"]
    found = admin.get("/v1/audit", params={"decision": "deny", "page_size": "1000"})
    assert found.status_code == 200, found.text
    assert request in found.text
