"""The historical join by another engine: python join.py ENGINE FOLDER OUT [memory].

OUT gets the answers as Parquet with zstd; with `memory` they are only collected there before they are
written, and the CPU time counts until then. Corrections count from the beginning, as Feast has it. Tells
what it took, without the time to start and to import, as a line of JSON.
"""

import json
import pathlib
import resource
import sys
import time

VIEWS = {"small": 7, "medium": 30, "large": None}  # and days to live
FEATURES = [f"f{at}" for at in range(10)]


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Polars:
    def __init__(self):
        import polars
        self.pl = polars

    def plan(self, folder):
        pl = self.pl
        joined = pl.scan_parquet(folder / "moments.parquet").sort("event_timestamp")
        for name, days in VIEWS.items():
            view = pl.scan_parquet(folder / f"{name}.parquet").sort("event_timestamp", "created")
            view = view.select("driver_id", "event_timestamp", *[pl.col(f).alias(f"{name}__{f}") for f in FEATURES])
            # Of equal events the last one answers: the one that became known last.
            joined = joined.join_asof(view, on="event_timestamp", by="driver_id", strategy="backward",
                                      tolerance=days and f"{days}d", check_sortedness=False)
        return joined

    def collect(self, folder):
        return self.plan(folder).collect(engine="streaming")

    def write(self, table, out):
        table.write_parquet(out, compression="zstd")

    def sink(self, folder, out):
        self.plan(folder).sink_parquet(out, compression="zstd")


class Duckdb:
    def __init__(self):
        import duckdb
        self.connection = duckdb.connect()

    def query(self, folder):
        columns, joins = ["m.*"], []
        for name, days in VIEWS.items():
            joins.append(f"""ASOF LEFT JOIN (
                SELECT * FROM read_parquet('{folder}/{name}.parquet')
                QUALIFY row_number() OVER (PARTITION BY driver_id, event_timestamp ORDER BY created DESC) = 1
            ) {name} ON m.driver_id = {name}.driver_id AND m.event_timestamp >= {name}.event_timestamp""")
            for feature in FEATURES:
                value = f"{name}.{feature}"
                if days:
                    value = f"CASE WHEN m.event_timestamp - {name}.event_timestamp <= INTERVAL {days} DAY THEN {value} END"
                columns.append(f"{value} AS {name}__{feature}")
        return f"SELECT {', '.join(columns)} FROM read_parquet('{folder}/moments.parquet') m {' '.join(joins)}"

    def collect(self, folder):
        return self.connection.execute(self.query(folder)).to_arrow_table()

    def write(self, table, out):
        import pyarrow.parquet as pq
        pq.write_table(table, out, compression="zstd")

    def sink(self, folder, out):
        self.connection.execute(f"COPY ({self.query(folder)}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")


class Feast:
    def __init__(self):
        from feast_store import offline
        self.offline = offline

    def collect(self, folder):
        import pandas as pd
        with self.offline(folder, VIEWS) as store:
            moments = pd.read_parquet(folder / "moments.parquet")
            features = [f"{name}:{feature}" for name in VIEWS for feature in FEATURES]
            job = store.get_historical_features(entity_df=moments, features=features, full_feature_names=True)
            return job.to_arrow()

    def write(self, table, out):
        import pyarrow.parquet as pq
        pq.write_table(table, out, compression="zstd")

    def sink(self, folder, out):
        self.write(self.collect(folder), out)


def main():
    engine = {"polars": Polars, "duckdb": Duckdb, "feast": Feast}[sys.argv[1]]()
    folder, out = pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    used, began = cpu(), time.monotonic()
    table = None
    if "memory" in sys.argv[4:]:
        table = engine.collect(folder)
    else:
        engine.sink(folder, out)
    used, took = cpu() - used, time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    if table is not None:
        engine.write(table, out)
    print(json.dumps({"cpu": used, "wall": took, "peak": peak}))


main()
