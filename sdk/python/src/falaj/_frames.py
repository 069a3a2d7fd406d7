"""Tables in and out: Arrow inside, whatever the caller likes outside."""

from __future__ import annotations

import base64
import datetime
import decimal
import math
from typing import Any, Dict, List, Mapping, Sequence

import pyarrow as pa


def to_arrow(frame: Any) -> pa.Table:
    """An Arrow table of a table, a pandas or Polars frame, or columns by name."""
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if isinstance(frame, Mapping):
        return pa.table({name: list(column) for name, column in frame.items()})
    module = type(frame).__module__.split(".")[0]
    if module == "pandas":
        return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    if hasattr(frame, "to_arrow"):
        return frame.to_arrow()
    raise TypeError(f"a {type(frame).__name__} is no table: Arrow, pandas, Polars or columns by name are")


def columns(frame: Any) -> Dict[str, List[Any]]:
    """Columns as JSON says them."""
    if isinstance(frame, Mapping):
        return {name: [said(value) for value in column] for name, column in frame.items()}
    table = to_arrow(frame)
    return {name: [said(value) for value in table.column(name).to_pylist()] for name in table.column_names}


def said(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone: say datetime.timezone.utc if that is meant")
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, decimal.Decimal):
        raise TypeError("decimals are not exact in a float: convert them yourself")
    # numpy's scalars, without needing numpy.
    item = getattr(value, "item", None)
    if callable(item):
        return said(item())
    if isinstance(value, Sequence) or hasattr(value, "tolist"):
        return [said(one) for one in (value.tolist() if hasattr(value, "tolist") else value)]
    raise TypeError(f"a {type(value).__name__} is no value of a feature")
