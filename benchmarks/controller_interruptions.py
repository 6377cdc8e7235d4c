"""Failover of a broker while the controller is interrupted or busy with other work, with 100,000 partitions.

ZooKeeper and the controller are real; the brokers are simulated and respond at once.  Times are measured from the
deletion of the broker's registration until all its partitions have new leaders in ZooKeeper, and until all work is
done.  Each case runs with the mechanism that speeds it up and without it, as in earlier versions:

* ``lost connection``: the controller loses its connection while it writes the new states.  Without the mechanism, its
  term ends, and the next term reads the state of the whole cluster.
* ``deletion``: the broker dies while 100 topics of 1,000 partitions are being deleted; the partitions of other topics
  need new leaders.  Without the mechanism, events are handled in the order of their arrival.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from twisted.internet import task
from twisted.internet.defer import Deferred

from benchmarks.controller import BROKER_COUNT, SERVERS, TOPIC_PARTITIONS, Measured
from benchmarks.simulated_brokers import SimulatedBrokers
from kreplica.cluster import znodes
from kreplica.controller.effects import resumption
from kreplica.controller.event_types import BrokersChanged
from kreplica.controller.term import ControllerTerm
from kreplica.model import NO_LEADER, TopicPartition
from kreplica.runtime import real_runtime
from kreplica.runtime.pause import pause
from kreplica.zookeeper import Create, write_units

DELETED_TOPICS = {"quick": 10, "full": 100}
KEPT_TOPICS = 10
"""Topics that are not deleted, in both cases."""

REMAINING_FRACTION = 0.9
"""The broker dies when less than this fraction of the topics to delete is left."""

POLL_S = 0.01

DEAD = 2
TIME_S_MAX = 120.0


def run(scale: str = "quick", rounds: int | None = None) -> list[dict[str, Any]]:
    """Measure the failover in both cases, with and without the mechanism.

    :param rounds: number of runs of each case.
    :return: a row for each run.
    """
    rows: list[dict[str, Any]] = []

    async def measure(reactor: Any) -> None:
        for _ in range(rounds or 1):
            rows.append(await _run_case(reactor, "undisturbed", scale, nullcontext()) | {"mechanism": None})
            for case, without_mechanism in CASES.items():
                rows.append(await _run_case(reactor, case, scale, without_mechanism()) | {"mechanism": False})
                rows.append(await _run_case(reactor, case, scale, nullcontext()) | {"mechanism": True})

    try:
        task.react(lambda reactor: Deferred.fromCoroutine(measure(reactor)))
    except SystemExit as ended:  # raised by react when the coroutine returns
        if ended.code:
            raise
    return rows


@contextmanager
def _no_resumption() -> Iterator[None]:
    before = resumption._is_lost
    resumption._is_lost = lambda failure: False
    yield
    resumption._is_lost = before


@contextmanager
def _no_urgency() -> Iterator[None]:
    before = ControllerTerm.must_stop_early
    ControllerTerm.must_stop_early = property(lambda term: False)  # type: ignore[assignment]
    BrokersChanged.urgent = False
    yield
    ControllerTerm.must_stop_early = before  # type: ignore[method-assign]
    BrokersChanged.urgent = True


CASES = {"lost connection": _no_resumption, "deletion": _no_urgency}
"""For each case, a context manager that disables the mechanism."""


async def _run_case(reactor: Any, case: str, scale: str, variant: AbstractContextManager[None]) -> dict[str, Any]:
    topics = DELETED_TOPICS[scale] + KEPT_TOPICS
    with SERVERS["ZooKeeper"]() as address, SimulatedBrokers(BROKER_COUNT) as brokers, variant:
        runtime = real_runtime(reactor)
        interrupted = Interrupted(runtime, "ZooKeeper", address, brokers.ports, topics * TOPIC_PARTITIONS, None)
        figures = await interrupted.failover(case)
        runtime.offload.stop()
    gc.unfreeze()
    return {"case": case, "partitions": topics * TOPIC_PARTITIONS, **figures}


class Interrupted(Measured):
    """One controller with its brokers, on which one failover is measured."""

    async def failover(self, case: str) -> dict[str, Any]:
        """Start the controller, let a broker die while the controller is interrupted, and measure the failover."""
        await self._client.start()
        await self._operator.start()
        await self._populate()
        gc.collect()
        gc.freeze()
        self._stalls.start()
        await self._measure("controller failover", self._become_controller, None)
        self._stalls.take()
        cost_before = self._controller.counters.cost
        started_s = await self._interrupt(case)
        await self._until(self._has_leaders, started_s)
        led_s = self._seconds() - started_s
        if case == "deletion":
            await self._revive_broker()  # topics with replicas on this broker can be deleted only now
        await self._until(lambda: self._is_done(case), started_s)
        cost = self._controller.counters.cost
        figures = {
            "leaders, ms": round(led_s * 1000),
            "all work, ms": round((self._seconds() - started_s) * 1000),
            "znodes": cost.zookeeper_operations - cost_before.zookeeper_operations,
            "KB with ZooKeeper": (cost.zookeeper_bytes - cost_before.zookeeper_bytes) // 1000,
            "commands": cost.commands - cost_before.commands,
            "longest stall, ms": round(self._stalls.take() * 1000),
        }
        self._stalls.stop()
        await self._controller.stop()
        await self._client.close()
        await self._operator.close()
        return figures

    async def _interrupt(self, case: str) -> float:
        """Let a broker die under the conditions of this case; return the time of its death in seconds."""
        if case == "deletion":
            names = [f"topic-{number}" for number in range(KEPT_TOPICS, self._partitions // TOPIC_PARTITIONS)]
            await write_units(self._operator, [[Create(znodes.delete_topic_path(name), b"")] for name in names])
            few_left = KEPT_TOPICS + len(names) * REMAINING_FRACTION
            await self._until(lambda: len(self._topics()) < few_left, self._seconds())
        operations = self._controller.counters.operations
        await self._kill_broker()
        started_s = self._seconds()
        if case == "lost connection":
            await self._until(lambda: self._controller.counters.operations > operations + TOPIC_PARTITIONS, started_s)
            connection = self._client._session._connection
            assert connection is not None
            connection.abort("the benchmark breaks it")
        return started_s

    def _seconds(self) -> float:
        return float(self._runtime.reactor.seconds())

    async def _until(self, condition: Callable[[], bool], started_s: float) -> None:
        while not condition():
            await pause(self._runtime.reactor, POLL_S)
            if self._seconds() > started_s + TIME_S_MAX:
                raise RuntimeError(f"not done after {TIME_S_MAX} s")

    def _topics(self) -> Collection[str]:
        context = self._controller.context
        return () if context is None else context.topics

    def _has_leaders(self) -> bool:
        """Return True if live brokers lead all partitions that the dead broker led and that are not deleted."""
        context = self._controller.context
        if context is None or DEAD in context.brokers:
            return False
        led = range(DEAD - 1, TOPIC_PARTITIONS, BROKER_COUNT)
        kept = (context.leadership.get(TopicPartition(f"topic-{n}", p)) for n in range(KEPT_TOPICS) for p in led)
        return all(state is not None and state.leader not in (DEAD, NO_LEADER) for state in kept)

    def _is_done(self, case: str) -> bool:
        is_deleted = case != "deletion" or len(self._topics()) == KEPT_TOPICS
        return is_deleted and self._controller.timeline.settled and self._controller.queue.idle
