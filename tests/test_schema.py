"""Schemathesis drives every operation of /openapi.json with valid and invalid input: the server must
never fail with a status of its own."""

import os
import subprocess
import sys

import pytest

from conftest import GENEROUS
from server import Server, environment

# Cases per operation and phase. The whole run is some three thousand requests.
EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "12")
# A stream that does not end, and a copy of everything.
ENDLESS = ["/v1/events/stream", "/v1/backup", "/v1/tenants/{tenant}/projects/{project}/runs/{run}/follow"]
# With these the run would find its own token, account or role in a list and take it away; every
# case after that would only meet the door. They have a run of their own, at the end.
OWN_GROUND = ["delete_v1_tokens_id", "delete_v1_service_accounts_name", "patch_v1_service_accounts_name",
              "delete_v1_role_bindings_id"]


@pytest.fixture
def server(tmp_path):
    """A server of its own: the run creates, changes and deletes whatever it can reach."""
    server = Server(tmp_path, **GENEROUS).start()
    yield server
    server.stop()


def run(server, folder, *selection):
    done = subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "schemathesis"), "run", f"{server.url}/openapi.json",
         "--header", f"Authorization: Bearer {server.admin_token()}",
         "--checks", "not_a_server_error", "--mode", "all", "--max-examples", EXAMPLES,
         "--phases", "examples,coverage,fuzzing", "--request-timeout", "20", "--workers", "1",
         "--seed", "1", "--no-color", "--continue-on-failure", "--suppress-health-check", "all", *selection],
        cwd=folder, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    assert server.process.poll() is None
    assert "panicked" not in server.log.read_text(errors="replace")


def test_no_input_makes_the_server_fail(server, tmp_path):
    admin = server.client(server.admin_token())
    left_out = [("--exclude-path", path) for path in ENDLESS]
    left_out += [("--exclude-operation-id", operation) for operation in OWN_GROUND]
    run(server, tmp_path, *(word for pair in left_out for word in pair))
    assert admin.get("/v1/whoami").status_code == 200, "the run lost its own credential"
    own = [("--include-operation-id", operation) for operation in OWN_GROUND]
    run(server, tmp_path, *(word for pair in own for word in pair))
