"""Requests over kept connections, one for each thread."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from email.message import Message
from typing import Any, Mapping, NamedTuple, Optional, Union
from urllib.parse import quote, urlencode, urlsplit

from ._error import FalajError

Body = Union[bytes, None]
# A request that carries this may be sent twice: the second is answered as the first was.
IDEMPOTENCY = "Idempotency-Key"


class Answer(NamedTuple):
    headers: Message
    content: bytes


class Http:
    def __init__(self, url: str, token: str, timeout: float, ca_file: Optional[str]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url is {url!r}: http://HOST:PORT or https://HOST:PORT is wanted")
        self._parts = parts
        self._token = token
        self._timeout = timeout
        self._tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        self._local = threading.local()

    def json(self, method: str, path: str, body: Any = None, query: Optional[Mapping[str, str]] = None,
             headers: Optional[Mapping[str, str]] = None) -> Any:
        sent = None if body is None else json.dumps(body, allow_nan=False).encode()
        return json.loads(self.ask(method, path, sent, "application/json", query, headers).content)

    def send(self, method: str, path: str, body: Body = None, kind: str = "application/json",
             query: Optional[Mapping[str, str]] = None) -> bytes:
        return self.ask(method, path, body, kind, query).content

    def ask(self, method: str, path: str, body: Body = None, kind: str = "application/json",
            query: Optional[Mapping[str, str]] = None, more: Optional[Mapping[str, str]] = None) -> Answer:
        target = self._parts.path.rstrip("/") + quote(path) + (f"?{urlencode(query)}" if query else "")
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "*/*", **(more or {})}
        if body is not None:
            headers["Content-Type"] = kind
        answer, content = self._exchange(method, target, body, headers)
        if not 200 <= answer.status < 300:
            raise FalajError.of(answer.status, content)
        return Answer(answer.headers, content)

    def _exchange(self, method: str, target: str, body: Body,
                  headers: Mapping[str, str]) -> "tuple[http.client.HTTPResponse, bytes]":
        kept = getattr(self._local, "connection", None)
        connection = kept or self._connect()
        self._local.connection = None
        try:
            connection.request(method, target, body, dict(headers))
            answer = connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            connection.close()
            # A kept connection that the server has ended meanwhile did not carry the request anywhere.
            # With a fresh one nobody knows, and what changes something is not said twice.
            if kept is None or not (method in ("GET", "PUT") or IDEMPOTENCY in headers):
                raise
            return self._exchange(method, target, body, headers)
        except BaseException:
            connection.close()
            raise
        content = answer.read()
        if not answer.will_close:
            self._local.connection = connection
        return answer, content

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=self._timeout)
