"""The latest values over gRPC: our own service with what the stock compiler makes of its `.proto`, and
Feast's with the stubs of the stock SDK's messages."""

import datetime
import importlib
import pathlib
import sys

import grpc
import pytest
from feast.protos.feast.serving import ServingService_pb2 as feast_serving
from feast.protos.feast.types import Value_pb2 as feast_value
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from engines import ENGINES, OnEngine  # noqa: E402

PROTO = ROOT.parent / "crates" / "features" / "proto"
VIEW = """
[[entity]]
name = "driver"
join_keys = [{ name = "driver_id", type = "int64" }]

[[source]]
name = "live"
kind = "push"

[[view]]
name = "stats"
entities = ["driver"]
source = "live"
ttl = "1d"
schema = [
    { name = "trips", type = "int64" }, { name = "rate", type = "float32" }, { name = "city", type = "string" },
    { name = "photo", type = "bytes" }, { name = "seen", type = "timestamp" }, { name = "active", type = "bool" },
    { name = "history", type = "list<int64>" },
]

[[service]]
name = "ranking"
features = ["stats:trips"]
"""
SERVICE = "/falaj.features.v1.FeatureService"


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    out = tmp_path_factory.mktemp("proto")
    # By its own name: `falaj` is the package of the SDK, which other tests have loaded.
    folder = PROTO / "falaj" / "features" / "v1"
    assert protoc.main(["protoc", f"-I{folder}", f"--python_out={out}", str(folder / "features.proto")]) == 0
    sys.path.insert(0, str(out))
    return importlib.import_module("features_pb2")


@pytest.fixture(scope="module", params=ENGINES)
def stage(request, tmp_path_factory):
    server = OnEngine(tmp_path_factory.mktemp(f"grpc-{request.param}"), request.param).start()
    admin = server.client(server.admin_token())
    applied = admin.post("/t/default/default/api/features/apply", data=VIEW,
                         headers={"content-type": "application/toml"})
    assert applied.ok, applied.text
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield server, channel
    server.stop()


def call(stage, path, request, reply, token=None):
    server, channel = stage
    token = server.admin_token() if token is None else token
    method = channel.unary_unary(path, request_serializer=type(request).SerializeToString,
                                 response_deserializer=reply.FromString)
    metadata = [("authorization", f"Bearer {token}"), ("x-falaj-project", "default/default")]
    return method(request, metadata=metadata, timeout=20)


def micros(**ago):
    moment = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(**ago)
    return int(moment.replace(microsecond=5).timestamp()) * 1_000_000 + 5


def pushed(m, drivers, at):
    value = m.Value
    history = value(list=m.Values(values=[value(int=1), value(int=-2)]))
    columns = {
        "driver_id": [value(int=driver) for driver in drivers],
        "trips": [value(int=driver * 10) for driver in drivers],
        "rate": [value(float=0.5), value()][:len(drivers)],
        "city": [value(text="Abu Dhabi")] * len(drivers),
        "photo": [value(bytes=b"\x00\xff")] * len(drivers),
        "seen": [value(time=at)] * len(drivers),
        "active": [value(bool=True)] * len(drivers),
        "history": [history] * len(drivers),
        "event_timestamp": [value(time=at)] * len(drivers),
    }
    return m.PushRequest(view="stats", columns={name: m.Values(values=it) for name, it in columns.items()})


def test_what_is_pushed_is_read(stage, messages):
    m, at = messages, micros(hours=1)
    kept = call(stage, f"{SERVICE}/Push", pushed(m, [1, 2], at), m.PushResponse)
    assert (kept.view, kept.version, kept.rows, kept.placed) == ("stats", 1, 2, 2)
    old = pushed(m, [3], micros(days=2))
    call(stage, f"{SERVICE}/Push", old, m.PushResponse)
    asked = m.GetOnlineFeaturesRequest(features=["stats"], entities={
        "driver_id": m.Values(values=[m.Value(int=driver) for driver in (2, 1, 3, 4)])})
    found = call(stage, f"{SERVICE}/GetOnlineFeatures", asked, m.GetOnlineFeaturesResponse)
    features = {it.name: it for it in found.features}
    assert list(features) == [f"stats:{name}" for name in
                              ("trips", "rate", "city", "photo", "seen", "active", "history")]
    trips, rate = features["stats:trips"], features["stats:rate"]
    assert [it.int for it in trips.values[:2]] == [20, 10]
    assert list(trips.statuses) == [m.PRESENT, m.PRESENT, m.OUTSIDE_MAX_AGE, m.NOT_FOUND]
    assert list(rate.statuses)[:2] == [m.NULL_VALUE, m.PRESENT]
    assert rate.values[0].WhichOneof("kind") is None and rate.values[1].float == 0.5
    assert list(trips.event_times)[:2] == [at, at] and trips.event_times[3] == 0
    assert features["stats:photo"].values[0].bytes == b"\x00\xff"
    assert features["stats:seen"].values[0].time == at
    assert [it.int for it in features["stats:history"].values[0].list.values] == [1, -2]
    by_service = m.GetOnlineFeaturesRequest(service="ranking", entities=asked.entities)
    found = call(stage, f"{SERVICE}/GetOnlineFeatures", by_service, m.GetOnlineFeaturesResponse)
    assert [it.name for it in found.features] == ["stats:trips"]


def test_feasts_messages(stage, messages):
    at = micros(minutes=30)
    call(stage, f"{SERVICE}/Push", pushed(messages, [11, 12], at), messages.PushResponse)
    value = feast_value.Value
    request = feast_serving.GetOnlineFeaturesRequest(
        features=feast_serving.FeatureList(val=["stats:trips", "stats:rate", "stats:seen", "stats:history"]),
        full_feature_names=True, include_feature_view_version_metadata=True)
    request.entities["driver_id"].val.extend([value(int64_val=12), value(int64_val=11), value(int64_val=99)])
    path = "/feast.serving.ServingService/GetOnlineFeatures"
    found = call(stage, path, request, feast_serving.GetOnlineFeaturesResponse)
    names = list(found.metadata.feature_names.val)
    assert names == ["driver_id", "stats__trips", "stats__rate", "stats__seen", "stats__history"]
    assert [(it.name, it.version) for it in found.metadata.feature_view_metadata] == [("stats", 1)]
    columns = dict(zip(names, found.results))
    assert [it.int64_val for it in columns["driver_id"].values] == [12, 11, 99]
    assert [it.int64_val for it in columns["stats__trips"].values[:2]] == [120, 110]
    status = feast_serving.FieldStatus
    assert list(columns["stats__trips"].statuses) == [status.PRESENT, status.PRESENT, status.NOT_FOUND]
    assert columns["stats__rate"].statuses[0] == status.NULL_VALUE
    assert columns["stats__rate"].values[1].float_val == 0.5
    assert columns["stats__seen"].values[0].unix_timestamp_val == at // 1_000_000
    assert list(columns["stats__history"].values[0].int64_list_val.val) == [1, -2]
    stamp = columns["stats__trips"].event_timestamps[0]
    assert (stamp.seconds, stamp.nanos) == (at // 1_000_000, 5000)
    service = feast_serving.GetOnlineFeaturesRequest(feature_service="ranking")
    service.entities["driver_id"].val.extend([value(int64_val=11)])
    found = call(stage, path, service, feast_serving.GetOnlineFeaturesResponse)
    assert list(found.metadata.feature_names.val) == ["driver_id", "trips"]


def test_errors_are_grpcs(stage, messages):
    m = messages
    entities = {"driver_id": m.Values(values=[m.Value(int=1)])}
    cases = [
        (m.GetOnlineFeaturesRequest(features=["nobody:x"], entities=entities), grpc.StatusCode.NOT_FOUND),
        (m.GetOnlineFeaturesRequest(entities=entities), grpc.StatusCode.INVALID_ARGUMENT),
        (m.GetOnlineFeaturesRequest(features=["stats"]), grpc.StatusCode.INVALID_ARGUMENT),
    ]
    for request, code in cases:
        with pytest.raises(grpc.RpcError) as raised:
            call(stage, f"{SERVICE}/GetOnlineFeatures", request, m.GetOnlineFeaturesResponse)
        assert raised.value.code() == code, raised.value
    bad = pushed(m, [1], micros(hours=1))
    bad.columns["trips"].values[0].CopyFrom(m.Value(text="many"))
    with pytest.raises(grpc.RpcError) as raised:
        call(stage, f"{SERVICE}/Push", bad, m.PushResponse)
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "df.trips[0]" in raised.value.details()
    with pytest.raises(grpc.RpcError) as raised:
        call(stage, f"{SERVICE}/Push", pushed(m, [1], micros(hours=1)), m.PushResponse, token="nobody")
    assert raised.value.code() == grpc.StatusCode.UNAUTHENTICATED
