"""Fills an MLflow database with runs, straight by SQL: through the server it would take hours.

    python load.py DATABASE-URI EXPERIMENT-ID runs COUNT
    python load.py DATABASE-URI EXPERIMENT-ID points COUNT RUN-ID

What lies in each run is what `src/tracking/population.rs` gives to Falaj: the same names and values.
"""

import sys
import uuid

import sqlalchemy
from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlMetric, SqlParam, SqlRun, SqlTag

ROWS_AT_ONCE = 5000


def run(experiment, index):
    """The rows of one run, by table."""
    id = uuid.uuid4().hex
    start = 1_700_000_000_000 + index * 1000
    metrics = [{"key": key, "value": value, "timestamp": start, "step": 0, "is_nan": False, "run_uuid": id}
               for key, value in (("acc", index * 7919 % 10000 / 10000), ("loss", index * 104729 % 10000 / 1000), ("f1", index * 31 % 1000 / 1000))]
    params = {"lr": ["0.1", "0.01", "0.001", "0.0001"][index % 4], "depth": str(index % 10), "optimizer": ["adam", "sgd"][index % 2]}
    return {
        SqlRun: [{"run_uuid": id, "name": f"run-{index}", "source_type": "UNKNOWN", "source_name": "", "entry_point_name": "", "user_id": "bench",
                  "status": "FINISHED", "start_time": start, "end_time": start + 500, "source_version": "", "lifecycle_stage": "active",
                  "artifact_uri": f"mlflow-artifacts:/{experiment}/{id}/artifacts", "experiment_id": experiment}],
        SqlMetric: metrics, SqlLatestMetric: metrics,
        SqlParam: [{"key": key, "value": value, "run_uuid": id} for key, value in params.items()],
        SqlTag: [{"key": "mlflow.runName", "value": f"run-{index}", "run_uuid": id}, {"key": "team", "value": f"team-{index % 5}", "run_uuid": id}],
    }


def insert(connection, rows):
    for table, values in rows.items():
        if values:
            connection.execute(sqlalchemy.insert(table.__table__), values)


def load_runs(connection, experiment, count):
    waiting = {table: [] for table in (SqlRun, SqlMetric, SqlLatestMetric, SqlParam, SqlTag)}
    for index in range(count):
        for table, values in run(experiment, index).items():
            waiting[table] += values
        if len(waiting[SqlRun]) == ROWS_AT_ONCE:
            insert(connection, waiting)
            waiting = {table: [] for table in waiting}
    insert(connection, waiting)


def load_points(connection, count, id):
    for first in range(0, count, ROWS_AT_ONCE):
        insert(connection, {SqlMetric: [
            {"key": "long", "value": step * 7919 % 10007 / 10007, "timestamp": 1_700_000_000_000 + step, "step": step, "is_nan": False, "run_uuid": id}
            for step in range(first, min(first + ROWS_AT_ONCE, count))]})


def main(uri, experiment, what, count, id=None):
    engine = sqlalchemy.create_engine(uri)
    with engine.begin() as connection:
        if what == "runs":
            load_runs(connection, int(experiment), int(count))
        else:
            load_points(connection, int(count), id)
    # Statistics as a database that has been in use would have them.
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sqlalchemy.text("ANALYZE"))


if __name__ == "__main__":
    main(*sys.argv[1:])
