"""Schemathesis drives every operation of /openapi.json with valid and invalid input: the server must
never fail with a status of its own."""

import os
import subprocess
import sys

from server import environment

# Cases per operation and phase. The whole run is some thousand requests.
EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "12")
# A stream that does not end, and a copy of everything.
LEFT_OUT = ["/v1/events/stream", "/v1/backup"]


def test_no_input_makes_the_server_fail(server, tmp_path):
    arguments = [
        os.path.join(os.path.dirname(sys.executable), "schemathesis"), "run", f"{server.url}/openapi.json",
        "--header", f"Authorization: Bearer {server.admin_token()}",
        "--checks", "not_a_server_error", "--mode", "all", "--max-examples", EXAMPLES,
        "--phases", "examples,coverage,fuzzing", "--request-timeout", "20", "--workers", "2",
        "--seed", "1", "--no-color", "--continue-on-failure",
        "--suppress-health-check", "all",
    ]
    for path in LEFT_OUT:
        arguments += ["--exclude-path", path]
    done = subprocess.run(arguments, cwd=tmp_path, env=environment(), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=1200)
    print(done.stdout[-6000:])
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    assert server.process.poll() is None
