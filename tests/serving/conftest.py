"""The stock clients of Triton and KServe, unmodified, against a real server: `make test-serving`.

`--target edge` or `--target platform` leaves the other out.
"""

import pytest

from servers import TARGETS


def pytest_addoption(parser):
    parser.addoption("--target", action="append", choices=list(TARGETS), help="run on these only")


def pytest_generate_tests(metafunc):
    if "target" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("target") or list(TARGETS)
        metafunc.parametrize("target", wanted, indirect=True, scope="session")


@pytest.fixture(scope="session")
def target(request, tmp_path_factory):
    target = TARGETS[request.param](tmp_path_factory.mktemp(request.param)).start()
    yield target
    alive = target.server.process.poll() is None
    target.stop()
    assert alive, f"the server did not survive the tests:\n{target.server.tail()}"
    assert "panicked" not in target.server.log.read_text(errors="replace"), target.server.tail()
