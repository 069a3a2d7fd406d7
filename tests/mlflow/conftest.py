"""The real MLflow beside Falaj on each of its databases, each started once for all tests here.

They need an environment that has MLflow: `make test-mlflow`. While looking into one server,
`--target sqlite` leaves the others out.
"""

import os
import uuid

import pytest

from falaj import Falaj
from original import Original

TARGETS = ["original", "sqlite", "postgres"]


def pytest_addoption(parser):
    parser.addoption("--target", action="append", choices=TARGETS, help="run on these only")


def pytest_generate_tests(metafunc):
    if "target" in metafunc.fixturenames:
        metafunc.parametrize("target", metafunc.config.getoption("target") or TARGETS, indirect=True, scope="session")


@pytest.fixture(scope="session")
def original(tmp_path_factory):
    server = Original(tmp_path_factory.mktemp("original")).begin()
    yield server.await_ready()
    server.stop()


@pytest.fixture(scope="session")
def target(request, tmp_path_factory):
    """The server that a test runs on: the original, to show that the test is right, or Falaj."""
    if request.param == "original":
        yield request.getfixturevalue("original")
        return
    if request.param == "postgres" and "FALAJ_TEST_POSTGRES_URL" not in os.environ:
        pytest.skip("FALAJ_TEST_POSTGRES_URL is not set: scripts/with-services sets it")
    server = Falaj(tmp_path_factory.mktemp(request.param), request.param).start()
    yield server
    alive = server.process.poll() is None
    server.stop()
    assert alive, f"the server did not survive the tests:\n{server.tail()}"
    assert "panicked" not in server.log.read_text(errors="replace"), server.tail()


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def falaj(request, tmp_path_factory):
    """Falaj on each of its databases, for the tests of one file."""
    if request.param == "postgres" and "FALAJ_TEST_POSTGRES_URL" not in os.environ:
        pytest.skip("FALAJ_TEST_POSTGRES_URL is not set: scripts/with-services sets it")
    server = Falaj(tmp_path_factory.mktemp(f"falaj-{request.param}"), request.param).start()
    yield server
    server.stop()


@pytest.fixture
def tracking(target, monkeypatch, tmp_path):
    """The client, pointed at the server, in an empty folder and with nothing left over."""
    import mlflow
    monkeypatch.chdir(tmp_path)
    for name, value in {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_DISABLE_TELEMETRY": "true",
                        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true", "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"}.items():
        monkeypatch.setenv(name, value)
    # Finding out what a model needs starts processes that import it, for half a minute; no server is asked.
    monkeypatch.setattr(mlflow.models, "infer_pip_requirements", lambda *_, **__: ["scikit-learn"])
    if target.token:
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", target.token)
    mlflow.set_tracking_uri(target.url)
    mlflow.set_registry_uri(target.url)
    yield mlflow.MlflowClient()
    mlflow.autolog(disable=True, silent=True)
    while mlflow.active_run():
        mlflow.end_run()
    mlflow.tracking.fluent._active_experiment_id = None
    mlflow.tracing.reset()


@pytest.fixture
def experiment(tracking):
    import mlflow
    return mlflow.set_experiment(f"stock-{uuid.uuid4().hex}").experiment_id
