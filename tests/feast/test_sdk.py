"""The Python package of this repository against the real server."""

import datetime
import pathlib
import sys

import pandas as pd
import pyarrow as pa
import pytest

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT.parent / "sdk/python/src")]

import falaj  # noqa: E402
from engines import ENGINES, OnEngine  # noqa: E402

NOW = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
DRIVERS = """
[[entity]]
name = "driver"
join_keys = [{ name = "driver_id", type = "int64" }]

[[source]]
name = "live"
kind = "push"

[[view]]
name = "driver_stats"
entities = ["driver"]
source = "live"
ttl = "7d"
schema = [{ name = "conv_rate", type = "float64" }, { name = "trips", type = "int64" }]

[[service]]
name = "ranking"
features = ["driver_stats:trips"]
"""


@pytest.fixture(scope="module", params=ENGINES)
def store(request, tmp_path_factory):
    server = OnEngine(tmp_path_factory.mktemp(f"sdk-{request.param}"), request.param).start()
    store = falaj.FeatureStore(server.url, server.admin_token())
    assert {it["outcome"] for it in store.apply(DRIVERS, plan=True)} == {"created"}
    assert {it["outcome"] for it in store.apply(DRIVERS)} == {"created"}
    assert {it["outcome"] for it in store.apply(DRIVERS)} == {"unchanged"}
    rows = {"driver_id": [1, 2, 3], "conv_rate": [0.5, None, float("nan")], "trips": [7, 8, 9],
            "event_timestamp": [NOW, NOW, NOW - datetime.timedelta(days=30)]}
    assert store.push("driver_stats", rows) == 3
    yield store
    server.stop()


def test_latest_values_and_what_is_known_of_them(store):
    names = ["driver_stats:trips", "driver_stats:conv_rate"]
    now = store.get_online_features({"driver_id": [1, 2, 3, 4]}, names)
    assert now["driver_stats:trips"] == [7, 8, None, None]
    assert now.status("driver_stats:trips") == ["present", "present", "expired", "missing"]
    assert now.status("driver_stats:conv_rate") == ["present", "null", "expired", "missing"]
    assert now.to_pandas()["driver_id"].tolist() == [1, 2, 3, 4]
    of_service = store.get_online_features({"driver_id": [2]}, service="ranking")
    assert of_service.to_dict() == {"driver_id": [2], "driver_stats:trips": [8]}


@pytest.mark.parametrize("make", [pd.DataFrame, pa.table, dict], ids=["pandas", "arrow", "columns"])
def test_training_sets_keep_every_row_in_order(store, make):
    # What is pushed is known since the push: moments that lie after it see it.
    later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    before = NOW - datetime.timedelta(days=1)
    moments = make({"driver_id": [2, 1, 2, 9], "event_timestamp": [later, later, before, later],
                    "label": ["a", "b", "c", "d"]})
    made = store.get_historical_features(moments, service="ranking")
    table = made.to_arrow()
    assert table["label"].to_pylist() == ["a", "b", "c", "d"]
    assert table["trips"].to_pylist() == [8, 7, None, None]
    assert made.to_pandas().shape[0] == made.rows == 4
    assert store.training_set(made.id).digest == made.digest


def test_pushed_frames_and_refusals(store):
    frame = pd.DataFrame({"driver_id": [11], "trips": [1], "conv_rate": [0.25],
                          "event_timestamp": [pd.Timestamp(NOW)]})
    assert store.push("driver_stats", frame) == 1
    assert store.get_online_features({"driver_id": [11]}, ["driver_stats:conv_rate"])["driver_stats:conv_rate"] == [0.25]
    with pytest.raises(falaj.FalajError) as refused:
        store.push("driver_stats", {"driver_id": ["x"], "trips": [1], "conv_rate": [1.0], "event_timestamp": [NOW]})
    assert refused.value.status == 400 and "driver_id" in str(refused.value)
    with pytest.raises(falaj.FalajError) as absent:
        store.get_online_features({"driver_id": [1]}, ["nothing:at_all"])
    assert absent.value.status == 404
    with pytest.raises(ValueError, match="time zone"):
        store.push("driver_stats", {"driver_id": [1], "trips": [1], "conv_rate": [1.0],
                                    "event_timestamp": [datetime.datetime(2026, 1, 1)]})
