"""Servers of streams for tests: a real NATS, and Kafka's protocol as librdkafka has it inside."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import uuid

from server import free_port

HERE = pathlib.Path(__file__).parent


class Kafka:
    """See `kafka_mock.py`. Topics have as many partitions as the cluster makes."""

    kind = "kafka"

    def __init__(self, _folder):
        self.process = subprocess.Popen([sys.executable, HERE / "kafka_mock.py", "1"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.address = json.loads(self.process.stdout.readline())["servers"]
        self.turn = 0

    def make(self, topic):
        self.partitions = self._tell({"topic": topic, "partitions": True})["partitions"]

    def produce(self, topic, values, partition=None):
        """Each call goes to the next partition, with another compression, unless one is named."""
        self.turn += 1
        codec = ["none", "gzip", "snappy", "lz4", "zstd"][self.turn % 5]
        place = self.turn % self.partitions if partition is None else partition
        told = self._tell({"topic": topic, "partition": place, "compression": codec, "values": values})
        assert told["failures"] == [] and len(told["offsets"]) == len(values), told

    def _tell(self, what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def pause(self):
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def stop(self):
        self.go_on()
        self.process.kill()
        self.process.wait()


class Nats:
    """A server with JetStream, whose streams outlive it."""

    kind = "nats"
    partitions = 1

    def __init__(self, folder):
        self.folder, self.port, self.process = folder, free_port(), None
        self.address = f"127.0.0.1:{self.port}"
        self.go_on()

    def go_on(self):
        self.process = subprocess.Popen(["nats-server", "-js", "-a", "127.0.0.1", "-p", str(self.port), "-sd",
                                         self.folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.02)
        raise AssertionError("nats-server did not start")

    def pause(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.pause()

    def make(self, topic):
        with self._connected() as ask:
            made = ask(f"$JS.API.STREAM.CREATE.{topic}", {"name": topic, "subjects": [f"{topic}.>"]})
            assert "error" not in made, made

    def purge(self, topic, before):
        with self._connected() as ask:
            assert ask(f"$JS.API.STREAM.PURGE.{topic}", {"seq": before})["success"]

    def produce(self, topic, values, partition=None):
        with self._connected() as ask:
            for value in values:
                assert ask(f"{topic}.all", value)["stream"] == topic

    @contextlib.contextmanager
    def _connected(self):
        """As much of the protocol as a question takes: it is a line, and so is the answer's head."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as link, link.makefile("rb") as lines:
            inbox = uuid.uuid4().hex
            link.sendall(f'CONNECT {{"verbose": false}}\r\nSUB {inbox} 1\r\n'.encode())

            def ask(subject, what):
                body = (what if isinstance(what, str) else json.dumps(what)).encode()
                link.sendall(f"PUB {subject} {inbox} {len(body)}\r\n".encode() + body + b"\r\n")
                while True:
                    head = lines.readline().split()
                    if head[0] == b"PING":
                        link.sendall(b"PONG\r\n")
                    elif head[0] == b"MSG":
                        answer = lines.read(int(head[-1]))
                        lines.readline()
                        return json.loads(answer)
                    else:
                        assert head[0] != b"-ERR", head

            yield ask


KINDS = {"kafka": Kafka, "nats": Nats}
