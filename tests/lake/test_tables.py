"""Tables that the stock libraries wrote, as sources of features: what they read is what training sets hold."""

import datetime
import decimal
import hashlib
import io
import json
import os
import pathlib
import shutil
import sys
import uuid

import boto3
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from blake3 import blake3
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (DoubleType, FloatType, IntegerType, ListType, LongType, NestedField, StringType,
                             TimestamptzType)

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import by_hand  # noqa: E402
import deletes  # noqa: E402
from engines import psql  # noqa: E402
from server import Server  # noqa: E402

START = datetime.datetime(2026, 3, 1, tzinfo=datetime.timezone.utc)
TIME = pa.timestamp("us", "UTC")
KINDS = {pa.int64(): "int64", pa.int32(): "int32", pa.float64(): "float64", pa.float32(): "float32",
         pa.string(): "string", pa.bool_(): "bool", TIME: "timestamp", pa.date32(): "date"}
S3 = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}


def kind(of):
    if pa.types.is_list(of):
        return f"list<{kind(of.value_type)}>"
    if pa.types.is_decimal(of):
        return f"decimal({of.precision},{of.scale})"
    return KINDS[of]


class Stage:
    def __init__(self, folder):
        self.lake = folder / "lake"
        self.lake.mkdir()
        self.prefix = f"lake-{uuid.uuid4().hex}"
        self.endpoint, self.bucket = os.environ["FALAJ_TEST_S3_ENDPOINT"], os.environ["FALAJ_TEST_S3_BUCKET"]
        self.database = f"lake_{uuid.uuid4().hex}"
        psql(f"CREATE DATABASE {self.database}")
        base, _, query = os.environ["FALAJ_TEST_POSTGRES_URL"].partition("?")
        self.url = f"{base.rsplit('/', 1)[0]}/{self.database}?{query}"
        config = folder / "falaj.toml"
        config.write_text(f"""
[features]
wait = "60s"
max_database_value = "4KiB"
database_timeout = "3s"

[[features.source_roots]]
name = "lake"
path = "{self.lake}"
tenant = "default"

[[features.source_roots]]
name = "abroad"
path = "{self.lake}"
tenant = "default"
zone = "elsewhere"

[[features.source_roots]]
name = "cloud"
url = "s3://{self.bucket}/{self.prefix}"
endpoint = "{self.endpoint}"
access_key = "test"
secret_key = "test"
allow_http = true
tenant = "default"

[[features.databases]]
name = "warehouse"
url = "{self.url}"
tenant = "default"

[[features.databases]]
name = "abroad"
url = "{self.url}"
tenant = "default"
zone = "elsewhere"
""")
        self.server = Server(folder, FALAJ_CONFIG=str(config)).start()
        self.admin = self.server.client(self.server.admin_token())

    def sql(self, text):
        import subprocess
        subprocess.run(["psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-c", text], check=True, timeout=60)

    def s3(self):
        return boto3.client("s3", endpoint_url=self.endpoint, **S3)

    def upload(self, folder, name):
        client = self.s3()
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                client.upload_file(str(path), self.bucket, f"{self.prefix}/{name}/{path.relative_to(folder)}")

    def apply(self, source, like, **more):
        """Declares a source and a view of all columns of a table; tells the view's name."""
        name = f"v_{uuid.uuid4().hex}"
        fields = [field for field in like.schema if field.name not in ("driver_id", "at")]
        view = {"name": name, "entities": ["driver"], "source": f"s_{name}", "event_time": "at",
                "schema": [{"name": field.name, "type": kind(field.type)} for field in fields]} | more
        body = {"entities": [{"name": "driver", "join_keys": [{"name": "driver_id", "type": "int64"}]}],
                "sources": [{"name": f"s_{name}"} | source], "views": [view]}
        return name, self.admin.post("/api/features/apply", json=body)

    def set(self, view, keys, at):
        body = {"features": [view], "event_time": "at",
                "moments": {"driver_id": keys, "at": [moment.isoformat() for moment in at]}}
        answer = self.admin.post("/api/features/training-sets", json=body, timeout=120)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def made(self, source, like, keys, at, **more):
        view, answer = self.apply(source, like, **more)
        assert answer.status_code == 200, answer.text
        return self.set(view, keys, at)

    def download(self, made):
        assert made["state"] == "ready", made.get("error")
        data = self.admin.get(f"/api/features/training-sets/{made['id']}/data").content
        assert hashlib.sha256(data).hexdigest() == made["manifest"]["sha256"]
        return pq.read_table(io.BytesIO(data))

    def check(self, source, expected, keys=100):
        """A training set over the source has, for each key, the row that is expected, or nothing."""
        rows = {row["driver_id"]: row for row in expected.to_pylist()}
        assert len(rows) == expected.num_rows, "each key once"
        asked = list(range(keys))
        at = [rows[key]["at"] if key in rows else START + datetime.timedelta(days=90) for key in asked]
        made = self.made(source, expected, asked, at)
        found = self.download(made)
        names = [name for name in expected.column_names if name not in ("driver_id", "at")]
        for row in found.to_pylist():
            wanted = rows.get(row["driver_id"], {})
            for name in names:
                assert row[name] == wanted.get(name), (row, wanted)
        return made

    def refused(self, source, like, *words):
        made = self.made(source, like, [1], [START])
        assert made["state"] == "failed", made
        for word in words:
            assert word in made["error"], made["error"]
        return made["error"]


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    stage = Stage(tmp_path_factory.mktemp("lake"))
    yield stage
    alive, tail = stage.server.process.poll() is None, stage.server.tail()
    log = stage.server.log.read_text(errors="replace")
    stage.server.stop()
    psql(f"DROP DATABASE {stage.database} WITH (FORCE)")
    assert alive and "panicked" not in log, tail


def drivers(first, count, *, after=0, **more):
    keys = list(range(first, first + count))
    at = [START + datetime.timedelta(days=after, minutes=key) for key in keys]
    columns = {"driver_id": pa.array(keys, pa.int64()), "at": pa.array(at, TIME),
               "trips": pa.array([key * 7 for key in keys], pa.int64()),
               "rate": pa.array([key / 3 for key in keys], pa.float64())}
    return pa.table(columns | more)


def sources(made, ending=""):
    return [it for it in made["manifest"]["sources"] if it["name"].endswith(ending)]


def of(made):
    """The version of the one table that a set was made of."""
    versions = [it["version"] for it in made["manifest"]["sources"] if "version" in it]
    assert len(versions) == 1, made["manifest"]["sources"]
    return versions[0]


# Days and decimals, wherever they lie


def exact(first, count):
    """Rows with a day and two decimals, one of them of more digits than a float has."""
    keys = range(first, first + count)
    money = [None if key % 7 == 0 else decimal.Decimal(key * 1001 - 5000).scaleb(-2) for key in keys]
    large = [decimal.Decimal(10**20 + key).scaleb(-10) * (-1) ** key for key in keys]
    born = [None if key % 5 == 0 else datetime.date(1970, 1, 1) + datetime.timedelta(days=key * 100 - 900)
            for key in keys]
    return drivers(first, count, money=pa.array(money, pa.decimal128(12, 2)),
                   large=pa.array(large, pa.decimal128(30, 10)), born=pa.array(born, pa.date32()))


def test_days_and_decimals_of_delta(stage):
    folder = stage.lake / "delta" / "exact"
    write_deltalake(str(folder), exact(0, 20))
    write_deltalake(str(folder), exact(20, 20), mode="append")
    stage.check({"kind": "delta", "path": "lake/delta/exact"}, exact(0, 40))
    # As values of partitions, which are texts; the library cannot write those of negative decimals.
    folder = stage.lake / "delta" / "exact-parts"
    write_deltalake(str(folder), exact(5, 15), partition_by=["money", "born"])
    stage.check({"kind": "delta", "path": "lake/delta/exact-parts"}, exact(5, 15))
    # A view with fewer digits would have to round; one with more does not.
    few = exact(0, 1).set_column(4, "money", pa.array([None], pa.decimal128(12, 1)))
    stage.refused({"kind": "delta", "path": "lake/delta/exact"}, few, "money", "Decimal128(12, 2)")
    more = exact(0, 40)
    more = more.set_column(4, "money", more["money"].cast(pa.decimal128(20, 6)))
    stage.check({"kind": "delta", "path": "lake/delta/exact"}, more)


def test_days_and_decimals_of_iceberg(stage, tmp_path):
    catalog = SqlCatalog("exact", uri=f"sqlite:///{tmp_path}/exact.db", warehouse=f"file://{stage.lake}/exact")
    catalog.create_namespace("n")
    table = catalog.create_table("n.money", schema=exact(0, 1).schema)
    table.append(exact(0, 20))
    table.append(exact(20, 20))
    path = pathlib.Path(table.location().removeprefix("file://")).relative_to(stage.lake)
    stage.check({"kind": "iceberg", "path": f"lake/{path}"}, exact(0, 40))


def test_days_and_decimals_of_postgresql(stage):
    stage.sql("""
CREATE TABLE exact (driver_id bigint, at timestamptz, trips bigint, rate float8, money numeric(12, 2),
                    large numeric, born date);
""")
    for row in exact(0, 40).to_pylist():
        money = "NULL" if row["money"] is None else row["money"]
        born = "NULL" if row["born"] is None else f"'{row['born']}'"
        stage.sql(f"INSERT INTO exact VALUES ({row['driver_id']}, '{row['at'].isoformat()}', {row['trips']}, "
                  f"{row['rate']!r}, {money}, {row['large']}, {born})")
    base = {"kind": "postgres", "database": "warehouse"}
    stage.check(base | {"table": "exact"}, exact(0, 40))
    few = exact(0, 1).set_column(5, "large", pa.array([None], pa.decimal128(30, 9)))
    made = stage.made(base | {"table": "exact"}, few, [1], [START + datetime.timedelta(hours=1)])
    assert made["state"] == "failed" and "large" in made["error"] and "more digits" in made["error"], made
    nan = "select driver_id, at, trips, rate, money, 'NaN'::numeric as large, born from exact"
    stage.refused(base | {"query": nan}, exact(0, 1), "large", "no number")
    endless = "select driver_id, at, trips, rate, money, large, 'infinity'::date as born from exact"
    stage.refused(base | {"query": endless}, exact(0, 1), "born", "without an end")


# Delta


def queried(folder):
    """What the library's own engine reads: its PyArrow datasets know less of the protocol."""
    return pa.table(QueryBuilder().register("t", DeltaTable(str(folder))).execute("select * from t").read_all())


def test_delta_versions(stage):
    path = stage.lake / "delta" / "trips"
    for number in range(4):
        write_deltalake(str(path), drivers(number * 10, 10), mode="append")
        log = path / "_delta_log" / f"{number:020}.json"
        time = (START + datetime.timedelta(hours=number)).timestamp()
        os.utime(log, (time, time))
    source = {"kind": "delta", "path": "lake/delta/trips"}
    made = stage.check(source, DeltaTable(str(path)).to_pyarrow_table())
    assert of(made) == "3" and len(sources(made, ".parquet")) == 4
    for file in sources(made, ".parquet"):
        data = (stage.lake / file["name"].removeprefix("lake/")).read_bytes()
        assert file["blake3"] == blake3(data).hexdigest()
    first = DeltaTable(str(path), version=1).to_pyarrow_table()
    assert of(stage.check(source | {"version": 1}, first)) == "1"
    half = (START + datetime.timedelta(hours=1, minutes=30)).isoformat().replace("+00:00", "Z")
    assert of(stage.check(source | {"timestamp": half}, first)) == "1"
    stage.refused(source | {"version": 9}, first, "version", "9", "up to 3")
    early = (START - datetime.timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    stage.refused(source | {"timestamp": early}, first, "timestamp")


def test_a_pinned_version_repeats_its_digest(stage):
    path = stage.lake / "delta" / "pinned"
    write_deltalake(str(path), drivers(0, 10))
    source = {"kind": "delta", "path": "lake/delta/pinned"}
    view, answer = stage.apply(source | {"version": 0}, drivers(0, 1))
    assert answer.status_code == 200, answer.text
    latest, answer = stage.apply(source, drivers(0, 1))
    assert answer.status_code == 200, answer.text
    at = [START + datetime.timedelta(hours=1)] * 20
    pinned, moving = stage.set(view, list(range(20)), at), stage.set(latest, list(range(20)), at)
    write_deltalake(str(path), drivers(10, 10), mode="append")
    again = stage.set(view, list(range(20)), at)
    assert pinned["digest"] == again["digest"] and of(again) == "0"
    moved = stage.set(latest, list(range(20)), at)
    assert of(moving) == "0" and of(moved) == "1" and moving["digest"] != moved["digest"]
    assert stage.download(moved)["trips"].null_count == 0
    assert stage.download(again)["trips"].null_count == 10


def test_delta_checkpoints(stage):
    path = stage.lake / "delta" / "checkpoints"
    for number in range(5):
        write_deltalake(str(path), drivers(number * 10, 10), mode="append")
    table = DeltaTable(str(path))
    table.delete("driver_id % 10 = 3")
    table = DeltaTable(str(path))
    table.create_checkpoint()
    version = table.version()
    write_deltalake(str(path), drivers(50, 10), mode="append")
    expected = DeltaTable(str(path)).to_pyarrow_table()
    assert expected.num_rows == 55
    by_hand.forget_commits(path, version)
    source = {"kind": "delta", "path": "lake/delta/checkpoints"}
    stage.check(source, expected)
    by_hand.split_checkpoint(path, version)
    stage.check(source, expected)
    # A part that is missing makes it none, and before it there is nothing.
    (path / "_delta_log" / f"{version:020}.checkpoint.{2:010}.{2:010}.parquet").unlink()
    stage.refused(source, expected, "_delta_log", "absent")


def test_delta_partitions_and_evolution(stage):
    path = stage.lake / "delta" / "parted"
    city = pa.array(["dubai", "abu dhabi", "a/b=c%", "ü", None] * 4, pa.string())
    day = pa.array([None if key % 7 == 0 else key % 3 for key in range(20)], pa.int32())
    open_ = pa.array([key % 2 == 0 for key in range(20)], pa.bool_())
    write_deltalake(str(path), drivers(0, 20, city=city, day=day, open=open_), partition_by=["city", "day", "open"])
    like = drivers(20, 5, city=pa.array(["x"] * 5), day=pa.array([1] * 5, pa.int32()), open=pa.array([True] * 5))
    scores = pa.array([[1.5, None], [], None, [2.0], [3.0]], pa.list_(pa.float32()))
    write_deltalake(str(path), like.append_column("scores", scores), mode="append", schema_mode="merge")
    expected = DeltaTable(str(path)).to_pyarrow_table()
    assert expected.num_rows == 25 and expected["scores"].null_count == 21
    stage.check({"kind": "delta", "path": "lake/delta/parted"}, expected)


def test_delta_rewrites(stage):
    path = stage.lake / "delta" / "rewritten"
    write_deltalake(str(path), drivers(0, 30))
    DeltaTable(str(path)).update(predicate="driver_id >= 20", updates={"trips": "trips + 1000"})
    DeltaTable(str(path)).delete("driver_id < 5")
    DeltaTable(str(path)).optimize.compact()
    expected = DeltaTable(str(path)).to_pyarrow_table()
    assert expected.num_rows == 25
    stage.check({"kind": "delta", "path": "lake/delta/rewritten"}, expected)
    stage.check({"kind": "delta", "path": "lake/delta/rewritten", "version": 0}, drivers(0, 30))


@pytest.mark.parametrize("stored", ["inline", "file"])
def test_delta_deletion_vectors(stage, stored):
    folder = stage.lake / "delta" / f"vectors-{stored}"
    rows = drivers(0, 20)
    table = by_hand.Delta(folder, rows.schema, reader=3, features=["deletionVectors"])
    add = table.file(rows)
    table.commit({"add": add})
    gone = {0, 3, 4, 19}
    vector = by_hand.inline(gone) if stored == "inline" else by_hand.in_file(folder, gone)
    remove = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}
    table.commit({"remove": remove}, {"add": add | {"deletionVector": vector}})
    expected = queried(folder).cast(rows.schema)
    assert set(range(20)) - set(expected["driver_id"].to_pylist()) == gone
    made = stage.check({"kind": "delta", "path": f"lake/delta/vectors-{stored}"}, expected)
    assert len(sources(made, ".bin")) == (stored == "file")
    stage.check({"kind": "delta", "path": f"lake/delta/vectors-{stored}", "version": 1}, rows)


def test_delta_renamed_columns(stage):
    rows = drivers(0, 10)
    mapping = {name: f"col-{number}" for number, name in enumerate(rows.column_names)}
    folder = stage.lake / "delta" / "renamed"
    table = by_hand.Delta(folder, rows.schema, reader=2, mapping=mapping)
    table.commit({"add": table.file(rows.rename_columns(list(mapping.values())))})
    assert queried(folder).cast(rows.schema).sort_by("driver_id").equals(rows)
    stage.check({"kind": "delta", "path": "lake/delta/renamed"}, rows)


def test_delta_that_asks_for_more(stage):
    rows = drivers(0, 3)
    by_hand.Delta(stage.lake / "delta" / "more", rows.schema, reader=3, features=["deletionVectors", "timeMachine"])
    source = {"kind": "delta", "path": "lake/delta/more"}
    stage.refused(source, rows, "readerFeatures", "timeMachine", "deletionVectors")
    stage.refused({"kind": "delta", "path": "lake/delta/none"}, rows, "lake/delta/none", "_delta_log")


def test_delta_leads_nowhere_else(stage, tmp_path):
    rows = drivers(0, 3)
    pq.write_table(rows, tmp_path / "secret.parquet")
    for name, path in {"up": "../../../secret.parquet", "absolute": str(tmp_path / "secret.parquet"),
                       "encoded": "%2e%2e/%2e%2e/secret.parquet",
                       "address": f"file://{tmp_path}/secret.parquet"}.items():
        table = by_hand.Delta(stage.lake / "delta" / f"out-{name}", rows.schema)
        table.commit({"add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1,
                              "dataChange": True}})
        stage.refused({"kind": "delta", "path": f"lake/delta/out-{name}"}, rows, "below the table")
    table = by_hand.Delta(stage.lake / "delta" / "out-link", rows.schema)
    os.symlink(tmp_path / "secret.parquet", stage.lake / "delta" / "out-link" / "x.parquet")
    table.commit({"add": {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1,
                          "dataChange": True}})
    stage.refused({"kind": "delta", "path": "lake/delta/out-link"}, rows, "links out of it")


# Iceberg


def catalog(folder):
    folder.mkdir(parents=True, exist_ok=True)
    made = SqlCatalog("default", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    made.create_namespace_if_not_exists("db")
    return made


def schema(*more):
    return Schema(NestedField(1, "driver_id", LongType()), NestedField(2, "at", TimestamptzType()),
                  NestedField(3, "trips", LongType()), NestedField(4, "rate", DoubleType()), *more)


def iceberg(stage, name, *more, **options):
    table = catalog(stage.lake / "iceberg").create_table(f"db.{name}", schema(*more), **options)
    path = table.location().removeprefix("file://").removeprefix(str(stage.lake))
    return table, {"kind": "iceberg", "path": f"lake{path}"}


def test_iceberg_snapshots(stage):
    table, source = iceberg(stage, "snapshots")
    view, answer = stage.apply(source, drivers(0, 1))
    assert answer.status_code == 200, answer.text
    empty = stage.set(view, [1], [START])
    assert of(empty) == "none" and stage.download(empty)["trips"].null_count == 1
    moments = []
    for number in range(3):
        table.append(drivers(number * 10, 10))
        moments.append(table.current_snapshot())
    table.manage_snapshots().create_tag(moments[0].snapshot_id, "first").commit()
    made = stage.check(source, table.scan().to_arrow())
    assert of(made) == str(moments[2].snapshot_id) and len(sources(made, ".parquet")) == 3
    first = table.scan(snapshot_id=moments[0].snapshot_id).to_arrow()
    stage.check(source | {"snapshot": moments[0].snapshot_id}, first)
    stage.check(source | {"ref": "first"}, first)
    stage.check(source | {"ref": "main"}, table.scan().to_arrow())
    then = datetime.datetime.fromtimestamp(moments[1].timestamp_ms / 1000, datetime.timezone.utc)
    time = then.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    stage.check(source | {"timestamp": time}, table.scan(snapshot_id=moments[1].snapshot_id).to_arrow())
    old = sorted((stage.lake / "iceberg/db/snapshots/metadata").glob("00001-*.metadata.json"))[0]
    stage.check(source | {"metadata": f"metadata/{old.name}"}, first)
    stage.refused(source | {"snapshot": 7}, first, "snapshot", "7")
    stage.refused(source | {"ref": "second"}, first, "ref", "second", "first")
    stage.refused(source | {"timestamp": "2020-01-01T00:00:00Z"}, first, "timestamp")


def test_iceberg_evolution(stage):
    floats = ListType(8, FloatType(), element_required=False)
    table, source = iceberg(stage, "evolution", NestedField(5, "small", IntegerType()), NestedField(6, "single", FloatType()))
    small, single = pa.array(range(10), pa.int32()), pa.array([0.5] * 10, pa.float32())
    table.append(drivers(0, 10, small=small, single=single))
    before = table.current_snapshot().snapshot_id
    with table.update_schema() as update:
        update.rename_column("trips", "rides")
        update.update_column("small", LongType())
        update.update_column("single", DoubleType())
        update.add_column("scores", floats)
        update.delete_column("rate")
    with table.update_schema() as update:
        # The same name again, and another column.
        update.add_column("trips", StringType())
    later = drivers(10, 10, small=pa.array(range(10), pa.int64()), single=pa.array([0.25] * 10, pa.float64()))
    later = later.drop_columns(["rate", "trips"]).append_column("rides", pa.array(range(10), pa.int64()))
    scores = pa.array([[1.0, 2.0]] * 9 + [None], pa.list_(pa.float32()))
    later = later.append_column("scores", scores).append_column("trips", pa.array(["new"] * 10))
    table.append(later)
    expected = table.scan().to_arrow()
    assert expected["rides"].null_count == 0 and expected["trips"].null_count == 10
    expected = expected.set_column(expected.column_names.index("scores"), "scores",
                                   expected["scores"].cast(pa.list_(pa.float32())))
    stage.check(source, expected.cast(pa.schema([(f.name, pa.string() if f.name == "trips" else f.type)
                                                 for f in expected.schema])))
    old = table.scan(snapshot_id=before).to_arrow()
    assert "rate" in old.column_names
    stage.check(source | {"snapshot": before}, old)


def test_iceberg_partitions(stage):
    spec = PartitionSpec(PartitionField(5, 1000, IdentityTransform(), "city"),
                         PartitionField(2, 1001, DayTransform(), "day"))
    table, source = iceberg(stage, "parted", NestedField(5, "city", StringType()), partition_spec=spec)
    city = pa.array(["dubai", "abu dhabi", "a/b=c%", "ü", None] * 4, pa.string())
    table.append(drivers(0, 20, city=city))
    table.append(drivers(20, 5, after=2, city=pa.array(["dubai"] * 5)))
    table.delete(EqualTo("driver_id", 7))
    expected = table.scan().to_arrow()
    assert expected.num_rows == 24
    stage.check(source, expected.cast(drivers(0, 1, city=pa.array(["x"])).schema))


def test_iceberg_without_the_column_in_its_files(stage):
    """A table of files that never had the columns of their folders, nor numbers: names and partitions tell."""
    spec = PartitionSpec(PartitionField(5, 1000, IdentityTransform(), "city"))
    table, source = iceberg(stage, "mapped", NestedField(5, "city", StringType()), partition_spec=spec)
    table.append(drivers(0, 10, city=pa.array(["dubai"] * 10)))
    data = next((stage.lake / "iceberg/db/mapped/data").rglob("*.parquet"))
    bare = pq.read_table(data).drop_columns(["city"])
    pq.write_table(pa.table({name: bare[name] for name in bare.column_names}), data)
    if b"PARQUET:field_id" in pq.read_schema(data).to_string(show_field_metadata=True).encode():
        pq.write_table(bare.replace_schema_metadata(None).cast(drivers(0, 1).schema), data)
    like = drivers(0, 10, city=pa.array(["dubai"] * 10))
    metadata = json.loads(pathlib.Path(table.metadata_location.removeprefix("file://")).read_text())
    # Without names for them, columns cannot be told apart.
    metadata["properties"].pop("schema.name-mapping.default", None)
    folder = stage.lake / "iceberg/db/mapped/metadata"
    (folder / "90000-nameless.metadata.json").write_text(json.dumps(metadata))
    stage.refused(source, like, "field ids")
    names = [{"field-id": field.field_id, "names": [field.name]} for field in schema().fields]
    metadata["properties"]["schema.name-mapping.default"] = json.dumps(names)
    (folder / "90001-named.metadata.json").write_text(json.dumps(metadata))
    stage.check(source, like)


def test_iceberg_deletes(stage):
    table, source = iceberg(stage, "deletes")
    table.append(drivers(0, 20))
    table.append(drivers(20, 20))
    location = table.location()
    tasks = list(table.scan().plan_files())
    first = next(task.file.file_path for task in tasks if pq.read_table(
        task.file.file_path.removeprefix("file://"))["driver_id"][0].as_py() == 0)
    count = deletes.positions(f"{location}/data", "places.parquet", [(first, 1), (first, 5)])
    path = deletes.commit(table, [("places.parquet", count, None)])
    placed = StaticTable.from_metadata(path)
    expected = placed.scan().to_arrow()
    assert set(range(40)) - set(expected["driver_id"].to_pylist()) == {1, 5}
    made = stage.check(source, expected)
    assert len(sources(made, "places.parquet")) == 1
    # Values are compared with rows that were there before, and not with those that come later.
    count = deletes.equals(f"{location}/data", "values.parquet", "driver_id", 1, [7, 8, 30, 99], pa.int64())
    deletes.commit(placed, [("values.parquet", count, [1])])
    kept = expected.filter(pc.invert(pc.is_in(expected["driver_id"], pa.array([7, 8, 30]))))
    assert kept.num_rows == 35
    stage.check(source, kept)


def test_iceberg_deletes_do_not_reach_what_comes_later(stage):
    table, source = iceberg(stage, "later")
    table.append(drivers(0, 10))
    count = deletes.equals(f"{table.location()}/data", "values.parquet", "driver_id", 1, [3, 4], pa.int64())
    path = deletes.commit(table, [("values.parquet", count, [1])])
    folder = catalog(stage.lake / "iceberg")
    folder.drop_table("db.later")
    table = folder.register_table("db.later", path)
    again = drivers(3, 1, after=5)
    table.append(again)
    kept = pa.concat_tables([drivers(0, 3), again, drivers(5, 5)])
    stage.check(source, kept)


def test_a_table_may_be_moved(stage):
    table, source = iceberg(stage, "moving")
    table.append(drivers(0, 10))
    expected = table.scan().to_arrow()
    shutil.move(stage.lake / "iceberg/db/moving", stage.lake / "moved")
    stage.check({"kind": "iceberg", "path": "lake/moved"}, expected)
    stage.refused(source, expected, "lake/iceberg/db/moving", "metadata")


def test_iceberg_of_tomorrow(stage):
    table, source = iceberg(stage, "tomorrow")
    table.append(drivers(0, 3))
    metadata = json.loads(pathlib.Path(table.metadata_location.removeprefix("file://")).read_text())
    metadata["format-version"] = 3
    name = stage.lake / "iceberg/db/tomorrow/metadata/99999-x.metadata.json"
    name.write_text(json.dumps(metadata))
    stage.refused(source, drivers(0, 1), "format-version", "3", "1 or 2")
    # Somebody else's files are not this table's.
    metadata["format-version"], metadata["location"] = 2, "s3://other/place"
    name.write_text(json.dumps(metadata))
    stage.refused(source, drivers(0, 1), "below the table's location")


# S3


def test_tables_in_a_bucket(stage):
    for number in range(3):
        write_deltalake(str(stage.lake / "cloudy"), drivers(number * 10, 10), mode="append")
    DeltaTable(str(stage.lake / "cloudy")).create_checkpoint()
    write_deltalake(str(stage.lake / "cloudy"), drivers(30, 10), mode="append")
    expected = DeltaTable(str(stage.lake / "cloudy")).to_pyarrow_table()
    stage.upload(stage.lake / "cloudy", "delta/cloudy")
    here = stage.check({"kind": "delta", "path": "lake/cloudy"}, expected)
    there = stage.check({"kind": "delta", "path": "cloud/delta/cloudy"}, expected)
    hashes = [sorted(it.get("blake3", "") for it in made["manifest"]["sources"]) for made in (here, there)]
    assert hashes[0] == hashes[1] and any(hashes[0])
    table, _ = iceberg(stage, "cloudy")
    table.append(drivers(0, 20))
    stage.upload(stage.lake / "iceberg/db/cloudy", "iceberg/cloudy")
    stage.check({"kind": "iceberg", "path": "cloud/iceberg/cloudy"}, table.scan().to_arrow())


def test_files_in_a_bucket(stage):
    for name, first in {"a": 0, "b": 10, "c": 20}.items():
        pq.write_table(drivers(first, 10), stage.lake / f"plain-{name}.parquet", compression="zstd", row_group_size=4)
        stage.s3().upload_file(str(stage.lake / f"plain-{name}.parquet"), stage.bucket,
                               f"{stage.prefix}/plain/{name}.parquet")
    stage.s3().put_object(Bucket=stage.bucket, Key=f"{stage.prefix}/plain/deeper/x.parquet", Body=b"no file")
    stage.s3().put_object(Bucket=stage.bucket, Key=f"{stage.prefix}/plain/x.txt", Body=b"no file")
    made = stage.check({"kind": "parquet", "path": "cloud/plain/*.parquet"}, drivers(0, 30))
    assert [it["name"] for it in sources(made)] == [f"cloud/plain/{name}.parquet" for name in "abc"]
    stage.check({"kind": "parquet", "path": "cloud/plain/b.parquet"}, drivers(10, 10))
    stage.refused({"kind": "parquet", "path": "cloud/plain/*.csv"}, drivers(0, 1), "at least one file")
    stage.refused({"kind": "parquet", "path": "cloud/plain/x.txt"}, drivers(0, 1), "cloud/plain/x.txt", "Parquet")


def test_residency_comes_before_reading(stage):
    for source in [{"kind": "delta", "path": "abroad/delta/trips"}, {"kind": "iceberg", "path": "abroad/x"},
                   {"kind": "postgres", "database": "abroad", "table": "trips"}]:
        stage.refused(source, drivers(0, 1), "elsewhere")


# PostgreSQL


@pytest.fixture(scope="module")
def trips(stage):
    stage.sql('''
CREATE TABLE trips (driver_id bigint, at timestamptz, trips bigint, rate float8, name text, scores real[],
                    price numeric, small smallint, raw bytea, local timestamp);
INSERT INTO trips SELECT n, timestamptz '2026-03-01 00:00:00+00' + n * interval '1 minute', n * 7, n / 3.0,
    CASE WHEN n % 5 = 0 THEN NULL ELSE 'driver ' || n || ' ü' END, ARRAY[n, NULL, 0.5]::real[], n, n, '\\x00ff',
    timestamp '2026-03-01 00:00:00' + n * interval '1 minute'
FROM generate_series(0, 39) AS n;
CREATE SCHEMA "Odd ""one""";
CREATE TABLE "Odd ""one"""."Tab le" AS SELECT driver_id, at, trips, rate FROM trips WHERE driver_id < 10;
''')
    name = pa.array([None if key % 5 == 0 else f"driver {key} ü" for key in range(40)])
    scores = pa.array([[key, None, 0.5] for key in range(40)], pa.list_(pa.float32()))
    exact = pa.array([key / 3 for key in range(40)], pa.float64())
    table = drivers(0, 40, name=name, scores=scores)
    return table.set_column(3, "rate", exact)


def test_a_table_of_a_database(stage, trips):
    source = {"kind": "postgres", "database": "warehouse", "table": "public.trips"}
    made = stage.check(source, trips)
    (read,) = sources(made)
    assert read["name"] == "warehouse public.trips" and len(read["sha256"]) == 64
    stage.check(source | {"table": "trips"}, trips)
    stage.check(source | {"table": 'Odd "one".Tab le'}, drivers(0, 10))


def test_a_query(stage, trips):
    query = """with half as (select * from trips where driver_id < 20)
        select driver_id, at, trips, price::float8 as rate from half -- and no more"""
    expected = drivers(0, 20).set_column(3, "rate", pa.array([float(key) for key in range(20)]))
    stage.check({"kind": "postgres", "database": "warehouse", "query": query}, expected)
    # A time without a zone is taken for UTC.
    query = "select driver_id, local as at, trips, rate, small::int as small from trips"
    expected = drivers(0, 40, small=pa.array(range(40), pa.int32()))
    stage.check({"kind": "postgres", "database": "warehouse", "query": query}, expected)


def test_the_same_rows_make_the_same_set(stage, trips):
    stage.sql("CREATE TABLE shuffled AS SELECT * FROM trips ORDER BY driver_id")
    view, answer = stage.apply({"kind": "postgres", "database": "warehouse", "table": "shuffled"}, drivers(0, 1))
    assert answer.status_code == 200, answer.text
    keys, at = list(range(40)), [START + datetime.timedelta(hours=2)] * 40
    first = stage.set(view, keys, at)
    stage.sql("TRUNCATE shuffled; INSERT INTO shuffled SELECT * FROM trips ORDER BY random()")
    assert stage.set(view, keys, at)["digest"] == first["digest"]
    stage.sql("UPDATE shuffled SET trips = trips + 1 WHERE driver_id = 3")
    assert stage.set(view, keys, at)["digest"] != first["digest"]


def test_only_events_that_could_answer_are_read(stage, trips):
    source = {"kind": "postgres", "database": "warehouse", "table": "trips"}
    at = START + datetime.timedelta(minutes=20)
    made = stage.made(source, drivers(0, 1), [20, 11, 9, 21], [at] * 4, ttl="10m")
    assert stage.download(made)["trips"].to_pylist() == [140, 77, None, None]
    (read,) = sources(made)
    assert read["rows"] == 11


def test_what_a_database_cannot_give(stage, trips):
    like = drivers(0, 1)
    base = {"kind": "postgres", "database": "warehouse"}
    price = drivers(0, 1, price=pa.array([1.0]))
    stage.refused(base | {"table": "trips"}, price, "price", "numeric", "cast it in a `query`")
    stage.refused(base | {"table": "nothing"}, like, "table", "nothing")
    stage.refused(base | {"query": "select driver_id, at from trips"}, like, "trips", "absent")
    stage.refused(base | {"query": "select 1, from"}, like, "query", "syntax error")
    long = "select driver_id, at, trips, rate, repeat('x', 5000) as name from trips"
    stage.refused(base | {"query": long}, drivers(0, 1, name=pa.array(["x"])), "name", "4096")
    endless = "select driver_id, 'infinity'::timestamptz as at, trips, rate from trips"
    stage.refused(base | {"query": endless}, like, "at", "without an end")
    slow = "select driver_id, at, trips, rate from trips, pg_sleep(60)"
    stage.refused(base | {"query": slow}, like, "database_timeout")
    twice = "select driver_id, at, trips, rate, trips from trips"
    stage.refused(base | {"query": twice}, like, "trips", "twice")


def test_nothing_is_written_there(stage, trips):
    stage.sql("CREATE SEQUENCE counted")
    like, base = drivers(0, 1), {"kind": "postgres", "database": "warehouse"}
    counted = "select driver_id, at, nextval('counted') as trips, rate from trips"
    stage.refused(base | {"query": counted}, like, "read-only")
    stage.refused(base | {"query": "with gone as (delete from trips returning *) select * from gone"}, like, "query")
    broken = "select driver_id, at, trips, rate from trips) as q; drop table trips; --"
    stage.refused(base | {"query": broken}, like, "query")
    for text in ["drop table trips", "select 1;", "insert into trips values (1)"]:
        _, answer = stage.apply(base | {"query": text}, like)
        assert answer.status_code == 400 and "query" in answer.text, answer.text
    stage.check(base | {"table": "trips"}, trips)


def test_a_database_that_is_not_ones_own(stage):
    _, answer = stage.apply({"kind": "postgres", "database": "other", "table": "t"}, drivers(0, 1))
    assert answer.status_code == 400 and "features.databases" in answer.text, answer.text
    _, answer = stage.apply({"kind": "delta", "path": "other/t"}, drivers(0, 1))
    assert answer.status_code == 400 and "features.source_roots" in answer.text, answer.text


def test_rows_are_pushed_on_top_of_a_table(stage):
    path = stage.lake / "delta" / "below"
    write_deltalake(str(path), drivers(0, 10))
    body = {"entities": [{"name": "driver", "join_keys": [{"name": "driver_id", "type": "int64"}]}],
            "sources": [{"name": "below", "kind": "delta", "path": "lake/delta/below"},
                        {"name": "above", "kind": "push", "batch": "below"}],
            "views": [{"name": "both", "entities": ["driver"], "source": "above", "event_time": "at",
                       "schema": [{"name": "trips", "type": "int64"}]}]}
    assert stage.admin.post("/api/features/apply", json=body).status_code == 200
    pushed = {"push_source_name": "above", "to": "online_and_offline",
              "df": {"driver_id": [3], "at": ["2026-03-02T00:00:00Z"], "trips": [1]}}
    answer = stage.admin.post("/push", json=pushed)
    assert answer.status_code == 200, answer.text
    # What is pushed is known since now.
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
    made = stage.set("both", [2, 3], [at, at])
    assert stage.download(made)["trips"].to_pylist() == [14, 1]


def test_a_replaced_object_is_another(stage):
    key = f"{stage.prefix}/replaced/x.parquet"
    view, answer = stage.apply({"kind": "parquet", "path": "cloud/replaced/x.parquet"}, drivers(0, 1))
    assert answer.status_code == 200, answer.text
    digests = []
    for count in (10, 20, 10):
        data = io.BytesIO()
        pq.write_table(drivers(0, count), data)
        stage.s3().put_object(Bucket=stage.bucket, Key=key, Body=data.getvalue())
        made = stage.set(view, list(range(20)), [START + datetime.timedelta(hours=1)] * 20)
        assert stage.download(made)["trips"].null_count == 20 - count
        (read,) = sources(made)
        assert read["blake3"] == blake3(data.getvalue()).hexdigest()
        digests.append(made["digest"])
    assert digests[0] == digests[2] != digests[1]


def test_tables_are_served(stage, trips):
    """The latest values, materialised from each kind of table."""
    write_deltalake(str(stage.lake / "delta" / "served"), drivers(0, 10))
    table, iceberg_source = iceberg(stage, "served")
    table.append(drivers(0, 20))
    count = deletes.equals(f"{table.location()}/data", "values.parquet", "driver_id", 1, [3], pa.int64())
    deletes.commit(table, [("values.parquet", count, [1])])
    for source, there in [({"kind": "delta", "path": "lake/delta/served"}, 9), (iceberg_source, 19),
                          ({"kind": "postgres", "database": "warehouse", "table": "trips"}, 39)]:
        view, answer = stage.apply(source, drivers(0, 1))
        assert answer.status_code == 200, answer.text
        window = {"start_ts": "2026-01-01T00:00:00Z", "end_ts": "2026-04-01T00:00:00Z", "feature_views": [view]}
        answer = stage.admin.post("/materialize", json=window, timeout=120)
        assert answer.status_code == 200, answer.text
        asked = {"features": [f"{view}:trips"], "entities": {"driver_id": [3, there, 40]}}
        found = stage.admin.post("/get-online-features", json=asked).json()
        names = found["metadata"]["feature_names"]
        gone = source["kind"] == "iceberg"
        assert found["results"][names.index("trips")]["values"] == [None if gone else 21, there * 7, None]
