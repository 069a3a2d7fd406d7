"""What the server refuses, and jobs that did not succeed, as exceptions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from ._jobs import Job


class FalajError(Exception):
    """A refusal. `code` is stable and has a page in the documentation; `field` is what it is about."""

    def __init__(self, status: int, code: str, detail: str, field: Optional[str] = None) -> None:
        where = f" (at {field})" if field else ""
        super().__init__(f"{code}: {detail}{where}")
        self.status = status
        self.code = code
        self.detail = detail
        self.field = field

    @classmethod
    def of(cls, status: int, body: bytes) -> "FalajError":
        """Reads problem JSON; an answer of anybody else, a proxy's perhaps, is shown as it is."""
        try:
            said = json.loads(body)
            return cls(status, said["code"], said.get("detail") or said.get("title") or "", said.get("field"))
        except (ValueError, KeyError, TypeError):
            return cls(status, "unreadable-answer", body[:500].decode("utf-8", "replace"))


class JobFailed(Exception):
    """A job that is over and did not succeed: `state` is FAILED, CANCELLED or LOST."""

    def __init__(self, job: "Job", state: str, reason: Optional[str]) -> None:
        super().__init__(f"{job.id} is {state}: {reason or 'see its starts'}")
        self.job = job
        self.state = state
        self.reason = reason
