"""Training sets: what was known at each moment."""

from __future__ import annotations

import hashlib
import time
from typing import Any, Dict, Mapping, Optional

import pyarrow as pa
import pyarrow.parquet as pq

from ._error import FalajError
from ._http import Http


class TrainingSet:
    """A set that never changes. Its `digest` is equal for equal sets made of equal things."""

    def __init__(self, http: Http, place: str, said: Mapping[str, Any]) -> None:
        self._http = http
        self._place = place
        self._said: Dict[str, Any] = dict(said)
        self._table: Optional[pa.Table] = None

    @property
    def id(self) -> str:
        return self._said["id"]

    @property
    def state(self) -> str:
        """`waiting`, `ready`, `failed`, or `erased` once rows of it had to go."""
        return self._said["state"]

    @property
    def rows(self) -> Optional[int]:
        return self._said.get("rows")

    @property
    def digest(self) -> Optional[str]:
        return self._said.get("digest")

    @property
    def manifest(self) -> Optional[Dict[str, Any]]:
        """The versions of features, the files that were read, the rules."""
        return self._said.get("manifest")

    def wait(self, timeout: float = 3600.0) -> "TrainingSet":
        """Waits until it is ready."""
        until, pause = time.monotonic() + timeout, 0.05
        while self.state == "waiting":
            if time.monotonic() > until:
                raise TimeoutError(f"the training set {self.id} is still waiting after {timeout} s")
            time.sleep(pause)
            pause = min(pause * 1.5, 2.0)
            self._said = self._http.json("GET", f"{self._place}/training-sets/{self.id}")
        if self.state == "failed":
            raise FalajError(200, "training-set-failed", self._said.get("error") or "no reason is given")
        return self

    def to_arrow(self) -> pa.Table:
        """The rows of the entities, in their order, with the features. Checked against its digest."""
        if self._table is None:
            self.wait()
            content = self._http.send("GET", f"{self._place}/training-sets/{self.id}/data")
            expected = (self.manifest or {}).get("sha256")
            if expected != hashlib.sha256(content).hexdigest():
                raise FalajError(200, "integrity", f"the file of {self.id} is not the one that was made")
            self._table = pq.read_table(pa.BufferReader(content))
        return self._table

    def to_pandas(self) -> Any:
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        import polars

        return polars.from_arrow(self.to_arrow())

    def __repr__(self) -> str:
        return f"TrainingSet({self.id!r}, {self.state}, rows={self.rows})"
