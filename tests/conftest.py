"""One server for the whole run, with two tenants that must never see each other."""

import dataclasses
import importlib.util
import uuid

import pytest

from server import Client, Server

# What compares Falaj with the real MLflow needs an environment that has MLflow: `make test-mlflow`.
# The folder of that name here is not the package, which has a file it starts from.
_mlflow = importlib.util.find_spec("mlflow")
collect_ignore = [] if _mlflow and _mlflow.origin else ["mlflow"]
# The same for the stock clients of inference servers: `make test-serving`.
if not any(importlib.util.find_spec(name) for name in ("tritonclient", "kserve")):
    collect_ignore.append("serving")
# And for the stock Feast SDK: `make test-feast`.
_feast = importlib.util.find_spec("feast")
if not (_feast and _feast.origin):
    collect_ignore.append("feast")
# And for the libraries that write tables of others: `make test-lake`.
_deltalake = importlib.util.find_spec("deltalake")
if not (_deltalake and _deltalake.origin):
    collect_ignore.append("lake")

# A single address sends everything here, so the limits meant for strangers are set aside; the
# tests of those limits start servers of their own.
# Words that a machine made up are no commands to run here.
GENEROUS = {"FALAJ_IDENTITY_FAILURES_BURST": "1000000", "FALAJ_IDENTITY_FAILURES_PER_MINUTE": "1000000",
            "FALAJ_TRAINING_LOCAL_ENABLED": "false"}


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"), **GENEROUS).start()
    yield server
    alive = server.process.poll() is None
    server.stop()
    assert alive, f"the server did not survive the tests:\n{server.tail()}"
    assert "panicked" not in server.log.read_text(errors="replace"), server.tail()


@pytest.fixture
def own_server(tmp_path):
    """A server that a test may mistreat."""
    server = Server(tmp_path).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def admin(server):
    return server.client(server.admin_token())


@pytest.fixture(scope="session")
def nobody(server):
    return server.client()


@dataclasses.dataclass
class Tenant:
    name: str
    project: str
    account: str
    token_id: str
    client: Client


def make_tenant(server, admin, name):
    """A tenant with a project, an object, and an admin of its own."""
    name = f"{name}-{uuid.uuid4().hex[:8]}"
    admin.created("/v1/tenants", {"name": name})
    admin.created(f"/v1/tenants/{name}/projects", {"name": "lab"})
    account = admin.created("/v1/service-accounts", {"name": f"{name}-admin", "tenant": name})
    admin.created("/v1/role-bindings", {"principal": account["name"], "role": "admin", "tenant": name})
    token = admin.created("/v1/tokens", {"owner": account["name"], "role": "admin", "tenant": name})
    client = server.client(token["secret"])
    put = client.put(f"/v1/tenants/{name}/projects/lab/objects/notes.txt", data=b"canary of " + name.encode())
    assert put.status_code in (200, 201), put.text
    return Tenant(name, "lab", account["name"], token["id"], client)


@pytest.fixture(scope="session")
def ours(server, admin):
    return make_tenant(server, admin, "ours")


@pytest.fixture(scope="session")
def theirs(server, admin):
    return make_tenant(server, admin, "theirs")


@pytest.fixture(scope="session")
def openapi(admin):
    answer = admin.get("/openapi.json")
    assert answer.status_code == 200, answer.text
    return answer.json()
