"""The real MLflow server, in a child process: SQLite, artifacts through the server, one worker."""

import contextlib
import os
import pathlib
import subprocess
import sys
import time

import requests

from server import Client, free_port

# Starting means importing half of PyPI, on a machine that may be busy.
READY_WITHIN = 180


class Original:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.log = self.folder / "mlflow.log"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.token = None

    def begin(self):
        """Starts it, without waiting."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("FALAJ_", "MLFLOW_"))}
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port),
                   "--workers", "1", "--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db",
                   "--artifacts-destination", str(self.folder / "artifacts"), "--serve-artifacts"]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env=clean | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"})
        return self

    def await_ready(self):
        deadline = time.monotonic() + READY_WITHIN
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"mlflow server ended:\n{self.log.read_text()[-3000:]}"
            with contextlib.suppress(requests.ConnectionError, requests.Timeout):
                if requests.get(f"{self.url}/health", timeout=5).status_code == 200:
                    return self
            time.sleep(0.1)
        raise AssertionError(f"not ready after {READY_WITHIN} s:\n{self.log.read_text()[-3000:]}")

    def client(self):
        return Client(self.url)

    def stop(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 15)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()
