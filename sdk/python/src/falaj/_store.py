"""The feature store of one project."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import uuid
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import pyarrow as pa
import pyarrow.parquet as pq

from . import _place
from ._frames import columns, said, to_arrow
from ._http import Http
from ._online import OnlineFeatures
from ._training import TrainingSet

Definitions = Union[str, "os.PathLike[str]", Mapping[str, Any]]


class FeatureStore:
    """Features of a project. Safe to share between threads."""

    def __init__(self, url: Optional[str] = None, token: Optional[str] = None, project: Optional[str] = None, *,
                 timeout: float = 120.0, ca_file: Optional[str] = None) -> None:
        place = _place.find(url, token, project, ca_file)
        self._http = Http(place.url, place.token, timeout, place.ca_file)
        self._features = f"/t/{place.tenant}/{place.project}/api/features"
        self._objects = f"/v1/tenants/{place.tenant}/projects/{place.project}/objects"

    def apply(self, definitions: Definitions, *, plan: bool = False) -> List[Dict[str, Any]]:
        """Declares entities, sources, views and services: the path of a TOML file, its text, or a mapping.
        Says for each what became of it; with `plan`, what would."""
        query = {"dry_run": "true"} if plan else None
        path = f"{self._features}/apply"
        if isinstance(definitions, Mapping):
            return self._http.json("POST", path, dict(definitions), query)["definitions"]
        text = definitions
        if isinstance(definitions, os.PathLike) or "\n" not in definitions:
            text = pathlib.Path(definitions).read_text(encoding="utf-8")
        answer = self._http.send("POST", path, str(text).encode(), "application/toml", query)
        return json.loads(answer)["definitions"]

    def get_historical_features(self, entities: Any, features: Optional[Sequence[str]] = None, *,
                                service: Optional[str] = None, event_time: str = "event_timestamp",
                                as_of: Optional[datetime.datetime] = None, hindsight: bool = False,
                                full_feature_names: bool = False, name: Optional[str] = None) -> TrainingSet:
        """Joins features to moments: for each row of `entities`, what was known at its time.

        `entities` has the join keys, a time, and anything else, such as labels, which comes back with the
        result. Every row stays, in its order."""
        sink = pa.BufferOutputStream()
        pq.write_table(_in_utc(to_arrow(entities), event_time), sink, compression="zstd")
        moments = f"moments/{uuid.uuid4().hex}.parquet"
        self._http.send("PUT", f"{self._objects}/{moments}", sink.getvalue().to_pybytes(),
                        "application/vnd.apache.parquet")
        try:
            wanted = {"moments_object": moments, "event_time": event_time, "hindsight": hindsight,
                      "full_feature_names": full_feature_names, "name": name, "service": service,
                      "features": None if features is None else list(features),
                      "as_of": None if as_of is None else said(as_of)}
            asked = {key: value for key, value in wanted.items() if value is not None}
            answer = self._http.json("POST", f"{self._features}/training-sets", asked)
        finally:
            # The set keeps what it was made of.
            self._http.send("DELETE", f"{self._objects}/{moments}")
        return TrainingSet(self._http, self._features, answer)

    def training_set(self, id: str) -> TrainingSet:
        """A set that was made before."""
        return TrainingSet(self._http, self._features, self._http.json("GET", f"{self._features}/training-sets/{id}"))

    def get_online_features(self, entities: Mapping[str, Sequence[Any]],
                            features: Optional[Sequence[str]] = None, *,
                            service: Optional[str] = None) -> OnlineFeatures:
        """The latest values of some entities: `{"driver_id": [1, 2]}`."""
        asked: Dict[str, Any] = {"entities": columns(entities)}
        if features is not None:
            asked["features"] = list(features)
        if service is not None:
            asked["service"] = service
        answer = self._http.json("POST", f"{self._features}/online", asked)
        return OnlineFeatures({key: list(column) for key, column in entities.items()}, answer)

    def push(self, view: str, rows: Any) -> int:
        """Gives rows to a view: join keys, features and the time of each. Durable, and readable at once, when
        this returns. Says how many entities have values of it now; the others have newer ones."""
        body = {"view": view, "columns": columns(rows)}
        return self._http.json("POST", f"{self._features}/push", body)["placed"]


def _in_utc(table: pa.Table, event_time: str) -> pa.Table:
    """Times without a zone are taken for UTC, as Feast does, and text is left to the server to refuse."""
    at = table.schema.get_field_index(event_time)
    if at >= 0:
        kind = table.schema.field(at).type
        if pa.types.is_timestamp(kind):
            return table.set_column(at, event_time, table.column(at).cast(pa.timestamp("us", "UTC")))
    return table
