"""Spans that an attacker sends: bombs, floods, depths and lies. The server refuses or keeps them, in time and
within its memory."""

import gzip
import json
import random
import zlib

import pytest

PROTOBUF, JSON = "application/x-protobuf", "application/json"


def varint(number):
    out = b""
    while True:
        number, low = number >> 7, number & 0x7F
        out += bytes([low | (0x80 if number else 0)])
        if not number:
            return out


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def request(spans):
    return field(1, field(2, spans))


def span(n, more=b""):
    times = b"\x39" + (10**18).to_bytes(8, "little") + b"\x41" + (10**18 + 10**6).to_bytes(8, "little")
    return field(2, field(1, n.to_bytes(16, "big")) + field(2, n.to_bytes(8, "big")) + field(5, b"s") + times + more)


def nested(depth):
    value = b"\x10\x01"
    for _ in range(depth):
        value = field(5, field(1, value))
    return field(9, field(1, b"deep") + field(2, value))


def send(client, body, media=PROTOBUF, **headers):
    answer = client.post("/v1/traces", data=body, headers={"Content-Type": media, "x-mlflow-experiment-id": "0"} | headers)
    assert answer.status_code < 500, f"{answer.status_code} {answer.text}"
    assert answer.elapsed.total_seconds() < 10
    return answer.status_code


def test_bombs_are_noticed_while_they_unpack(admin):
    plain = bytes(100 << 20)
    for encoding, bomb in {"gzip": gzip.compress(plain), "deflate": zlib.compress(plain)}.items():
        assert len(bomb) < 1 << 20
        assert send(admin, bomb, **{"Content-Encoding": encoding}) == 413
    assert send(admin, b"not packed", **{"Content-Encoding": "gzip"}) == 400
    assert send(admin, gzip.compress(request(span(1))), **{"Content-Encoding": "gzip"}) == 200


def test_small_requests_do_not_grow(server, admin):
    """Two bytes each, and a struct of hundreds if they were read."""
    send(admin, request(span(2)))
    before = server.resident_bytes()
    for flood in (b"\x12\x00" * 1_500_000, span(3, b"\x4a\x00" * 1_500_000), span(4, field(9, field(2, field(5, b"\x0a\x00" * 1_500_000)))),
                  span(5, b"\x5a\x00" * 1_500_000)):
        assert send(admin, request(flood)) in (400, 413, 422)
    assert send(admin, field(1, field(1, b"\x0a\x00" * 1_500_000) + field(2, span(6)))) == 413
    assert send(admin, json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{}] * 900_000}]}]}), JSON) in (400, 413, 422)
    deep = {"traceId": "0a" * 16, "spanId": "0b" * 8, "attributes": [{"value": {}}] * 200_000}
    assert send(admin, json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [deep]}]}]}), JSON) in (200, 413, 422)
    assert server.resident_bytes() - before < 200 << 20


@pytest.mark.parametrize("depth, allowed", [(1, (200,)), (20, (200,)), (40, (200, 422)), (100, (422,)), (10_000, (422,)), (100_000, (422,))])
def test_depths(admin, depth, allowed):
    assert send(admin, request(span(7, nested(depth)))) in allowed
    text = '{"arrayValue": {"values": [' * depth + "]}}" * depth
    body = '{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "%s", "spanId": "%s", "attributes": [{"key": "k", "value": %s}]}]}]}]}'
    assert send(admin, body % ("0a" * 16, "0b" * 8, text), JSON) in (200, 400, 422)


def test_lies(admin):
    for bad in (b"", b"\x0a", b"\xff" * 50, b"\x0a\x7f", request(b"\x12\xff\xff\xff\xff\x0f"), request(field(2, b"\x0a\x80")),
                request(field(2, b"\x08\x01")), request(field(2, field(1, b"x" * 15) + field(2, b"y" * 8)))):
        assert send(admin, bad) in (400, 422), bad
    for bad in ("", "{", "[]", "null", "1", '{"resourceSpans": [1]}', '{"resourceSpans": {"x": 1}}',
                '{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": 5}]}]}]}'):
        assert send(admin, bad, JSON) in (400, 422), bad
    for header in ("", "x", "-1", "1e3", "99999999999999999999", "0; DROP TABLE trace", "é".encode()):
        assert send(admin, request(span(8)), **{"x-mlflow-experiment-id": header}) in (400, 404, 422), header
    for media in ("text/plain", "application/grpc", "application/x-protobuf2", "multipart/form-data"):
        assert send(admin, request(span(8)), media) in (400, 415), media
    noise = random.Random(1)
    for _ in range(200):
        body = bytearray(request(span(9, nested(3))))
        body[noise.randrange(len(body))] ^= 1 << noise.randrange(8)
        assert send(admin, bytes(body)) in (200, 400, 413, 422)


def test_texts_that_break_displays_come_back_as_they_were(admin):
    name = "a\u202eb\x00c</script>\U0001f600"
    answer = admin.post("/v1/traces", headers={"x-mlflow-experiment-id": "0"}, json={"resourceSpans": [{"scopeSpans": [{"spans": [
        {"traceId": "0c" * 16, "spanId": "0d" * 8, "name": name, "attributes": [{"key": "mlflow.spanInputs", "value": {"stringValue": name}}]}]}]}]})
    assert answer.status_code == 200, answer.text
    trace = admin.get("/api/3.0/mlflow/traces/get", params={"trace_id": "tr-" + "0c" * 16}).json()["trace"]
    assert trace["spans"][0]["name"] == name and "\x00" not in trace["trace_info"]["request_preview"]
