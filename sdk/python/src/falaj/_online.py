"""The latest values of features."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Sequence

import pyarrow as pa

STATUS = {"p": "present", "n": "null", "m": "missing", "e": "expired"}


class OnlineFeatures(Mapping[str, List[Any]]):
    """Values by feature, in the order of the entities that were asked for."""

    def __init__(self, entities: Dict[str, Sequence[Any]], said: Mapping[str, Any]) -> None:
        self.entities = entities
        names = said["features"]
        self._values = {name: [row[at] for row in said["values"]] for at, name in enumerate(names)}
        self._status = {name: [STATUS[row[at]] for row in said["status"]] for at, name in enumerate(names)}
        #: When the values became true, by view, as text.
        self.event_times: Dict[str, List[Any]] = said["event_times"]

    def __getitem__(self, feature: str) -> List[Any]:
        return self._values[feature]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def status(self, feature: str) -> List[str]:
        """What is known about each value: `present`, `null`, `missing` (no row) or `expired` (too old)."""
        return self._status[feature]

    def to_dict(self) -> Dict[str, List[Any]]:
        return {**{key: list(column) for key, column in self.entities.items()}, **self._values}

    def to_arrow(self) -> pa.Table:
        return pa.table(self.to_dict())

    def to_pandas(self) -> Any:
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        import polars

        return polars.from_arrow(self.to_arrow())
