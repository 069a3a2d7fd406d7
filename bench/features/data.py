"""Makes the tables that are joined: python data.py FOLDER.

Three views of 1, 3 and 10 million rows over 200,000 entities and 90 days, 10 features each. One row in a
hundred is a correction of an earlier one: the same entity and event, other values, hours to days later.
Rows stand in the order in which they became known, as they do where they are appended. Beside them a
million moments, and a table of a million entities to be brought online. The same in every run.
"""

import pathlib
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ENTITIES = 200_000
FEATURES = 10
MOMENTS = 1_000_000
SECOND = 1_000_000
HOUR = 3600 * SECOND
SPAN = 90 * 24 * HOUR
START = 1_767_225_600 * SECOND  # 2026-01-01
VIEWS = {"small": 1_000_000, "medium": 3_000_000, "large": 10_000_000}


def times(micros):
    return pa.array(micros, pa.timestamp("us", "UTC"))


def write(table, path):
    """Under another name first: what is there is whole."""
    part = path.with_suffix(".part")
    pq.write_table(table, part, compression="zstd")
    part.rename(path)


def features(random, rows):
    return {f"f{at}": random.standard_normal(rows, np.float32) for at in range(FEATURES)}


def view(random, rows):
    late = rows // 100
    first = rows - late
    key = random.integers(0, ENTITIES, first)
    event = START + random.integers(0, SPAN, first)
    created = event + random.integers(0, 60 * SECOND, first)
    again = random.choice(first, late, replace=False)
    key = np.concatenate([key, key[again]])
    event = np.concatenate([event, event[again]])
    created = np.concatenate([created, created[again] + random.integers(HOUR, 72 * HOUR, late)])
    order = np.argsort(created, kind="stable")
    columns = {"driver_id": key[order], "event_timestamp": times(event[order]), "created": times(created[order])}
    return pa.table(columns | features(random, rows))


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, rows) in enumerate(VIEWS.items()):
        write(view(np.random.default_rng(seed), rows), folder / f"{name}.parquet")
    random = np.random.default_rng(100)
    write(pa.table({"driver_id": random.integers(0, ENTITIES, MOMENTS),
                    "event_timestamp": times(START + random.integers(0, SPAN, MOMENTS)),
                    "row": np.arange(MOMENTS)}), folder / "moments.parquet")
    random = np.random.default_rng(200)
    entities = 1_000_000
    write(pa.table({"driver_id": random.permutation(entities),
                    "event_timestamp": times(START + random.integers(0, SPAN, entities))}
                   | features(random, entities)), folder / "wide.parquet")
    (folder / "whole").touch()


main()
