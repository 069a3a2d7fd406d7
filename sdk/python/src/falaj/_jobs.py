"""Training jobs: submitting one, following it, asking why it waits.

    job = falaj.train(["python", "train.py"], cpu=2, gpus=1)
    for line in job.logs(follow=True):
        print(line)
    job.wait()
"""

from __future__ import annotations

import datetime
import http.client
import json
import os
import pathlib
import re
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, TypeVar, Union

from . import _place
from ._error import FalajError, JobFailed
from ._http import IDEMPOTENCY, Answer, Http

Duration = Union[str, int, float, datetime.timedelta]
OVER = ("SUCCEEDED", "FAILED", "CANCELLED", "LOST")

# How long a server may be away, being upgraded perhaps, before whoever waits for it gives up.
_PATIENCE = 60.0
# How many seconds a request waits for more output.
_WAIT = 10
_PIECE = 1 << 20
# Behind the end of every output: what stands there is only about the start.
_NOWHERE = 1 << 60
_T = TypeVar("_T")


@dataclass(frozen=True)
class Why:
    """Why a task is where it is. `str()` of it is the sentence."""

    task: int
    state: str
    why: str
    rule: Optional[str] = None
    changes: List[str] = field(default_factory=list)
    ahead: Optional[int] = None
    gpus_ahead: Optional[float] = None
    start: Optional[Dict[str, str]] = None
    considered_at: Optional[str] = None

    def __str__(self) -> str:
        return self.why


class _Piece(NamedTuple):
    content: bytes
    start: int
    attempt: int
    done: bool
    over: bool


class Job:
    """A job that was submitted."""

    def __init__(self, jobs: "Jobs", said: Mapping[str, Any]) -> None:
        self._jobs = jobs
        self._said: Dict[str, Any] = dict(said)

    def __repr__(self) -> str:
        return f"<falaj.Job {self.id} {self.name!r} {self._said['state']}>"

    @property
    def id(self) -> str:
        return str(self._said["id"])

    @property
    def name(self) -> str:
        return str(self._said["name"])

    @property
    def run_id(self) -> Optional[str]:
        """The run it is tracked as."""
        return self._said.get("run_id")

    @property
    def state(self) -> str:
        """Its state now: PENDING, STARTING, RUNNING, CHECKPOINTING, STOPPING, PREEMPTED, SUCCEEDED, FAILED,
        CANCELLED or LOST."""
        if self._said["state"] not in OVER:
            self.refresh()
        return str(self._said["state"])

    @property
    def reason(self) -> Optional[str]:
        """What there is to say about its state."""
        return self._said.get("reason")

    @property
    def definition(self) -> Dict[str, Any]:
        return dict(self._said["definition"])

    def refresh(self) -> "Job":
        self._said = self._jobs._get(self.id)
        return self

    def wait(self, timeout: Optional[float] = None, check: bool = True) -> str:
        """Waits until it is over and says how it ended. Raises `JobFailed` if it did not succeed, unless
        `check` is false, and `TimeoutError` if it takes longer than `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        pause = 0.05
        while self.state not in OVER:
            if until is not None and time.monotonic() + pause > until:
                raise TimeoutError(f"{self.id} is {self._said['state']} after {timeout} s")
            time.sleep(pause)
            pause = min(pause * 2, 2.0)
        state = str(self._said["state"])
        if check and state != "SUCCEEDED":
            raise JobFailed(self, state, self.reason)
        return state

    def logs(self, follow: bool = False, *, task: int = 0, rank: int = 0,
             attempt: Optional[int] = None) -> Iterator[str]:
        """The lines of an output, as they are. With `follow`, those of all its starts as they come, until the
        task is over; without, those of one start: the last, or that of `attempt`."""
        if follow and attempt is not None:
            raise ValueError("attempt is given: what is followed is every start")
        return _lines(self._followed(task, rank) if follow else self._shown(task, rank, attempt))

    def why(self, task: int = 0) -> Why:
        """Why a task is where it is, what would let it start, and when it may."""
        said = self._jobs._get(f"{self.id}/why", task=task)
        return Why(**{name: said[name] for name in Why.__dataclass_fields__ if name in said})

    def cancel(self) -> "Job":
        """Asks for its end: what waits is over, what runs is told to end. `wait(check=False)` waits for it."""
        self._said = self._jobs._post(f"/{self.id}/cancel", {})
        return self

    def attempts(self) -> List[Dict[str, Any]]:
        """Its starts, the oldest first."""
        return self._jobs._all(f"/{self.id}/attempts")

    def checkpoints(self) -> List[Dict[str, Any]]:
        """What it can go on from, the newest first."""
        return self._jobs._all(f"/{self.id}/checkpoints")

    def _shown(self, task: int, rank: int, attempt: Optional[int]) -> Iterator[bytes]:
        offset = 0
        while True:
            piece = self._piece(task, rank, attempt, offset)
            if not piece.content:
                return
            yield piece.content
            offset, attempt = max(piece.start, offset) + len(piece.content), piece.attempt

    def _followed(self, task: int, rank: int) -> Iterator[bytes]:
        attempt: Optional[int] = None
        offset = 0
        while True:
            piece = self._piece(task, rank, attempt, offset, _WAIT)
            if attempt is None and piece.attempt > 1:
                # There were starts before the first that we see: that is where to begin.
                attempt = 1
                continue
            if piece.content:
                yield piece.content
                offset = max(piece.start, offset) + len(piece.content)
            attempt = piece.attempt or None
            if not piece.done:
                continue
            # This start is over; there may be another.
            last = self._piece(task, rank, None, _NOWHERE)
            if last.attempt > piece.attempt:
                attempt, offset = piece.attempt + 1, 0
            elif last.over:
                return
            else:
                time.sleep(0.3)

    def _piece(self, task: int, rank: int, attempt: Optional[int], offset: int, wait: int = 0) -> _Piece:
        query = {"task": task, "rank": rank, "offset": offset, "limit": _PIECE, "wait": wait}
        if attempt is not None:
            query["attempt"] = attempt
        answer = self._jobs._ask(f"/{self.id}/logs", query)

        def header(name: str) -> str:
            return answer.headers.get(name) or ""
        return _Piece(answer.content, int(header("x-falaj-log-start") or offset), int(header("x-falaj-attempt") or 0),
                      header("x-falaj-log-done") == "true", header("x-falaj-state") in OVER)


class Jobs:
    """The jobs of a project. Safe to share between threads.

    Without arguments it reads `FALAJ_URL`, `FALAJ_TOKEN` and `FALAJ_PROJECT` (TENANT/PROJECT), and what
    `falaj login` has kept."""

    def __init__(self, url: Optional[str] = None, token: Optional[str] = None, project: Optional[str] = None, *,
                 timeout: float = 120.0, ca_file: Optional[str] = None) -> None:
        place = _place.find(url, token, project, ca_file)
        self._http = Http(place.url, place.token, timeout, place.ca_file)
        self._base = f"/t/{place.tenant}/{place.project}/api/jobs"

    def train(self, command: Sequence[str], *, name: Optional[str] = None, cpu: Optional[float] = None,
              memory: Optional[str] = None, gpus: Optional[int] = None, gpu_type: Optional[str] = None,
              gpu_fraction: Optional[float] = None, nodes: Optional[int] = None, max_nodes: Optional[int] = None,
              ranks_per_node: Optional[int] = None, checkpoint: Union[bool, Mapping[str, Any], None] = None,
              count: Optional[int] = None, queue: Optional[str] = None, pool: Optional[str] = None,
              priority: Optional[int] = None, time_limit: Optional[Duration] = None,
              deadline: Union[str, datetime.datetime, None] = None, budget: Optional[float] = None,
              retries: Optional[int] = None, spot: Optional[str] = None, framework: Optional[str] = None,
              folder: Union[str, "os.PathLike[str]", None] = None, zones: Optional[Sequence[str]] = None,
              env: Optional[Mapping[str, str]] = None, secrets: Optional[Mapping[str, str]] = None,
              params: Optional[Mapping[str, Any]] = None, tags: Optional[Mapping[str, str]] = None,
              experiment: Optional[str] = None, datasets: Optional[Sequence[str]] = None,
              features: Optional[Sequence[str]] = None, **more: Any) -> Job:
        """Submits a job and returns it at once. What is left out has the server's defaults; what a definition
        has besides goes by its own name. `checkpoint=True` gives the job a folder to save its work in."""
        if isinstance(command, str):
            raise TypeError("command is text: a list of the program and its arguments is wanted")
        resources = {"cpu": cpu, "memory": memory, "gpus": gpus, "gpu_type": gpu_type, "gpu_fraction": gpu_fraction,
                     "nodes": nodes, "max_nodes": max_nodes, "ranks_per_node": ranks_per_node,
                     **more.pop("resources", {})}
        wanted = {
            "name": name or _name(command), "command": list(command), "count": count, "queue": queue, "pool": pool,
            "priority": priority, "budget": budget, "retries": retries, "spot": spot, "framework": framework,
            "time_limit": None if time_limit is None else _duration(time_limit),
            "deadline": deadline.isoformat() if isinstance(deadline, datetime.datetime) else deadline,
            "folder": None if folder is None else str(pathlib.Path(folder).absolute()),
            "checkpoint": {} if checkpoint is True else (dict(checkpoint) if checkpoint else None),
            "env": _texts(env), "secrets": _texts(secrets), "params": _texts(params), "tags": _texts(tags),
            "experiment": experiment, "zones": _list(zones), "datasets": _list(datasets), "features": _list(features),
            "resources": _given(resources) or None, **more,
        }
        return Job(self, self._post("", _given(wanted)))

    def job(self, id: str) -> Job:
        """A job that was submitted before."""
        return Job(self, self._get(id))

    def list(self, state: Optional[str] = None) -> List[Job]:
        """The jobs of the project, the newest first."""
        return [Job(self, said) for said in self._all("", **({"state": state} if state else {}))]

    def _ask(self, path: str, query: Mapping[str, Any]) -> Answer:
        texts = {name: str(value) for name, value in query.items()}
        return _patiently(lambda: self._http.ask("GET", self._base + path, query=texts))

    def _get(self, path: str, **query: Any) -> Dict[str, Any]:
        texts = {name: str(value) for name, value in query.items()}
        return dict(_patiently(lambda: self._http.json("GET", f"{self._base}/{path}", query=texts)))

    def _post(self, path: str, body: Mapping[str, Any]) -> Dict[str, Any]:
        # With the same key it is done once, however often it is sent.
        key = {IDEMPOTENCY: uuid.uuid4().hex}
        return dict(_patiently(lambda: self._http.json("POST", self._base + path, dict(body), headers=key)))

    def _all(self, path: str, **query: str) -> List[Dict[str, Any]]:
        found: List[Dict[str, Any]] = []
        asked = {"page_size": "1000", **query}
        while True:
            page = json.loads(self._ask(path, asked).content)
            found += page["items"]
            if not page.get("next_page_token"):
                return found
            asked = {**asked, "page_token": page["next_page_token"]}


def train(command: Sequence[str], **more: Any) -> Job:
    """Submits a job of the project that the environment names: see `Jobs.train` for everything it takes.

        job = falaj.train(["python", "train.py"], cpu=2, gpus=1, checkpoint=True)"""
    return Jobs().train(command, **more)


def _patiently(ask: Callable[[], _T]) -> _T:
    """Asks again while the server is away or has too much to do."""
    until = time.monotonic() + _PATIENCE
    pause = 0.1
    while True:
        try:
            return ask()
        except FalajError as error:
            if error.status not in (429, 502, 503, 504) or time.monotonic() + pause > until:
                raise
        except (ConnectionError, http.client.RemoteDisconnected, http.client.IncompleteRead):
            if time.monotonic() + pause > until:
                raise
        time.sleep(pause)
        pause = min(pause * 2, 3.0)


def _lines(pieces: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


def _name(command: Sequence[str]) -> str:
    """What a job is called by its program."""
    program = re.sub(r"[^A-Za-z0-9_.-]", "", pathlib.PurePath(command[0]).name if command else "")
    return program.lstrip("-.")[:127] or "job"


def _duration(given: Duration) -> str:
    if isinstance(given, str):
        return given
    seconds = given.total_seconds() if isinstance(given, datetime.timedelta) else given
    return f"{round(seconds * 1000)}ms"


def _texts(given: Optional[Mapping[str, Any]]) -> Optional[Dict[str, str]]:
    return None if given is None else {name: str(value) for name, value in given.items()}


def _list(given: Optional[Sequence[str]]) -> Optional[List[str]]:
    return None if given is None else [*given]


def _given(wanted: Mapping[str, Any]) -> Dict[str, Any]:
    return {name: value for name, value in wanted.items() if value is not None}
