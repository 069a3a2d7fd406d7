"""Feature stores of Feast for the benchmark, in folders that go away with them."""

import contextlib
import datetime
import pathlib
import tempfile

from feast import Entity, FeatureStore, FeatureView, Field, FileSource, ValueType
from feast.types import Float32, Float64

FEATURES = [f"f{at}" for at in range(10)]


def store(folder, offline, online):
    lines = ["project: bench", "provider: local", f"registry: {folder}/registry.db",
             "entity_key_serialization_version: 3", "offline_store:", f"    type: {offline}", "online_store:"]
    lines += [f"    {line}" for line in online]
    (pathlib.Path(folder) / "feature_store.yaml").write_text("\n".join(lines) + "\n")
    return FeatureStore(repo_path=str(folder))


def driver():
    return Entity(name="driver", join_keys=["driver_id"], value_type=ValueType.INT64)


def view(name, path, features, kind, days=None, created=""):
    source = FileSource(name=f"{name}_source", path=str(path), timestamp_field="event_timestamp",
                        created_timestamp_column=created)
    schema = [Field(name=feature, dtype=kind) for feature in features]
    ttl = datetime.timedelta(days=days or 0)
    return FeatureView(name=name, entities=[driver()], ttl=ttl, schema=schema, source=source)


@contextlib.contextmanager
def offline(data, views):
    with tempfile.TemporaryDirectory() as folder:
        found = store(folder, "duckdb", ["type: sqlite", f"path: {folder}/online.db"])
        found.apply([driver(), *[view(name, data / f"{name}.parquet", FEATURES, Float32, days, "created")
                                 for name, days in views.items()]])
        yield found


def redis(folder, port, views):
    found = store(folder, "duckdb", ["type: redis", f"connection_string: localhost:{port}"])
    found.apply([driver(), *views])
    return found


__all__ = ["FEATURES", "Float32", "Float64", "offline", "redis", "view"]
