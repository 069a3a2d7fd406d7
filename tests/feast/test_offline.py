"""Training sets over Arrow Flight: stock pyarrow, and the stock Feast SDK with its remote offline store."""

import datetime
import pathlib
import sys

import pandas as pd
import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from engines import ENGINES, OnEngine  # noqa: E402

START = datetime.datetime(2026, 5, 1, tzinfo=datetime.timezone.utc)
PLACE = "/v1/tenants/default/projects/default"
DRIVERS = """
[[entity]]
name = "driver"
join_keys = [{ name = "driver_id", type = "int64" }]

[[source]]
name = "stats"
kind = "parquet"
object = "stats.parquet"

[[view]]
name = "driver_stats"
entities = ["driver"]
source = "stats"
ttl = "1d"
known_time = "created"
schema = [{ name = "conv_rate", type = "float32" }, { name = "trips", type = "int64" }]
"""


def at(hours):
    return START + datetime.timedelta(hours=hours)


# Key, event, known, conversion rate, trips: an old one, a correction that came late, a null.
ROWS = [(1, 0, 0, 0.5, 10), (1, 2, 2, 0.6, 20), (1, 2, 30, 0.7, 25), (2, 1, 1, None, 7), (3, 50, 50, 0.1, 1)]
# Key, time, what is expected of trips.
ASKED = [(1, 3, 20), (2, 2, 7), (1, 1, 10), (1, 3, 20), (3, 2, None), (4, 2, None), (1, 27, None)]


def history():
    return pa.table({
        "driver_id": [row[0] for row in ROWS],
        "event_timestamp": pa.array([at(row[1]) for row in ROWS], pa.timestamp("us", "UTC")),
        "created": pa.array([at(row[2]) for row in ROWS], pa.timestamp("us", "UTC")),
        "conv_rate": pa.array([row[3] for row in ROWS], pa.float32()),
        "trips": pa.array([row[4] for row in ROWS], pa.int64()),
    })


def entities():
    return pd.DataFrame({"driver_id": [row[0] for row in ASKED], "label": list(range(len(ASKED))),
                         "event_timestamp": pd.to_datetime([at(row[1]) for row in ASKED])})


@pytest.fixture(scope="module", params=ENGINES)
def stage(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(f"flight-{request.param}")
    server = OnEngine(folder, request.param).start()
    admin = server.client(server.admin_token())
    for name, table in {"stats.parquet": history(),
                        "moments.parquet": pa.Table.from_pandas(entities(), preserve_index=False)}.items():
        pq.write_table(table, folder / name)
        assert admin.put(f"{PLACE}/objects/{name}", data=(folder / name).read_bytes()).ok
    answer = admin.post("/api/features/apply", data=DRIVERS, headers={"content-type": "application/toml"})
    assert answer.status_code == 200, answer.text
    yield server, admin
    alive = server.process.poll() is None
    tail = server.tail()
    server.stop()
    assert alive and "panicked" not in server.log.read_text(errors="replace"), tail


def options(token):
    return flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])


def expected():
    return [row[2] for row in ASKED]


def test_pyarrow_gets_what_was_made(stage):
    server, admin = stage
    made = admin.post("/api/features/training-sets",
                      json={"features": ["driver_stats"], "moments_object": "moments.parquet"})
    assert made.status_code == 200, made.text
    made = made.json()
    assert made["state"] == "ready", made
    client = flight.connect(f"grpc://127.0.0.1:{server.port}")
    call = options(server.admin_token())
    info = client.get_flight_info(flight.FlightDescriptor.for_path(made["id"]), call)
    assert (info.total_records, info.total_bytes) == (len(ASKED), made["size"])
    assert info.schema.names == ["driver_id", "label", "event_timestamp", "conv_rate", "trips"]
    table = client.do_get(info.endpoints[0].ticket, call).read_all()
    assert table.column("trips").to_pylist() == expected()
    assert table.column("label").to_pylist() == list(range(len(ASKED)))
    assert table.schema.field("conv_rate").type == pa.float32()
    # The file is the same.
    data = admin.get(f"/api/features/training-sets/{made['id']}/data")
    assert pq.read_table(pa.BufferReader(data.content)).column("trips").to_pylist() == expected()


def test_a_stranger_gets_nothing(stage):
    server, _ = stage
    client = flight.connect(f"grpc://127.0.0.1:{server.port}")
    ticket = flight.Ticket(b"tset_" + b"0" * 32)
    with pytest.raises(flight.FlightUnauthenticatedError):
        client.do_get(ticket, options("nobody")).read_all()
    with pytest.raises(flight.FlightUnauthenticatedError):
        client.do_get(ticket).read_all()
    with pytest.raises(pa.ArrowKeyError):
        client.do_get(ticket, options(server.admin_token())).read_all()
    with pytest.raises(pa.ArrowKeyError):
        client.do_get(flight.Ticket(b"\xff nonsense"), options(server.admin_token())).read_all()


@pytest.mark.parametrize("columns, reason", [
    ({"driver_id": [1]}, "`event_timestamp`, or one of times"),
    ({"event_timestamp": [START]}, "`moments.driver_id` is .absent"),
    ({"driver_id": ["x"], "event_timestamp": [START]}, "`moments.driver_id` is .Utf8"),
    ({"driver_id": [1], "event_timestamp": ["now"]}, "`moments.event_timestamp` is .Utf8"),
    ({"key": ["mock_key"]}, "a table of entities"),
])
def test_a_bad_table_is_refused_with_the_reason(stage, columns, reason):
    server, _ = stage
    client = flight.connect(f"grpc://127.0.0.1:{server.port}")
    command = '{"api": "get_historical_features", "feature_refs": ["driver_stats:trips"]}'
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(command), options(server.admin_token()))
    table = pa.table(columns)
    with pytest.raises(pa.ArrowInvalid, match=reason):
        writer.begin(table.schema)
        writer.write_table(table)
        writer.done_writing()
        reader.read_all()


@pytest.fixture
def store(stage, tmp_path):
    feast = pytest.importorskip("feast")
    from feast.types import Float32, Int64
    server, admin = stage
    (tmp_path / "feature_store.yaml").write_text(f"""
project: default
provider: local
registry: {tmp_path}/registry.db
entity_key_serialization_version: 3
offline_store: {{type: remote, host: 127.0.0.1, port: {server.port}}}
online_store: {{type: sqlite, path: {tmp_path}/online.db}}
auth: {{type: oidc, token: {server.admin_token()}}}
""")
    # Feast reads columns of the source itself when it is declared.
    pq.write_table(history(), tmp_path / "stats.parquet")
    driver = feast.Entity(name="driver", join_keys=["driver_id"], value_type=feast.ValueType.INT64)
    source = feast.FileSource(name="stats", path=str(tmp_path / "stats.parquet"),
                              timestamp_field="event_timestamp", created_timestamp_column="created")
    view = feast.FeatureView(name="driver_stats", entities=[driver], ttl=datetime.timedelta(days=1), source=source,
                             schema=[feast.Field(name="driver_id", dtype=Int64),
                                     feast.Field(name="conv_rate", dtype=Float32),
                                     feast.Field(name="trips", dtype=Int64)])
    store = feast.FeatureStore(repo_path=str(tmp_path))
    from feast.infra.registry.registry import Registry
    registry: Registry = store.registry
    for declare, one in ((registry.apply_entity, driver), (registry.apply_data_source, source),
                         (registry.apply_feature_view, view)):
        declare(one, "default")
    store.refresh_registry()
    return store


def test_feast_trains_on_what_was_known(store):
    found = store.get_historical_features(entity_df=entities(), features=["driver_stats:trips",
                                                                          "driver_stats:conv_rate"]).to_df()
    # Every row, in its order, and nothing of the correction that came later.
    assert found["label"].tolist() == list(range(len(ASKED)))
    assert [None if pd.isna(trips) else int(trips) for trips in found["trips"]] == expected()
    named = store.get_historical_features(entity_df=entities(), features=["driver_stats:trips"],
                                          full_feature_names=True).to_arrow()
    assert named.column("driver_stats__trips").to_pylist() == expected()


def test_what_feast_exchanged_is_kept(store, stage):
    _, admin = stage
    before = len(admin.get("/api/features/training-sets").json()["items"])
    store.get_historical_features(entity_df=entities(), features=["driver_stats:trips"]).to_df()
    sets = admin.get("/api/features/training-sets").json()["items"]
    assert len(sets) == before + 1 and sets[0]["rows"] == len(ASKED)
