"""A registry that the stock Feast made, brought in; then both answer the same questions alike."""

import datetime
import json
import pathlib
import subprocess
import sys

import pandas as pd
import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.parquet as pq
import pytest
from feast import Entity, FeatureService, FeatureStore, FeatureView, Field, FileSource, PushSource, ValueType
from feast.infra.registry.sql import SqlRegistryConfig
from feast.infra.registry.registry import RegistryConfig
from feast.on_demand_feature_view import on_demand_feature_view
from feast.repo_config import RepoConfig
from feast.types import Array, Float32, Float64, Int64, String

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from engines import OnEngine  # noqa: E402
from server import binary, environment  # noqa: E402

START = datetime.datetime(2026, 5, 1, tzinfo=datetime.timezone.utc)


def at(hours):
    return START + datetime.timedelta(hours=hours)


# Key, event, created, rate, trips, words.
ROWS = [(1, 0, 0, 0.5, 10, ["a"]), (1, 2, 2, 0.6, 20, ["b", "c"]), (1, 2, 3, 0.7, 25, []),
        (2, 1, 1, None, 7, None), (3, 50, 50, 0.1, 1, ["z"])]
ASKED = [(1, 3), (2, 2), (1, 1), (3, 2), (4, 2), (1, 27), (3, 51)]


def history():
    return pa.table({
        "driver_id": pa.array([row[0] for row in ROWS], pa.int64()),
        "ts": pa.array([at(row[1]) for row in ROWS], pa.timestamp("us", "UTC")),
        "created": pa.array([at(row[2]) for row in ROWS], pa.timestamp("us", "UTC")),
        "rate": pa.array([row[3] for row in ROWS], pa.float32()),
        "trips": pa.array([row[4] for row in ROWS], pa.int64()),
        "words": pa.array([row[5] for row in ROWS], pa.list_(pa.string())),
    })


def entities():
    return pd.DataFrame({"driver_id": [row[0] for row in ASKED], "label": list(range(len(ASKED))),
                         "event_timestamp": pd.to_datetime([at(row[1]) for row in ASKED])})


def store(folder, registry):
    return FeatureStore(config=RepoConfig(project="rides", provider="local", registry=registry,
                                          online_store={"type": "sqlite", "path": str(folder / "online.db")},
                                          offline_store={"type": "dask"}, entity_key_serialization_version=3))


def declare(feast, folder):
    pq.write_table(history(), folder / "trips.parquet")
    driver = Entity(name="driver", join_keys=["driver_id"], value_type=ValueType.INT64, description="who drives",
                    tags={"team": "rides"}, owner="ada")
    trips = FileSource(name="trips", path=str(folder / "trips.parquet"), timestamp_field="ts",
                       created_timestamp_column="created")
    live = PushSource(name="live", batch_source=trips)
    fields = [Field(name="rate", dtype=Float32), Field(name="trips", dtype=Int64),
              Field(name="words", dtype=Array(String))]
    stats = FeatureView(name="stats", entities=[driver], ttl=datetime.timedelta(days=1), schema=fields, source=trips,
                        tags={"tier": "gold"}, owner="ada", description="what drivers did")
    pushed = FeatureView(name="pushed", entities=[driver], ttl=datetime.timedelta(0), schema=fields[:2], source=live)

    @on_demand_feature_view(sources=[stats], schema=[Field(name="double", dtype=Float64)], mode="pandas")
    def doubled(inputs: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"double": inputs["rate"] * 2})

    ranking = FeatureService(name="ranking", features=[stats[["trips", "rate"]], pushed[["trips"]].with_name("pushed")],
                             tags={"model": "eta"}, owner="bob")
    clever = FeatureService(name="clever", features=[doubled])
    feast.apply([driver, trips, live, stats, pushed, doubled, ranking, clever])


@pytest.fixture(scope="module", params=["file", "sql"])
def brought(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(f"feast-{request.param}")
    path = folder / "registry.db"
    if request.param == "file":
        registry = RegistryConfig(path=str(path))
    else:
        registry = SqlRegistryConfig(registry_type="sql", path=f"sqlite:///{path}")
    feast = store(folder, registry)
    declare(feast, folder)
    (folder / "server").mkdir()
    server = OnEngine(folder / "server", "sqlite").start()
    yield server, feast, path, folder
    server.stop()
    assert "panicked" not in server.log.read_text(errors="replace")


def falaj(server, *words, code=0):
    settings = environment(FALAJ_URL=server.url, FALAJ_TOKEN=server.admin_token())
    done = subprocess.run([binary(), *words], env=settings, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_what_is_declared_comes_and_the_rest_is_named(brought):
    server, _, path, folder = brought
    out = folder / "features.toml"
    done = falaj(server, "import", "feast", str(path), "--root", f"lake={folder}", "--out", str(out), code=1)
    assert "on-demand view doubled did not come" in done.stderr and "pickled" in done.stderr
    assert "service clever did not come: its view doubled" in done.stderr
    text = out.read_text()
    assert 'path = "lake/trips.parquet"' in text and "86400s" in text and 'batch = "trips"' in text
    planned = falaj(server, "import", "feast", str(path), "--upload", "--dry-run", "--output", "json", code=1)
    views = json.loads(planned.stdout)["definitions"]["view"]
    assert {it["name"] for it in views} == {"stats", "pushed"}
    assert "ttl" not in next(it for it in views if it["name"] == "pushed")
    falaj(server, "import", "feast", str(path), "--upload", code=1)
    admin = server.client(server.admin_token())
    view = admin.get("/api/features/views/stats").json()
    assert (view["owner"], view["tags"], view["description"]) == ("ada", {"tier": "gold"}, "what drivers did")
    assert admin.get("/api/features/entities/driver").json()["tags"] == {"team": "rides"}
    service = admin.get("/api/features/services/ranking").json()
    assert service["definition"]["service"]["features"] == ["stats:trips", "stats:rate", "pushed:trips"]
    # Again, nothing changes.
    again = falaj(server, "import", "feast", str(path), "--upload", "--output", "json", code=1)
    assert {it["outcome"] for it in json.loads(again.stdout)["definitions"]} == {"unchanged"}


def test_both_answer_alike(brought):
    server, feast, path, _ = brought
    falaj(server, "import", "feast", str(path), "--upload", code=1)
    wanted = ["stats:rate", "stats:trips", "stats:words"]
    theirs = feast.get_historical_features(entity_df=entities(), features=wanted).to_df()
    admin = server.client(server.admin_token())
    moments = entities().sort_values("label")
    body = {"features": wanted, "hindsight": True, "moments": {
        "driver_id": moments["driver_id"].tolist(), "label": moments["label"].tolist(),
        "event_timestamp": [it.isoformat() for it in moments["event_timestamp"]]}}
    made = admin.post("/api/features/training-sets", json=body).json()
    assert made["state"] == "ready", made
    client = flight.connect(server.url.replace("http", "grpc"))
    options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer " + server.admin_token().encode())])
    ours = client.do_get(flight.Ticket(made["id"].encode()), options).read_all().to_pandas()
    # Feast's own store leaves out rows that nothing answers; here every row stays, with nulls.
    assert len(ours) == len(ASKED)
    left_out = ours[~ours["label"].isin(theirs["label"])]
    assert left_out[["rate", "trips"]].isna().all().all(), left_out
    theirs = theirs.sort_values("label").reset_index(drop=True)
    ours = ours[ours["label"].isin(theirs["label"])].sort_values("label").reset_index(drop=True)
    for column in ("rate", "trips"):
        pd.testing.assert_series_equal(ours[column].astype("float64"), theirs[column].astype("float64"), check_names=False)
    words = [None if it is None else list(it) for it in ours["words"]]
    assert words == [None if it is None or it is pd.NA or isinstance(it, float) else list(it) for it in theirs["words"]]
