"""Backup while running, restore into an empty place, from each engine into the other."""

import os
import subprocess
import time
import uuid

import pytest

from server import Server, binary, environment

CONTENT = bytes(range(256)) * 20_000


def run(*arguments, status=0, **settings):
    done = subprocess.run([binary(), *map(str, arguments)], env=environment(**settings), capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, timeout=300)
    assert (done.returncode == 0) == (status == 0), f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def psql(statement):
    url = os.environ["FALAJ_TEST_POSTGRES_URL"]
    subprocess.run(["psql", "-q", "-d", url, "-c", statement], check=True, timeout=60)


@pytest.fixture
def empty_postgres():
    """Makes empty databases, and drops them afterwards."""
    names = []

    def make():
        name = f"falaj_backup_{uuid.uuid4().hex}"
        psql(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'")
        names.append(name)
        base, _, query = os.environ["FALAJ_TEST_POSTGRES_URL"].partition("?")
        return f"{base.rsplit('/', 1)[0]}/{name}" + (f"?{query}" if query else "")
    yield make
    for name in names:
        psql(f"DROP DATABASE {name} WITH (FORCE)")


def wait_for(read, count):
    """Events become readable once no older transaction runs any more, which may take a moment."""
    deadline = time.monotonic() + 20
    while len(items := read()) < count:
        assert time.monotonic() < deadline, items
        time.sleep(0.05)
    return items


def fill(server):
    """Something of everything; returns what must be found again."""
    admin = server.client(server.admin_token())
    admin.created("/v1/tenants", {"name": "acme"})
    admin.created("/v1/tenants/acme/projects", {"name": "vision", "tags": {"team": "é"}})
    for name in ("a.bin", "folder/b.bin"):
        put = admin.put(f"/v1/tenants/acme/projects/vision/objects/{name}", data=CONTENT + name.encode())
        assert put.status_code == 201, put.text
    admin.put("/v1/subscriptions/billing", json={"from_start": True})
    third = wait_for(lambda: admin.get("/v1/subscriptions/billing/events").json()["items"], 3)[2]["sequence"]
    assert admin.post("/v1/subscriptions/billing/ack", json={"cursor": third}).status_code == 204
    return admin


def seen(client):
    """What a caller sees, without what differs from server to server."""
    objects = client.get("/v1/tenants/acme/projects/vision/objects").json()["items"]
    events = client.get("/v1/events?limit=1000").json()["items"]
    pending = client.get("/v1/subscriptions/billing/events").json()["items"]
    audit = client.get("/v1/audit?page_size=1000").json()["items"]
    return {
        "tenants": client.get("/v1/tenants").json(),
        "projects": client.get("/v1/tenants/acme/projects").json(),
        "objects": objects,
        "contents": [client.get(f"/v1/tenants/acme/projects/vision/objects/{o['name']}").content for o in objects],
        "events": [event["id"] for event in events],
        "pending": [event["id"] for event in pending],
        "audit": [entry["entry"]["request"] if "entry" in entry else entry["request"] for entry in audit],
    }


def is_prefix(before, after, key):
    """A log only grew: newest first for the audit log, oldest first for events."""
    old, new = before[key], after[key]
    return new[-len(old):] == old if key == "audit" else new[:len(old)] == old


@pytest.mark.parametrize("source", ["sqlite", "postgresql"])
@pytest.mark.parametrize("target", ["sqlite", "postgresql"])
def test_everything_comes_back(source, target, tmp_path, empty_postgres):
    settings = {} if source == "sqlite" else {"FALAJ_DATABASE_URL": empty_postgres()}
    server = Server(tmp_path / "from", **settings)
    server.data.parent.mkdir()
    server.start()
    try:
        before = seen(fill(server))
        token = server.admin_token()
        run("backup", "--out", tmp_path / "falaj.backup", FALAJ_URL=server.url, FALAJ_TOKEN=token)
    finally:
        server.stop()
    keyring = server.data / "keyring.json"

    settings = {} if target == "sqlite" else {"FALAJ_DATABASE_URL": empty_postgres()}
    restored = Server(tmp_path / "to", **settings)
    restored.data.parent.mkdir()
    run("restore", "--from", tmp_path / "falaj.backup", "--data-dir", restored.data, "--keyring", keyring, **settings)
    restored.start()
    try:
        client = restored.client(token)
        after = seen(client)
        for key in ("tenants", "projects", "objects", "contents"):
            assert after[key] == before[key], key
        for key in ("events", "pending", "audit"):
            assert is_prefix(before, after, key), key
        client.created("/v1/tenants", {"name": "later"})
        audit = {name: client.get(f"/v1/audit/{name}").content for name in ("export", "checkpoint", "key")}
        for name, content in audit.items():
            (tmp_path / name).write_bytes(content)
        run("audit", "verify", "--export", tmp_path / "export", "--checkpoint", tmp_path / "checkpoint",
            "--key", tmp_path / "key")
    finally:
        restored.stop()


def test_a_damaged_or_foreign_backup_restores_nothing(own_server, tmp_path):
    fill(own_server)
    whole = tmp_path / "whole.backup"
    run("backup", "--out", whole, FALAJ_URL=own_server.url, FALAJ_TOKEN=own_server.admin_token())
    content = whole.read_bytes()
    assert b"acme" not in content and b"vision" not in content
    own_server.stop()
    keyring = own_server.data / "keyring.json"
    middle = len(content) // 2
    damaged = {
        "cut": content[:middle],
        "cut at the end": content[:-1],
        "flipped": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1:],
        "longer": content + b"x",
        "not a backup": b"hello",
        "empty": b"",
    }
    for name, bad in damaged.items():
        (tmp_path / "bad.backup").write_bytes(bad)
        data = tmp_path / name.replace(" ", "-")
        run("restore", "--from", tmp_path / "bad.backup", "--data-dir", data, "--keyring", keyring, status=1)
        assert not (data / "falaj.db").exists(), name
        left = [path for path in data.rglob("*") if path.is_file() and path.name not in ("server.id", "falaj.lock")]
        assert not left, (name, left)

    # An object that lay there before, another server's perhaps, is not taken away with the rest.
    data = tmp_path / "shared"
    blobs = [path for path in own_server.data.joinpath("objects").rglob("*") if path.is_file()]
    kept = data / blobs[0].relative_to(own_server.data)
    kept.parent.mkdir(parents=True)
    kept.write_bytes(blobs[0].read_bytes())
    (tmp_path / "bad.backup").write_bytes(content[:-1])
    run("restore", "--from", tmp_path / "bad.backup", "--data-dir", data, "--keyring", keyring, status=1)
    assert [path for path in (data / "objects").rglob("*") if path.is_file()] == [kept]

    other = Server(tmp_path / "other")
    other.data.parent.mkdir()
    other.start().stop()
    run("restore", "--from", whole, "--data-dir", tmp_path / "wrong-key", "--keyring", other.data / "keyring.json",
        status=1)
    full = run("restore", "--from", whole, "--data-dir", other.data, "--keyring", other.data / "keyring.json", status=1)
    assert "empty" in full.stderr or "exists" in full.stderr


def test_only_a_platform_admin_may_take_one(ours, nobody):
    assert ours.client.post("/v1/backup").status_code in (403, 404)
    assert nobody.post("/v1/backup").status_code == 401
