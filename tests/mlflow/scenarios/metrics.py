"""Metrics: which numbers are taken, what "latest" means, and every way to read a history."""

from recorder import scenario

BULK = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"
INTERVAL = "/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval"


def log(s, run, key, value, timestamp=1, step=0, label=""):
    return s.post("runs/log-metric", {"run_id": run, "key": key, "value": value, "timestamp": timestamp, "step": step}, label)


@scenario
def numbers(s):
    run = s.start(s.experiment())
    for label, value in {"integer": 1, "negative": -2.5, "tiny": 5e-324, "huge": 1.7976931348623157e308, "zero": 0, "minus zero": -0.0,
                         "precise": 0.1 + 0.2, "NaN": "NaN", "Infinity": "Infinity", "-Infinity": "-Infinity", "text": "1.5",
                         "exponent": "1e3", "true": True, "false": False}.items():
        log(s, run, f"m {label}", value, label=label)
    scratch = s.start(s.experiment("scratch"))
    for label, value in {"word": "abc", "null": None, "list": [1], "object": {}, "nan": "nan", "inf": "inf"}.items():
        log(s, scratch, "m", value, label=label)
    s.get("runs/get", {"run_id": run})
    for key in ("m NaN", "m Infinity", "m -Infinity", "m precise", "m tiny"):
        s.get("metrics/get-history", {"run_id": run, "metric_key": key}, key)


@scenario
def fields(s):
    run = s.start(s.experiment())
    put = "runs/log-metric"
    s.post(put, {"run_id": run, "key": "text times", "value": 1, "timestamp": "123", "step": "7"}, "numbers as text")
    s.post(put, {"run_id": run, "key": "no step", "value": 1, "timestamp": 5}, "no step")
    s.post(put, {"run_uuid": run, "key": "old", "value": 1, "timestamp": 5}, "by the run's old name")
    s.post(put, {"run_id": run, "key": "negative", "value": 1, "timestamp": 1, "step": -5}, "negative step")
    s.post(put, {"run_id": run, "key": "largest", "value": 1, "timestamp": 1, "step": 2 ** 63 - 1}, "largest step")
    s.post(put, {"run_id": run, "key": "whole", "value": 1, "timestamp": 5.0, "step": 2.0}, "whole fractions")
    scratch = s.start(s.experiment("scratch"))
    for label, body in {
        "no key": {"value": 1, "timestamp": 1}, "no value": {"key": "k", "timestamp": 1}, "no time": {"key": "k", "value": 1},
        "empty key": {"key": "", "value": 1, "timestamp": 1}, "null key": {"key": None, "value": 1, "timestamp": 1},
        "number as key": {"key": 1, "value": 1, "timestamp": 1}, "long key": {"key": "k" * 251, "value": 1, "timestamp": 1},
        "bad key": {"key": "a//b", "value": 1, "timestamp": 1}, "climbing key": {"key": "../a", "value": 1, "timestamp": 1},
        "word as time": {"key": "k", "value": 1, "timestamp": "soon"}, "word as step": {"key": "k", "value": 1, "timestamp": 1, "step": "x"},
        "negative time": {"key": "k", "value": 1, "timestamp": -1}, "fraction as time": {"key": "f", "value": 1, "timestamp": 5.7},
        "fraction as step": {"key": "g", "value": 1, "timestamp": 1, "step": 1.5}, "huge step": {"key": "h", "value": 1, "timestamp": 1, "step": 2 ** 63},
    }.items():
        s.post(put, {"run_id": scratch} | body, label)
    s.post(put, {"key": "k", "value": 1, "timestamp": 1}, "no run")
    s.get("runs/get", {"run_id": run})


@scenario
def latest(s):
    """Latest is the largest by (step, timestamp, value), whatever came last."""
    run = s.start(s.experiment())
    for key, points in {"by step": [(1, 10, 5), (2, 5, 6), (3, 1, 4)], "by time": [(1, 10, 0), (2, 20, 0), (3, 15, 0)],
                        "by value": [(5, 1, 0), (9, 1, 0), (7, 1, 0)], "nan": [(1, 1, 0), ("NaN", 1, 0), (2, 1, 0)],
                        "nan later": [("NaN", 2, 1), (1, 1, 0)], "negative steps": [(1, 1, -3), (2, 1, -9)]}.items():
        for value, timestamp, step in points:
            log(s, run, key, value, timestamp, step, key)
    s.get("runs/get", {"run_id": run})


@scenario
def duplicates(s):
    """The same point twice is one point; another value at the same step is another point."""
    run = s.start(s.experiment())
    for value, timestamp, step in [(1, 1, 1), (1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), ("NaN", 1, 1), ("NaN", 1, 1)]:
        log(s, run, "m", value, timestamp, step)
    point = {"key": "m", "value": 1, "timestamp": 1, "step": 1}
    s.post("runs/log-batch", {"run_id": run, "metrics": [point, point, point | {"value": 3}]})
    s.get("metrics/get-history", {"run_id": run, "metric_key": "m"})
    s.get("runs/get", {"run_id": run})


def series(s, run, key, count, stride=1):
    """Points whose time order is not their step order, with some steps hit twice."""
    points = [{"key": key, "value": (n * 7 % 11) - 5, "timestamp": 1000 + (n * 3 % count), "step": n * stride} for n in range(count)]
    points += [{"key": key, "value": 100 + n, "timestamp": 1000, "step": n * 10 * stride} for n in range(3)]
    s.post("runs/log-batch", {"run_id": run, "metrics": points}, f"{key} {count}")


@scenario
def history(s):
    run = s.start(s.experiment())
    series(s, run, "m", 50)
    get = "metrics/get-history"
    s.get(get, {"run_id": run, "metric_key": "m"})
    s.get(get, {"run_uuid": run, "metric_key": "m"}, "by the run's old name")
    s.get(get, {"run_id": run, "metric_key": "nothing"}, "unknown key")
    first = s.get(get, {"run_id": run, "metric_key": "m", "max_results": 20}, "first page")
    second = s.get(get, {"run_id": run, "metric_key": "m", "max_results": 20, "page_token": first["next_page_token"]}, "second page")
    s.get(get, {"run_id": run, "metric_key": "m", "max_results": 20, "page_token": second["next_page_token"]}, "third page")
    s.get(get, {"run_id": run, "metric_key": "m", "max_results": 53}, "exactly all")
    for label, params in {"no key": {"run_id": run}, "no run": {"metric_key": "m"}, "zero": {"run_id": run, "metric_key": "m", "max_results": 0},
                          "negative": {"run_id": run, "metric_key": "m", "max_results": -1}, "word": {"run_id": run, "metric_key": "m", "max_results": "x"},
                          "bad token": {"run_id": run, "metric_key": "m", "max_results": 5, "page_token": "!!"},
                          "unknown run": {"run_id": "f" * 32, "metric_key": "m"}}.items():
        s.get(get, params, label)


@scenario
def bulk(s):
    experiment = s.experiment()
    first, second = (s.start(experiment, run_name=name) for name in "ab")
    series(s, first, "m", 30)
    series(s, second, "m", 20)
    series(s, second, "n", 5)
    # The order of runs is by id, which differs from server to server: one run at a time, or limits.
    s.get(BULK, {"run_id": first, "metric_key": "m"})
    s.get(BULK, {"run_id": second, "metric_key": "n"}, "another key")
    s.get(BULK, {"run_id": first, "metric_key": "m", "max_results": 7}, "limited")
    for label, params in {"no run": {"metric_key": "m"}, "no key": {"run_id": first}, "too many runs": {"run_id": [f"{n:032x}" for n in range(101)], "metric_key": "m"},
                          "zero": {"run_id": first, "metric_key": "m", "max_results": 0},
                          "unknown run": {"run_id": "f" * 32, "metric_key": "m"}, "unknown key": {"run_id": first, "metric_key": "zzz"}}.items():
        s.get(BULK, params, label)


@scenario
def interval(s):
    experiment = s.experiment()
    run, other = s.start(experiment), s.start(experiment)
    series(s, run, "m", 300, stride=2)
    series(s, other, "few", 8)
    for label, params in {
        "all": {"max_results": 2500}, "10": {"max_results": 10}, "7": {"max_results": 7}, "1": {"max_results": 1}, "2": {"max_results": 2}, "299": {"max_results": 299},
        "default": {}, "range": {"start_step": 100, "end_step": 200, "max_results": 20}, "one step": {"start_step": 10, "end_step": 10},
        "empty range": {"start_step": 10000, "end_step": 20000}, "zero": {"max_results": 0}, "too many": {"max_results": 2501},
        "only start": {"start_step": 5}, "only end": {"end_step": 5}, "backwards": {"start_step": 9, "end_step": 5}, "word": {"max_results": "x"},
        "negative": {"start_step": -100, "end_step": 3},
    }.items():
        s.get(INTERVAL, {"run_ids": run, "metric_key": "m"} | params, label)
    s.get(INTERVAL, {"run_ids": other, "metric_key": "few", "max_results": 5}, "fewer than asked")
    for label, params in {"no run": {"metric_key": "m"}, "no key": {"run_ids": run}, "unknown key": {"run_ids": run, "metric_key": "zzz"},
                          "too many runs": {"run_ids": [f"{n:032x}" for n in range(101)], "metric_key": "m"},
                          "unknown run": {"run_ids": "f" * 32, "metric_key": "m"}}.items():
        s.get(INTERVAL, params, label)
