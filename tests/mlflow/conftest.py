"""The real MLflow beside Falaj on each of its databases, each started once for all tests here.

They need an environment that has MLflow: `make test-mlflow`. While looking into one server,
`--target sqlite` leaves the others out.
"""

import os

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
