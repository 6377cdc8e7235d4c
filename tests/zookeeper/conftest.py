"""Servers for the tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_peer import Scene as CoordinatorScene

from kreplica.runtime import Runtime, real_runtime
from kreplica.testing.simulator.simulation import DATA_DIRECTORY, Simulation
from kreplica.zookeeper.embedded.disk_store import DiskStore
from kreplica.zookeeper.embedded.server import EmbeddedZooKeeper
from tests.support.real_reactor import run
from tests.support.real_zookeeper import RealZooKeeper
from tests.support.zookeeper_scene import RealServerUnderTest, Scenario, Scene, ServerUnderTest, play

# The same as the real server's in these tests, so that sessions expire equally fast.
TICK_TIME_MS = 200

SERVERS = ["real", "embedded", "simulated"]


@pytest.fixture(scope="session")
def real_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServerUnderTest]:
    """One real ZooKeeper for the whole run; it does not sync to disk, which would only make it slower."""
    directory: Path = tmp_path_factory.mktemp("zookeeper")
    with RealZooKeeper(directory, sync_to_disk=False) as zookeeper:
        yield RealServerUnderTest(zookeeper)


class EmbeddedServerUnderTest:
    """An embedded coordinator per scenario, with its store on the real disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def run(self, scenario: Scenario, timeout_s: float = 30.0) -> None:
        from twisted.internet import reactor

        run(self._serve(real_runtime(reactor), scenario), timeout_s)

    async def _serve(self, runtime: Runtime, scenario: Scenario) -> None:
        coordinator = EmbeddedZooKeeper(runtime, str(self._directory), port=0, tick_time_ms=TICK_TIME_MS)
        await coordinator.start()
        try:
            await play(Scene(runtime.reactor, f"127.0.0.1:{coordinator.port}", "/scene"), scenario)
        finally:
            await coordinator.stop()
            runtime.offload.stop()


class SimulatedServerUnderTest:
    """An embedded coordinator on a simulated host and disk; clients are on another simulated host."""

    def run(self, scenario: Scenario, timeout_s: float = 30.0) -> None:
        simulation = Simulation(seed=1)
        runtime = simulation.host("coordinator").runtime
        store = DiskStore(DATA_DIRECTORY, runtime.disk, runtime.offload)
        coordinator = EmbeddedZooKeeper(runtime, port=2181, interface="", tick_time_ms=TICK_TIME_MS, store=store)
        simulation.run_until(coordinator.start())
        scene = Scene(simulation.host("client").runtime.reactor, "coordinator:2181", "/scene")
        simulation.run_until(play(scene, scenario), timeout_s)
        simulation.run_until(coordinator.stop())
        assert simulation.failures == []


@pytest.fixture
def embedded_zookeeper(tmp_path: Path) -> EmbeddedServerUnderTest:
    """The embedded coordinator on the real reactor, with an SQLite store."""
    return EmbeddedServerUnderTest(tmp_path / "coordinator")


@pytest.fixture
def simulated_zookeeper() -> SimulatedServerUnderTest:
    """The embedded coordinator in a simulation."""
    return SimulatedServerUnderTest()


@pytest.fixture
def scene() -> CoordinatorScene:
    """A coordinator on an empty simulated disk, for protocol-level clients."""
    return CoordinatorScene()


@pytest.fixture(params=SERVERS)
def zookeeper_server(request: pytest.FixtureRequest) -> ServerUnderTest:
    """Each kind of server: a contract test runs once with each."""
    server: ServerUnderTest = request.getfixturevalue(f"{request.param}_zookeeper")
    return server
