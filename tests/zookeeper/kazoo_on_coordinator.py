"""A pytest plugin that runs kazoo's own test suite on embedded coordinators instead of ZooKeeper.

kazoo itself is not modified: the plugin only replaces the function from which kazoo's harness gets its cluster. Each
process of the run starts its own coordinator process. ``DOES_NOT_APPLY`` lists the skipped tests with reasons; an entry
that matches no test ends the run with an error.
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

# kazoo's harness imports jks to create key stores for a Java server; the coordinator does not need them.
sys.modules.setdefault("jks", types.ModuleType("jks"))
# One test counts live objects with objgraph; other packages have classes with the same names.
_objgraph = types.ModuleType("objgraph")
_objgraph.count = lambda name: sum(  # type: ignore[attr-defined]
    type(each).__name__ == name and type(each).__module__.startswith("kazoo.") for each in gc.get_objects()
)
sys.modules.setdefault("objgraph", _objgraph)
os.environ.setdefault("ZOOKEEPER_VERSION", "3.9.0")

from kazoo.testing import harness  # noqa: E402  it needs the two lines above

DOES_NOT_APPLY = {
    "test_slow_connect": "counts clock calls, including those of other threads, and does not depend on the server",
    "test_gevent_handler.py": "tests kazoo's gevent handler, another client-side implementation of the same requests",
    "test_eventlet_handler.py": "tests kazoo's eventlet handler, likewise",
    "Gevent": "needs gevent",
    "Eventlet": "needs eventlet",
    "eventlet": "needs eventlet",
    "test_sasl.py": "configures the JAAS file of kazoo's own servers",
    "test_build.py": "compares the server's version with that of kazoo's build machine",
    "test_client.py::TestSSLClient": "configures the key stores of kazoo's own servers",
    "test_client.py::TestReconfig": "reconfigures an ensemble, but the coordinator is a single server",
    "test_client.py::TestClient::test_update_host_list": "stops one server of three",
    "test_connection.py::TestReadOnlyMode": "stops two servers of three; the third becomes read-only",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skipped = [item for item in items if any(mark in item.nodeid for mark in DOES_NOT_APPLY)]
    if unused := [mark for mark in DOES_NOT_APPLY if not any(mark in item.nodeid for item in skipped)]:
        raise pytest.UsageError(f"no test of kazoo matches {', '.join(unused)}")
    config.hook.pytest_deselected(items=skipped)
    items[:] = [item for item in items if item not in skipped]


class CoordinatorServer(CoordinatorProcess):
    """A cluster member with the methods that kazoo's tests call."""

    def run(self) -> None:
        self.start()

    def destroy(self) -> None:
        self.kill()


class CoordinatorCluster:
    """A cluster of one server that keeps running when kazoo stops its cluster after each test class."""

    def __init__(self, directory: Path) -> None:
        # With the default tick time, each session that ends only by a timeout would cost the suite at least 4 s.
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
