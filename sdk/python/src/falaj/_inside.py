"""What a job says of itself: how far it is, what it has saved; and whether it is to stop.

A script that calls these runs by hand as well: where there is no job, nothing is said and nobody stops it.
A server that is away for a moment stops no training either: a checkpoint is a file first, and what could not
be said is said with the next report.

Not here: what a script does about it. Ranks that compute together must agree on when to save and to end.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import pathlib
import signal
import threading
import time
from typing import Any, Callable, Dict, Iterable, NamedTuple, Optional, Union
from urllib.parse import urlsplit

from ._error import FalajError
from ._http import Http

Path = Union[str, "os.PathLike[str]"]

# Nobody waits longer than this for a server in the middle of training.
_TIMEOUT = 10.0
# Steps are told at most once in so many seconds, so that it costs nothing to report each.
_EVERY = 1.0
_BLOCK = 1 << 20


class Checkpoint(NamedTuple):
    """What this start goes on from."""

    step: int
    path: pathlib.Path


class _State:
    """What this process knows: the connection, what was not said yet, and whether to stop."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.http: Optional[Http] = None
        self.unsaid: Optional[Dict[str, Any]] = None
        self.said: Optional[float] = None
        self.stop = threading.Event()
        self.listens = False


_state = _State()


def report(step: Optional[int] = None) -> bool:
    """Says that this rank lives, and at which step it is. True if the job is to save its work and end.

    Call it at every step: it is told once a second. A rank that has reported a step is watched from then on:
    one that falls silent for long is taken for stuck, and the job starts again from its last checkpoint."""
    now = time.monotonic()
    if _inside() and (_state.said is None or now - _state.said >= _EVERY):
        _state.said = now
        _send({} if step is None else {"step": int(step)})
    return _state.stop.is_set()


def checkpoint(step: int, files: Iterable[Path] = (), folder: Optional[Path] = None) -> bool:
    """Says that this rank has saved its part of a step: `files`, which lie in `folder`, below CHECKPOINT_DIR;
    what `checkpoint_folder(step)` gives if absent. True if every rank has, so that it counts.

    They are brought to disk and their digests noted in `rank-<n>.json` beside them. Call it on every rank,
    also on one that has no file of its own: a checkpoint counts once all have said so."""
    place = pathlib.Path(folder) if folder is not None else checkpoint_folder(step)
    place.mkdir(parents=True, exist_ok=True)
    digests = {}
    for file in files:
        path = pathlib.Path(file)
        path = path if path.is_absolute() else place / path
        try:
            name = path.relative_to(place).as_posix()
        except ValueError:
            raise ValueError(f"{path} is not in {place}: files of a checkpoint lie in its folder") from None
        digests[name] = _digest(path)
    note = {"step": int(step), "attempt": int(os.environ.get("FALAJ_START", "1")),
            "world": int(os.environ.get("FALAJ_WORLD_SIZE", "1")), "files": digests}
    _write(place / f"rank-{_rank()}.json", json.dumps(note).encode())
    if not _inside():
        return True
    said = {"checkpoint": {"step": int(step), "path": str(place), "files": digests}}
    return bool(_send({"step": int(step), **said}, keep=said).get("whole"))


def checkpoint_folder(step: int) -> pathlib.Path:
    """Where a step is saved: a folder below CHECKPOINT_DIR, there when this returns. Outside of a job it is
    below `checkpoints` where the script runs."""
    folder = pathlib.Path(os.environ.get("CHECKPOINT_DIR") or "checkpoints").absolute() / f"step-{int(step)}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def resume() -> Optional[Checkpoint]:
    """The last whole checkpoint, to go on from; nothing if this is the beginning."""
    path = os.environ.get("RESUME_FROM")
    return Checkpoint(int(os.environ.get("FALAJ_RESUME_STEP", "0")), pathlib.Path(path)) if path else None


def stopping() -> bool:
    """Whether the job is to save its work and end, because others need its nodes.

    Call it once before training begins: from then on this process listens for the signal that says so,
    which would end it otherwise."""
    _listen()
    return _state.stop.is_set()


def on_stop(handler: Callable[[], Any]) -> None:
    """Calls `handler` when the job is told to save its work, in the main thread between two of its steps."""
    _listen(handler)


def _listen(handler: Optional[Callable[[], Any]] = None) -> None:
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread may; where it has not, reports still tell.
        return
    if _state.listens and handler is None:
        return

    def told(*_: Any) -> None:
        _state.stop.set()
        if handler is not None:
            handler()

    signal.signal(signal.SIGUSR1, told)
    _state.listens = True


def _inside() -> bool:
    return bool(os.environ.get("FALAJ_REPORT_URL") and os.environ.get("FALAJ_TOKEN"))


def _rank() -> int:
    return int(os.environ.get("FALAJ_RANK") or os.environ.get("RANK") or 0)


def _send(more: Dict[str, Any], keep: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
    """Sends a report. If nobody answers, `keep` is said with the next one."""
    with _state.lock:
        unsaid, _state.unsaid = _state.unsaid, None
    answer: Dict[str, Any] = {}
    for body, later in ((unsaid, unsaid), (more, keep)):
        if body is None:
            continue
        try:
            answer = _post(body)
        except (OSError, http.client.HTTPException):
            pass
        except FalajError as error:
            if error.status < 500 and error.code != "rate-limited":
                raise
        else:
            if answer.get("stopping"):
                _state.stop.set()
            continue
        answer = {}
        with _state.lock:
            _state.unsaid = later or _state.unsaid
    return answer


def _post(body: Dict[str, Any]) -> Dict[str, Any]:
    parts = urlsplit(os.environ["FALAJ_REPORT_URL"])
    if _state.http is None:
        root = f"{parts.scheme}://{parts.netloc}"
        _state.http = Http(root, os.environ["FALAJ_TOKEN"], _TIMEOUT, os.environ.get("FALAJ_CACERT"))
    about = {"attempt": os.environ["FALAJ_ATTEMPT"], "rank": _rank(), "task": int(os.environ.get("FALAJ_TASK", "0"))}
    return dict(_state.http.json("POST", parts.path, {**about, **body}))


def _digest(path: pathlib.Path) -> str:
    """The SHA-256 of a file that is on disk when this returns."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while True:
            block = file.read(_BLOCK)
            if not block:
                break
            found.update(block)
        os.fsync(file.fileno())
    return found.hexdigest()


def _write(path: pathlib.Path, content: bytes) -> None:
    """A file that is there whole, or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
