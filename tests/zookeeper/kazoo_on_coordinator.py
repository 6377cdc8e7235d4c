"""A pytest plugin that runs kazoo's own test suite on embedded coordinators instead of ZooKeeper.

kazoo is not changed: its harness gets a cluster from one function, and that function is replaced. Each process of the
run has a coordinator in a process of its own. ``DOES_NOT_APPLY`` lists the skipped tests with reasons; an entry that
matches no test ends the run.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.coordinator import CoordinatorProcess

# kazoo's harness creates key stores for a Java server when it is imported; the coordinator does not need them.
sys.modules.setdefault("jks", types.ModuleType("jks"))
# A single test counts live objects with a package that is otherwise unused; others have classes of that name.
_objgraph = types.ModuleType("objgraph")
_objgraph.count = lambda name: sum(  # type: ignore[attr-defined]
    type(each).__name__ == name and type(each).__module__.startswith("kazoo.") for each in gc.get_objects()
)
sys.modules.setdefault("objgraph", _objgraph)
os.environ.setdefault("ZOOKEEPER_VERSION", "3.9.0")

from kazoo.testing import harness  # noqa: E402  it needs the two lines above

DOES_NOT_APPLY = {
    "test_slow_connect": "counts calls of the clock, also those of other threads, and asks nothing of a server",
    "test_gevent_handler.py": "kazoo's handler for gevent, which is another client side of the same requests",
    "test_eventlet_handler.py": "kazoo's handler for eventlet, likewise",
    "Gevent": "gevent again",
    "Eventlet": "eventlet again",
    "eventlet": "eventlet again",
    "test_sasl.py": "configures the JAAS file of kazoo's own servers",
    "test_build.py": "compares the server's version with that of kazoo's build machine",
    "test_client.py::TestSSLClient": "configures the key stores of kazoo's own servers",
    "test_client.py::TestReconfig": "reconfigures an ensemble: the coordinator is one server",
    "test_client.py::TestClient::test_update_host_list": "stops one server of three",
    "test_connection.py::TestReadOnlyMode": "stops two servers of three; the third becomes read-only",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if any(mark in item.nodeid for mark in DOES_NOT_APPLY)]
    if unused := [mark for mark in DOES_NOT_APPLY if not any(mark in item.nodeid for item in left_out)]:
        raise pytest.UsageError(f"no test of kazoo is called {', '.join(unused)}")
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


class CoordinatorServer(CoordinatorProcess):
    """A member of a cluster, with the names that kazoo's tests call."""

    def run(self) -> None:
        self.start()

    def destroy(self) -> None:
        self.kill()


class CoordinatorCluster:
    """A cluster with one member, which lives until the run ends: kazoo stops its cluster after every test class."""

    def __init__(self, directory: Path) -> None:
        # A session that only a timeout can end would otherwise cost the suite at least 4 s each time.
        self.server = CoordinatorServer(directory, tick_time_ms=1000)

    def __iter__(self) -> Iterator[CoordinatorServer]:
        return iter([self.server])

    def __getitem__(self, index: int) -> CoordinatorServer:
        return [self.server][index]

    def start(self) -> None:
        self.server.start()

    def terminate(self) -> None:
        """Do nothing: the coordinator stops at the end of the run."""

    def get_logs(self) -> list[str]:
        return self.server.last_output().splitlines(keepends=True)


@pytest.fixture(scope="session", autouse=True)
def _cluster() -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="kazoo-") as directory:
        cluster = CoordinatorCluster(Path(directory))
        harness.get_global_cluster = lambda: cluster
        yield
        cluster.server.kill()
