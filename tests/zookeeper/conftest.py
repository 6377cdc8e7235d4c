"""The servers that the tests of this folder run against."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kreplica.testing.zookeeper import RealZooKeeper
from kreplica.testing.zookeeper_scene import RealServerUnderTest, ServerUnderTest

SERVERS = ["real"]


@pytest.fixture(scope="session")
def real_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServerUnderTest]:
    """One real ZooKeeper for the whole run; syncing to disk would only make it slower."""
    directory: Path = tmp_path_factory.mktemp("zookeeper")
    with RealZooKeeper(directory, sync_to_disk=False) as zookeeper:
        yield RealServerUnderTest(zookeeper)


@pytest.fixture(params=SERVERS)
def zookeeper_server(request: pytest.FixtureRequest) -> ServerUnderTest:
    """Each kind of server in turn: a contract test runs once against each."""
    server: ServerUnderTest = request.getfixturevalue(f"{request.param}_zookeeper")
    return server
