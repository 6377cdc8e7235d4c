"""Controller events with a given round trip time to ZooKeeper, and the number of znodes that each reads or writes."""

from __future__ import annotations

import gc
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from twisted.internet.defer import Deferred

from benchmarks.controller import Measured
from benchmarks.delay_proxy import DelayProxy
from benchmarks.simulated_brokers import SimulatedBrokers
from kreplica.controller.event_types import ShutdownRequested
from kreplica.runtime import real_runtime
from kreplica.service.process.process import COLLECTION_THRESHOLDS
from tests.support.real_reactor import run as run_reactor
from tests.support.real_zookeeper import RealZooKeeper

BROKER_COUNT = 3
TIME_S_MAX = 600.0
STOPPING_BROKER = 3


def event_rows(scratch: Path, round_trip_ms: float, partitions: int, flags: tuple[str, ...]) -> list[dict[str, Any]]:
    """Measure controller failover, a controlled shutdown and a broker's death on a new cluster.

    The round trip is between the controller and ZooKeeper, and between the controller and each broker.
    """
    with (
        TemporaryDirectory(prefix="zookeeper-", dir=scratch) as directory,
        RealZooKeeper(directory, tick_time_ms=2_000, jvm_flags=flags) as zookeeper,
        SimulatedBrokers(BROKER_COUNT) as brokers,
        DelayProxy(round_trip_ms, [zookeeper.servers[0].port, *brokers.ports]) as proxy,
    ):
        try:
            return run_reactor(_measured(proxy.ports, partitions), TIME_S_MAX, check_left_behind=False)
        finally:
            gc.unfreeze()


async def _measured(ports: list[int], partitions: int) -> list[dict[str, Any]]:
    from twisted.internet import reactor

    runtime = real_runtime(reactor)  # type: ignore[arg-type]
    try:
        return await _Events(runtime, "ZooKeeper", f"127.0.0.1:{ports[0]}", ports[1:], partitions, None).rows()
    finally:
        runtime.offload.stop()


class _Events(Measured):
    """The events of the redesign."""

    async def rows(self) -> list[dict[str, Any]]:
        await self._client.start()
        await self._operator.start()
        await self._populate()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECTION_THRESHOLDS)
        self._stalls.start()
        rows = [
            await self._measure("controller failover", self._become_controller, None),
            await self._measure("controlled shutdown", self._shut_down, None),
            await self._measure("broker death", self._kill_broker, None),
        ]
        self._stalls.stop()
        await self._controller.stop()
        await self._close_journal()
        await self._client.close()
        await self._operator.close()
        return rows

    async def _shut_down(self) -> None:
        context = self._controller.context
        assert context is not None
        epoch = context.brokers[STOPPING_BROKER].epoch
        left: Deferred[Any] = self._controller.submit(ShutdownRequested(STOPPING_BROKER, epoch))
        await left
