"""The latest values for the stock Feast SDK with its remote online store, unmodified.

What Feast's own server gets wrong is shown right, each by a test of its name."""

import datetime
import os
import pathlib
import signal
import sys
import uuid

import feast
import pandas as pd
import pytest
import requests
from feast.errors import FeastError, FeatureServiceNotFoundException, FeatureViewNotFoundException
from feast.types import Array, Bool, Bytes, Float32, Float64, Int32, Int64, String, UnixTimestamp

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from engines import ENGINES, OnEngine  # noqa: E402

DRIVERS = """
[[entity]]
name = "driver"
join_keys = [{ name = "driver_id", type = "int64" }]

[[entity]]
name = "day"
join_keys = [{ name = "weekday", type = "string" }]

[[source]]
name = "live"
kind = "push"

[[view]]
name = "stats"
entities = ["driver"]
source = "live"
ttl = "1d"
schema = [
    { name = "trips", type = "int64" }, { name = "rate", type = "float32" }, { name = "score", type = "float64" },
    { name = "level", type = "int32" }, { name = "active", type = "bool" }, { name = "city", type = "string" },
    { name = "photo", type = "bytes" }, { name = "seen", type = "timestamp" },
    { name = "history", type = "list<int64>" },
]

[[view]]
name = "days"
entities = ["driver", "day"]
source = "live_days"
schema = [{ name = "busy", type = "float64" }]

[[source]]
name = "live_days"
kind = "push"

[[source]]
name = "files"
kind = "parquet"
object = "files.parquet"

[[view]]
name = "batch"
entities = ["driver"]
source = "files"
schema = [{ name = "trips", type = "int64" }]

[[service]]
name = "ranking"
features = ["stats:trips", "days:busy"]
"""
FIELDS = {"trips": Int64, "rate": Float32, "score": Float64, "level": Int32, "active": Bool, "city": String,
          "photo": Bytes, "seen": UnixTimestamp, "history": Array(Int64)}


def now(**ago):
    moment = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(**ago)
    return moment.replace(microsecond=0)


def stores():
    kinds = [(engine, "embedded") for engine in ENGINES]
    return kinds + [(engine, "redis") for engine in ENGINES if "FALAJ_TEST_REDIS_URL" in os.environ]


@pytest.fixture(scope="module", params=stores(), ids="-".join)
def server(request, tmp_path_factory):
    engine, kind = request.param
    settings = {}
    if kind == "redis":
        settings = {"FALAJ_FEATURES_ONLINE_REDIS_URL": os.environ["FALAJ_TEST_REDIS_URL"],
                    "FALAJ_FEATURES_ONLINE_REDIS_PREFIX": f"feast-{uuid.uuid4().hex}:"}
    server = OnEngine(tmp_path_factory.mktemp(f"online-{engine}-{kind}"), engine, **settings).start()
    admin = server.client(server.admin_token())
    assert admin.put("/v1/tenants/default/projects/default/objects/files.parquet", data=b"never read").ok
    answer = admin.post("/api/features/apply", data=DRIVERS, headers={"content-type": "application/toml"})
    assert answer.status_code == 200, answer.text
    yield server
    alive, tail = server.process.poll() is None, server.tail()
    server.stop()
    assert alive and "panicked" not in server.log.read_text(errors="replace"), tail


def repository(server, folder, store, auth=""):
    """A feature repository that names our server, with the same definitions in Feast's own registry."""
    (folder / "feature_store.yaml").write_text(f"""
project: default
provider: local
registry: {folder}/registry.db
entity_key_serialization_version: 3
online_store: {{type: remote, path: "{store}", connection_retries: 0}}
{auth}
""")
    driver = feast.Entity(name="driver", join_keys=["driver_id"], value_type=feast.ValueType.INT64)
    day = feast.Entity(name="day", join_keys=["weekday"], value_type=feast.ValueType.STRING)
    batch = feast.FileSource(name="batch", path=str(folder / "none.parquet"), timestamp_field="event_timestamp")
    live = feast.PushSource(name="live", batch_source=batch)
    live_days = feast.PushSource(name="live_days", batch_source=batch)
    stats = feast.FeatureView(
        name="stats", entities=[driver], source=live, ttl=datetime.timedelta(days=1),
        schema=[feast.Field(name="driver_id", dtype=Int64)]
        + [feast.Field(name=name, dtype=kind) for name, kind in FIELDS.items()])
    days = feast.FeatureView(
        name="days", entities=[driver, day], source=live_days,
        schema=[feast.Field(name="driver_id", dtype=Int64), feast.Field(name="weekday", dtype=String),
                feast.Field(name="busy", dtype=Float64)])
    ranking = feast.FeatureService(name="ranking", features=[stats[["trips"]], days[["busy"]]])
    store = feast.FeatureStore(repo_path=str(folder))
    registry = store.registry
    for declare, things in ((registry.apply_entity, [driver, day]), (registry.apply_data_source, [live, live_days]),
                            (registry.apply_feature_view, [stats, days]),
                            (registry.apply_feature_service, [ranking])):
        for one in things:
            declare(one, "default")
    store.refresh_registry()
    return store


@pytest.fixture
def store(server, tmp_path):
    auth = f"auth: {{type: oidc, token: {server.admin_token()}}}"
    return repository(server, tmp_path, f"{server.url}/t/default/default", auth)


def row(driver, event, **values):
    # Feast's own client cannot send bytes.
    plain = {"trips": 1, "rate": 0.5, "score": 0.25, "level": 3, "active": True, "city": "Al Ain", "photo": None,
             "seen": event, "history": [1, 2]}
    return pd.DataFrame([{"driver_id": driver, "event_timestamp": event} | plain | values])


def statuses(store, features, entities):
    """Values and statuses of one feature, by Feast's own classes."""
    answer = store.get_online_features(features=features, entity_rows=entities)
    column = answer.proto.results[-1]
    name = features[0].split(":")[1]
    return answer.to_dict()[name], [feast_status(status) for status in column.statuses]


def feast_status(number):
    from feast.protos.feast.serving.ServingService_pb2 import FieldStatus
    return FieldStatus.Name(number)


def test_what_is_pushed_is_read_at_once(store):
    event = now(minutes=5)
    store.push("live", row(1, event, trips=41))
    store.push("live", row(1, event + datetime.timedelta(seconds=1), trips=42))
    found = store.get_online_features(features=[f"stats:{name}" for name in FIELDS],
                                      entity_rows=[{"driver_id": 1}]).to_dict()
    assert found["trips"] == [42] and found["level"] == [3] and found["score"] == [0.25]
    assert found["rate"] == [0.5] and found["active"] == [True] and found["city"] == ["Al Ain"]
    assert found["history"] == [[1, 2]]
    assert found["seen"] == [int(event.timestamp()) + 1], "whole seconds, as Feast has them on the wire"


def test_composite_keys(store):
    frame = pd.DataFrame({"driver_id": [1, 11, 1], "weekday": ["1", "", "11"], "busy": [0.1, 0.2, 0.3],
                          "event_timestamp": [now(minutes=1)] * 3})
    store.write_to_online_store("days", df=frame)
    asked = [{"driver_id": 1, "weekday": "1"}, {"driver_id": 1, "weekday": "11"}, {"driver_id": 11, "weekday": "1"}]
    found = store.get_online_features(features=["days:busy"], entity_rows=asked).to_dict()
    assert found["busy"] == [0.1, 0.3, None]


def test_a_service(store):
    store.push("live", row(5, now(minutes=1), trips=7))
    store.write_to_online_store("days", df=pd.DataFrame({
        "driver_id": [5], "weekday": ["mon"], "busy": [0.5], "event_timestamp": [now(minutes=1)]}))
    service = store.get_feature_service("ranking")
    found = store.get_online_features(features=service, entity_rows=[{"driver_id": 5, "weekday": "mon"}]).to_dict()
    assert found == {"driver_id": [5], "weekday": ["mon"], "trips": [7], "busy": [0.5]}
    named = store.get_online_features(features=["stats:trips"], entity_rows=[{"driver_id": 5}],
                                      full_feature_names=True).to_dict()
    assert named == {"driver_id": [5], "stats__trips": [7]}


def test_an_expired_value_is_outside_max_age(store):
    store.push("live", row(20, now(days=10)))
    assert statuses(store, ["stats:trips"], [{"driver_id": 20}]) == ([None], ["OUTSIDE_MAX_AGE"])


def test_an_unknown_entity_is_not_found(store):
    assert statuses(store, ["stats:trips"], [{"driver_id": 999}]) == ([None], ["NOT_FOUND"])


def test_a_stored_null_is_a_null_value(store):
    store.push("live", row(21, now(minutes=1), city=None))
    assert statuses(store, ["stats:city"], [{"driver_id": 21}]) == ([None], ["NULL_VALUE"])


def test_an_older_event_pushed_later_changes_nothing(store):
    store.push("live", row(22, now(minutes=1), trips=2))
    store.push("live", row(22, now(hours=1), trips=1))
    assert statuses(store, ["stats:trips"], [{"driver_id": 22}]) == ([2], ["PRESENT"])


def test_a_correction_of_the_same_event_wins(store):
    event = now(minutes=1)
    store.push("live", row(23, event, trips=1))
    store.push("live", row(23, event, trips=2))
    assert statuses(store, ["stats:trips"], [{"driver_id": 23}]) == ([2], ["PRESENT"])


def test_errors_are_feasts(server, store):
    with pytest.raises(FeastError, match="entities.driver_id"):
        store.get_online_features(features=["stats:trips"], entity_rows=[{"driver_id": "one"}])
    headers = {"Authorization": f"Bearer {server.admin_token()}"}
    for body, raised in (({"features": ["nothing:x"]}, FeatureViewNotFoundException),
                         ({"feature_service": "nothing"}, FeatureServiceNotFoundException)):
        answer = requests.post(f"{server.url}/get-online-features", headers=headers,
                               json={"entities": {"driver_id": [1]}} | body)
        assert answer.status_code == 404
        assert isinstance(FeastError.from_error_detail(answer.json()), raised)


def test_a_view_of_files_takes_no_rows(server):
    headers = {"Authorization": f"Bearer {server.admin_token()}"}
    frame = {"driver_id": [1], "trips": [1], "event_timestamp": [now(minutes=1).isoformat()]}
    answer = requests.post(f"{server.url}/write-to-online-store", headers=headers,
                           json={"feature_view_name": "batch", "df": frame})
    assert answer.status_code == 400
    with pytest.raises(FeastError, match="batch takes no pushes: its source files"):
        raise FeastError.from_error_detail(answer.json())


def test_a_push_may_be_as_large_as_is_set(server, store):
    """Larger than the bodies of other calls."""
    rows = 40
    frame = pd.concat([row(10_000 + number, now(minutes=1), city="x" * 150_000) for number in range(rows)])
    store.push("live", frame)
    assert statuses(store, ["stats:trips"], [{"driver_id": 10_000 + rows - 1}]) == ([1], ["PRESENT"])


def test_the_token_can_stand_in_the_address(server, tmp_path):
    address = f"http://token:{server.admin_token()}@127.0.0.1:{server.port}/t/default/default"
    store = repository(server, tmp_path, address)
    assert statuses(store, ["stats:trips"], [{"driver_id": 999}]) == ([None], ["NOT_FOUND"])


def test_a_stranger_gets_nothing(server):
    body = {"features": ["stats:trips"], "entities": {"driver_id": [1]}}
    for path in ("/get-online-features", "/push", "/write-to-online-store", "/materialize"):
        assert requests.post(f"{server.url}{path}", json=body).status_code == 401


def test_what_was_acknowledged_survives_a_kill(server, store):
    for trips in range(1, 31):
        store.push("live", row(30 + trips, now(minutes=1), trips=trips))
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    server.start()
    found = store.get_online_features(features=["stats:trips"],
                                      entity_rows=[{"driver_id": 30 + trips} for trips in range(1, 31)]).to_dict()
    assert found["trips"] == list(range(1, 31))
