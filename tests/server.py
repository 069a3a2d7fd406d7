"""A real `falaj serve` in a child process, and a client for it."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time

import requests

READY_WITHIN = 60


def binary():
    """The binary under test."""
    path = os.environ.get("FALAJ_BIN")
    if not path:
        target = os.environ.get("CARGO_TARGET_DIR", "target")
        path = os.path.join(target, "debug", "falaj")
    assert os.path.exists(path), f"{path} does not exist: build it, or set FALAJ_BIN"
    return path


def environment(**settings):
    """The environment without any of the platform's own settings, and with these."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("FALAJ_")}
    return clean | settings


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, folder, **settings):
        self.data = pathlib.Path(folder) / "data"
        self.log = pathlib.Path(folder) / "server.log"
        # Nobody shares out requests here: stop at once.
        self.settings = {"FALAJ_SERVER_DRAIN_GRACE": "0s"} | settings
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [binary(), "serve", "--data-dir", self.data, "--listen", f"127.0.0.1:{self.port}"],
                env=environment(**self.settings), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + READY_WITHIN
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"the server ended:\n{self.tail()}"
            with contextlib.suppress(requests.ConnectionError):
                if requests.get(f"{self.url}/health/ready", timeout=5).status_code == 200:
                    return self
            time.sleep(0.02)
        raise AssertionError(f"not ready after {READY_WITHIN} s:\n{self.tail()}")

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def tail(self):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])

    def admin_token(self):
        return (self.data / "admin.token").read_text().strip()

    def client(self, token=None):
        return Client(self.url, token)

    def resident_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024


class Client(requests.Session):
    """A session that knows the server's address. Nothing is followed and nothing is raised."""

    def __init__(self, url, token=None):
        super().__init__()
        self.url = url
        self.trust_env = False
        if token:
            self.headers["Authorization"] = f"Bearer {token}"

    def request(self, method, path, **options):
        options.setdefault("timeout", 30)
        options.setdefault("allow_redirects", False)
        return super().request(method, self.url + path, **options)

    def created(self, path, body, **options):
        """Creates something and returns it."""
        answer = self.post(path, json=body, **options)
        assert answer.status_code == 201, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()


def raw(server, data, wait=5.0):
    """Sends bytes as they are and returns what comes back: for what no client would send."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=wait) as stream:
        stream.settimeout(wait)
        received = b""
        with contextlib.suppress(OSError):
            stream.sendall(data)
        with contextlib.suppress(OSError):
            while chunk := stream.recv(65536):
                received += chunk
        return received


def status_of(response):
    """The status of a raw HTTP/1 response; none if the connection was only closed."""
    parts = response.split(b" ", 2)
    return int(parts[1]) if len(parts) > 1 and parts[0].startswith(b"HTTP/1") else None
