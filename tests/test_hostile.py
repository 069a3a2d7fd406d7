"""What an attacker sends. Each class of input gets some examples; in every case the server stays
up, answers in time, says nothing it should not, and never fails with a status of its own."""

import gzip
import json
import os
import socket
import threading
import time
import uuid
import zlib

import pytest

from server import raw, status_of

OBJECTS = "/v1/tenants/default/projects/default/objects"


def answered(answer, *allowed):
    assert answer.status_code < 500, f"{answer.status_code} {answer.text}"
    assert answer.elapsed.total_seconds() < 10
    if allowed:
        assert answer.status_code in allowed, f"{answer.status_code} {answer.text}"
    if answer.status_code >= 400 and answer.content:
        assert answer.headers["content-type"].startswith("application/problem+json"), answer.headers
        for leak in (os.path.expanduser("~") + "/", "/tmp/", "SELECT ", "INSERT ", "src/", "sqlite", "postgres", "panicked"):
            assert leak not in answer.text, f"the error tells of {leak!r}: {answer.text}"
    return answer


def post_raw(client, path, body, **headers):
    return client.post(path, data=body, headers={"Content-Type": "application/json"} | headers)


@pytest.mark.parametrize("name", [
    "", " ", "A", "a b", "-a", "a-", "a" * 64, "a" * 1_000_000, "Acme", "аcme", "ac\u200bme", "acme ",
    "../etc", "a/b", "a\\b", "a\x00b", "a\nb", "'; DROP TABLE tenant; --", "<script>alert(1)</script>",
    "\ud800", "a%2fb", "😀", "ﬁ", "con", ".", "..", "~",
])
def test_names_that_could_be_mistaken(admin, name):
    answer = admin.post("/v1/tenants", data=json.dumps({"name": name}),
                        headers={"Content-Type": "application/json"})
    if name == "con":
        answered(answer, 201, 409)
    else:
        answered(answer, 400, 413)


@pytest.mark.parametrize("path", [
    "../x", "..%2fx", "%2e%2e/x", "%2e%2e%2fx", "..\\x", "..%5cx", "a/../../x", "a//b", "/etc/passwd",
    "%2fetc%2fpasswd", "C:/x", "C:%5cx", "%5c%5chost%5cshare", "a/./b", ".", "..", "a/", "%00", "a%00b",
    "%ff%fe", "%c0%ae%c0%ae/x", "a%0ab", "x" * 5000, "%252e%252e%252fx",
])
def test_object_names_that_are_paths(server, path):
    """Sent as they are: a polite client would tidy them up first."""
    for method in ("PUT", "GET", "DELETE"):
        body = b"x" if method == "PUT" else b""
        token = server.admin_token()
        head = (f"{method} {OBJECTS}/{path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
                f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n")
        status = status_of(raw(server, head.encode() + body))
        # Double encoding is decoded once, and what remains is a plain, if strange, name.
        allowed = (200, 201, 204, 400, 404) if "%25" in path else (400, 404, 405, 414, 431)
        assert status in allowed, f"{method} {path[:80]}: {status}"
    outside = [p for p in server.data.parent.iterdir() if p.name not in ("data", "server.log")]
    assert not outside, f"something was written outside the data folder: {outside}"


def test_fields_that_are_not_the_callers_to_set(admin):
    for extra in ("tenant_id", "owner", "role", "residency", "created_by", "approved", "id", "created_at"):
        name = f"t-{uuid.uuid4().hex[:10]}"
        answer = answered(admin.post("/v1/tenants", json={"name": name, extra: "x"}), 400)
        assert extra in answer.text
        assert admin.get(f"/v1/tenants/{name}").status_code == 404


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"null", b"1", b'"x"', b"{}", b'{"name":1}', b'{"name":null}', b'{"name":"a","name":"b"}',
    b'{"name":NaN}', b'{"name":1e400}', b'{"name":"\\ud800"}', b"\xff\xfe{}", b'{"name":"a"}x',
    b"[" * 100_000, b'{"a":' * 100_000, b'{"name":"a","tags":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"__proto__":{},"name":"a"}', b"name=a", b"%PDF-1.7", b"\x80\x04\x95",
])
def test_bodies_that_are_not_the_json_asked_for(admin, body):
    answered(post_raw(admin, "/v1/tenants", body), 400, 413, 422)
    answered(post_raw(admin, "/v1/policies/test", body), 400, 413, 422)


def test_a_million_keys(admin):
    body = json.dumps({f"k{n}": n for n in range(200_000)}).encode()
    answered(post_raw(admin, "/v1/tenants", body), 400, 413)
    tags = {"name": f"t-{uuid.uuid4().hex[:8]}", "tags": {f"k{n}": "v" for n in range(20_000)}}
    answered(admin.post("/v1/tenants/default/projects", json=tags), 400, 413)


def test_other_content_types(admin):
    for kind in ("text/plain", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data",
                 "application/x-yaml", "application/octet-stream", "x", ""):
        answer = admin.post("/v1/tenants", data=b'{"name":"by-type"}', headers={"Content-Type": kind})
        answered(answer, 400, 415)


def test_a_body_that_unpacks_into_gigabytes(server, admin):
    before = server.resident_bytes()
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = b"0" * (1 << 20)
    bomb = b"".join(packer.compress(zeros) for _ in range(1024)) + packer.flush()
    answer = post_raw(admin, "/v1/tenants", bomb, **{"Content-Encoding": "gzip"})
    answered(answer, 413, 400)
    nested = gzip.compress(gzip.compress(zeros * 64))
    answered(post_raw(admin, "/v1/tenants", nested, **{"Content-Encoding": "gzip, gzip"}), 400, 413, 415)
    answered(post_raw(admin, "/v1/tenants", b"not gzip", **{"Content-Encoding": "gzip"}), 400)
    answered(post_raw(admin, "/v1/tenants", b"{}", **{"Content-Encoding": "rot13"}), 415)
    assert server.resident_bytes() - before < 64 << 20


def test_a_body_over_the_limit(admin):
    answer = admin.post("/v1/tenants", data=b'{"name":"' + b"a" * (64 << 20) + b'"}',
                        headers={"Content-Type": "application/json"})
    answered(answer, 413)


@pytest.mark.parametrize("query", [
    "page_size=0", "page_size=-1", "page_size=1000000000", "page_size=18446744073709551616", "page_size=x",
    "page_size=1&page_size=2", "page_token=" + "x" * 5000, "order_by=name", "unknown=1", "page_size=1.5",
    "page_size=", "page_size=%00",
])
def test_query_parameters_out_of_range(admin, query):
    answered(admin.get(f"/v1/tenants?{query}"), 400, 414)


@pytest.mark.parametrize("text", [
    "' OR '1'='1", "'; DROP TABLE tenant; --", "\" OR 1=1", "x' UNION SELECT entry FROM audit_entry --", "%' --",
    "\\", "$1", "{{7*7}}", "${jndi:ldap://127.0.0.1/a}", "PRAGMA writable_schema=1", "ATTACH DATABASE 'x' AS y",
])
def test_sql_in_places_that_search(admin, text):
    for path, field in [("/v1/tenants", "page_token"), ("/v1/audit", "actor"), ("/v1/audit", "action"),
                        ("/v1/audit", "resource"), ("/v1/events", "type"), (OBJECTS, "prefix")]:
        answer = answered(admin.get(path, params={field: text}), 200, 400, 404)
        if answer.status_code == 200 and field != "page_token":
            items = answer.json()["items"]
            assert not items or field == "page_token", f"{path}?{field}={text} matched {len(items)} items"
    assert admin.get("/v1/tenants/default").status_code == 200


def test_other_spellings_of_a_route(server, admin):
    """The same decision as for the plain route, or no such route; never something in between."""
    for target in ["//v1/tenants", "/v1//tenants", "/v1/./tenants", "/v1/x/../tenants", "/%76%31/tenants",
                   "/v1/tenants/", "/V1/TENANTS", "/v1/tenants;a=b", "/v1/tenants%2f", "/v1/tenants%00",
                   "/v1/tenants#x", "/v2/tenants", "/api/v1/tenants", "/v1/tenants%3fx", "/health/live/../../v1/tenants",
                   "/health/../v1/tenants", "http://127.0.0.1/v1/tenants", "*"]:
        head = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n"
        status = status_of(raw(server, head.encode()))
        assert status in (400, 401, 403, 404, 405), f"{target}: {status}"


def test_methods_are_what_they_say(admin, nobody):
    for header in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"):
        answer = admin.post("/v1/tenants/default", headers={header: "DELETE"})
        answered(answer, 404, 405)
    for method in ("TRACE", "CONNECT", "PROPFIND", "FOO", "get"):
        answer = nobody.request(method, "/v1/tenants")
        assert answer.status_code in (400, 401, 403, 404, 405, 501), f"{method}: {answer.status_code}"
    assert admin.get("/v1/tenants/default").status_code == 200


@pytest.mark.parametrize("head", [
    b"GET / HTTP/9.9\r\n\r\n", b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"POST /v1/tenants HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/tenants HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    b"POST /v1/tenants HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    b"POST /v1/tenants HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 2_000_000 + b"\r\n\r\n",
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 1000,
])
def test_requests_that_are_not_http(server, nobody, head):
    status = status_of(raw(server, head, wait=15))
    assert status is None or 400 <= status < 500, status
    assert nobody.get("/health/live").status_code == 200


def test_a_refusal_before_the_body_does_not_cost_the_next_request(server):
    """Clients that keep connections open send the body after the head. A server that will not read it
    says that it closes, or reads it and goes on; hanging up in silence fails the next request."""
    head = (f"POST /v1/tenants HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
            "Content-Type: application/json\r\nContent-Length: 12\r\n\r\n").encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as stream:
        stream.sendall(head)
        time.sleep(0.1)
        stream.sendall(b'{"name":"x"}')
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += stream.recv(65536)
        assert status_of(answer) == 401
        if b"connection: close" in answer.lower():
            return
        stream.sendall(f"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        assert b"HTTP/1.1 200" in answer + stream.recv(65536)


def test_host_headers_of_elsewhere(server, nobody):
    """A page whose name was made to point here (DNS rebinding) must not reach the API."""
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "[::1]evil"):
        answer = nobody.get("/v1/whoami", headers={"Host": host})
        assert 400 <= answer.status_code < 500 and answer.status_code != 401, f"{host}: {answer.status_code}"


def test_requests_from_another_sites_page(admin):
    for method, path in [("POST", "/v1/tenants"), ("PUT", f"{OBJECTS}/x"), ("PATCH", "/v1/tenants/default"),
                         ("DELETE", "/v1/tenants/default")]:
        for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"},
                        {"Origin": "https://falaj.example.evil"}, {"Sec-Fetch-Site": "cross-site"}):
            # A connection each: the server may hang up on a body that it refused to read.
            extra = {"Content-Type": "application/json", "Connection": "close"}
            answer = admin.request(method, path, headers=headers | extra, data=b'{"name":"from-elsewhere"}')
            answered(answer, 403)
            assert "access-control-allow-origin" not in answer.headers
    answer = admin.options("/v1/tenants", headers={"Origin": "https://evil.example",
                                                   "Access-Control-Request-Method": "POST"})
    assert "access-control-allow-origin" not in answer.headers


def test_uploaded_pages_cannot_run(admin):
    page = b"<script>alert(document.cookie)</script>"
    for name, kind in [("a.html", "text/html"), ("a.svg", "image/svg+xml"), ("a.js", "text/javascript")]:
        put = admin.put(f"{OBJECTS}/hostile/{name}", data=page, headers={"Content-Type": kind})
        assert put.status_code in (200, 201), put.text
        got = admin.get(f"{OBJECTS}/hostile/{name}")
        assert got.content == page
        assert got.headers["x-content-type-options"] == "nosniff"
        inert = "sandbox" in got.headers.get("content-security-policy", "")
        attached = got.headers.get("content-disposition", "").startswith("attachment")
        assert inert or attached, got.headers


def test_every_answer_carries_the_security_headers(nobody, admin):
    for answer in (nobody.get("/health/live"), nobody.get("/v1/whoami"), admin.get("/v1/whoami"), nobody.get("/none")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-request-id"].startswith("req_")
        assert "server" not in {k.lower() for k in answer.headers} or "falaj" in answer.headers["server"]


@pytest.mark.parametrize("value", [
    "bytes=0-", "bytes=-1", "bytes=5-2", "bytes=99999999999999999999-", "bytes=0-0,1-1", "bytes=", "bytes=a-b",
    "items=0-1", "bytes=-0", "bytes=0-18446744073709551615", "bytes=" + "0-0," * 5000, "-", "bytes=0-0, 0-0",
])
def test_ranges(admin, value):
    assert admin.put(f"{OBJECTS}/hostile/range", data=b"0123456789").status_code in (200, 201)
    answer = admin.get(f"{OBJECTS}/hostile/range", headers={"Range": value})
    answered(answer, 200, 206, 400, 416, 431)
    if answer.status_code in (200, 206):
        assert answer.content in b"0123456789"


def test_uploads_that_break_off_leave_nothing(server, admin):
    head = (f"PUT {OBJECTS}/hostile/half HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
            f"Authorization: Bearer {server.admin_token()}\r\nContent-Length: 1000000\r\n\r\n")
    with socket.create_connection(("127.0.0.1", server.port)) as stream:
        stream.sendall(head.encode() + b"x" * 300_000)
    time.sleep(0.2)
    assert admin.get(f"{OBJECTS}/hostile/half").status_code == 404


def test_uploads_that_are_dangerous_are_only_bytes(admin):
    pickle = b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x02id\x94\x85\x94R\x94."
    put = admin.put(f"{OBJECTS}/hostile/model.onnx", data=pickle)
    assert put.status_code in (200, 201)
    assert admin.get(f"{OBJECTS}/hostile/model.onnx").content == pickle


def test_the_same_key_for_another_request(admin):
    key = {"Idempotency-Key": f"k-{uuid.uuid4()}"}
    name = f"t-{uuid.uuid4().hex[:10]}"
    first = admin.post("/v1/tenants", json={"name": name}, headers=key)
    again = admin.post("/v1/tenants", json={"name": name}, headers=key)
    assert first.status_code == again.status_code == 201
    assert first.content == again.content
    other = admin.post("/v1/tenants", json={"name": name + "x"}, headers=key)
    answered(other, 422)
    for key in ("", "x" * 10_000, "\x7f", "é"):
        answer = admin.post("/v1/tenants", json={"name": f"t-{uuid.uuid4().hex[:10]}"},
                            headers={"Idempotency-Key": key.encode("utf-8")})
        answered(answer, 201, 400, 431)


def test_policies_that_are_not_policies(admin):
    for text in ("", "permit", "permit(principal, action, resource) when { 1 };", "x" * 2_000_000,
                 'permit(principal, action == Action::"no:such", resource);',
                 "permit(principal, action, resource) when { " + "!" * 50_000 + "true };",
                 "permit(principal, action, resource) when { " + "(" * 20_000 + "true" + ")" * 20_000 + " };"):
        answer = admin.put("/v1/tenants/default/policies/hostile", json={"source": text})
        answered(answer, 400, 413, 422)


def test_guessing_tokens_is_slowed_down(own_server):
    admin = own_server.client(own_server.admin_token())
    guesser = own_server.client()
    statuses = []
    for number in range(400):
        token = f"flj_{number:032x}_{'A' * 43}"
        answer = guesser.get("/v1/whoami", headers={"Authorization": f"Bearer {token}"})
        statuses.append(answer.status_code)
        if answer.status_code == 429:
            assert int(answer.headers["retry-after"]) >= 1
            break
    assert 429 in statuses, set(statuses)
    assert set(statuses) <= {401, 429}
    assert admin.get("/v1/whoami").status_code in (200, 429)
    assert admin.get("/health/live").status_code == 200


def test_no_default_credential(own_server):
    for user, password in [("admin", "admin"), ("admin", "password"), ("admin", ""), ("", ""), ("root", "root")]:
        answer = own_server.client().post("/v1/login", json={"user": user, "password": password})
        assert answer.status_code in (400, 401), f"{user}/{password}: {answer.status_code}"
    for name in ("admin.token", "keyring.json"):
        assert (own_server.data / name).stat().st_mode & 0o777 == 0o600, name
    assert own_server.data.stat().st_mode & 0o777 == 0o700


def test_many_slow_connections_do_not_stop_the_others(own_server):
    slow = []
    try:
        for number in range(200):
            stream = socket.create_connection(("127.0.0.1", own_server.port))
            stream.sendall(b"GET /v1/whoami HTTP/1.1\r\nHost: x\r\nX-Slow: " if number % 2 else b"G")
            slow.append(stream)
        client = own_server.client(own_server.admin_token())
        times = []
        for _ in range(20):
            answer = client.get("/v1/whoami")
            assert answer.status_code == 200
            times.append(answer.elapsed.total_seconds())
        assert sorted(times)[-2] < 2
    finally:
        for stream in slow:
            stream.close()


def test_many_at_once_are_answered_or_turned_away(server, admin):
    statuses, lock = [], threading.Lock()

    def hammer():
        client = server.client(server.admin_token())
        for _ in range(20):
            answer = client.get("/v1/tenants")
            with lock:
                statuses.append((answer.status_code, answer.headers.get("retry-after")))

    threads = [threading.Thread(target=hammer) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(statuses) == 640
    for status, wait in statuses:
        assert status == 200 or (status in (429, 503) and wait), status
