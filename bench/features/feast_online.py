"""Feast on Redis: python feast_online.py materialize DATA REDIS-PORT, or serve FOLDER REDIS-PORT PORT.

`materialize` brings a million rows of ten features into the store, and tells what that took as a line of
JSON. `serve` fills the store with 10,000 entities of 50 features, whose values are the entity's number
through seven, and becomes `feast serve`.
"""

import datetime
import json
import os
import pathlib
import resource
import sys
import tempfile
import time

from feast_store import FEATURES, Float32, Float64, redis, view

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


def cpu():
    total = 0.0
    for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(whose)
        total += used.ru_utime + used.ru_stime
    return total


def materialize(data, port):
    with tempfile.TemporaryDirectory() as folder:
        store = redis(folder, port, [view("wide", pathlib.Path(data) / "wide.parquet", FEATURES, Float32)])
        used, began = cpu(), time.monotonic()
        store.materialize(START - datetime.timedelta(days=1), START + datetime.timedelta(days=100))
        used, took = cpu() - used, time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(json.dumps({"cpu": used, "wall": took, "peak": peak}))


def serve(folder, redis_port, port):
    import pandas as pd
    names = [f"f{at}" for at in range(50)]
    rows = pd.DataFrame({"driver_id": range(10_000), "event_timestamp": START})
    values = rows["driver_id"] / 7.0
    rows = pd.concat([rows, *[values.rename(name) for name in names]], axis=1)
    path = pathlib.Path(folder) / "stats.parquet"
    rows.to_parquet(path)
    store = redis(folder, redis_port, [view("stats", path, names, Float64)])
    store.materialize(START - datetime.timedelta(days=1), START + datetime.timedelta(days=1))
    feast = pathlib.Path(sys.executable).with_name("feast")
    os.execv(feast, [str(feast), "-c", folder, "serve", "--host", "127.0.0.1", "--port", port, "--no-access-log"])


if __name__ == "__main__":
    {"materialize": materialize, "serve": serve}[sys.argv[1]](*sys.argv[2:])
