"""Cost of cluster changes in the controller, from the notification to the last broker's response.

ZooKeeper and the controller are real; the brokers are simulated and respond immediately.  ``written`` is the time from
the notification until all states are in ZooKeeper, and ``applied`` is the time until the last broker has responded.
CPU time is that of the controller's process.  Each round starts a new controller, and values are medians.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

from twisted.internet import task
from twisted.internet.defer import Deferred

from benchmarks.simulated_brokers import SimulatedBrokers
from benchmarks.zookeeper import SCRATCH, ZOOKEEPER_FLAGS
from kreplica.cluster import documents, znodes
from kreplica.controller.dependencies import ControllerConfig, ControllerDependencies
from kreplica.controller.history.step_metrics import Cost
from kreplica.controller.history.step_timeline import Step
from kreplica.controller.journal.files import JournalSettings
from kreplica.controller.journal.journaled_controller import journaled
from kreplica.membership.registration import create_persistent_paths
from kreplica.model import BrokerRegistration, Endpoint, LeaderAndIsr, TopicAssignment, TopicPartition
from kreplica.runtime import Runtime, real_runtime
from kreplica.runtime.pause import pause
from kreplica.service.process.process import COLLECTION_THRESHOLDS
from kreplica.zookeeper import Create, Operation, ZooKeeperClient, write_units
from tests.support.coordinator import CoordinatorProcess
from tests.support.real_zookeeper import RealZooKeeper

BROKER_COUNT = 3
TOPIC_PARTITIONS = 1000
LISTENER = "PLAINTEXT"
TARGETS_S = {10_000: 1.0, 100_000: 5.0}
CREATED_TARGET_S, DELETED_TARGET_S = 2.0, 3.0
POLL_S = 0.005
JOURNAL_BYTES_MAX = 64 * 2**20
TIME_S_MAX = 60.0
ROUND_COUNT = 3
CASES = {
    "quick": (("ZooKeeper", 10_000), ("embedded", 10_000)),
    "full": (("ZooKeeper", 10_000), ("embedded", 10_000), ("ZooKeeper", 100_000)),
}
"""Server and number of partitions."""


def run(scale: str = "quick", rounds: int | None = None) -> list[dict[str, Any]]:
    """Measure fail-overs of the controller and of brokers, and creation and deletion of a topic of 1,000 partitions.

    :param rounds: number of rounds for the medians.
    :return: a row for each event.
    """
    rows: list[dict[str, Any]] = []

    async def measure(reactor: Any) -> None:
        for server, size in CASES[scale]:
            rows.extend(medians([await _life(reactor, server, size) for _ in range(rounds or ROUND_COUNT)]))

    try:
        task.react(lambda reactor: Deferred.fromCoroutine(measure(reactor)))
    except SystemExit as ended:  # raised by react when the coroutine returns
        if ended.code:
            raise
    return rows


async def _life(reactor: Any, server: str, partitions: int) -> list[dict[str, Any]]:
    """Run all measurements on a new controller with its own server and brokers."""
    with (
        SERVERS[server]() as address,
        SimulatedBrokers(BROKER_COUNT) as brokers,
        TemporaryDirectory(prefix="journal-", dir=SCRATCH) as directory,
    ):
        runtime = real_runtime(reactor)
        journal = JournalSettings(directory, 1, JOURNAL_BYTES_MAX)
        rows = await Measured(runtime, server, address, brokers.ports, partitions, journal).rows()
        runtime.offload.stop()
    gc.unfreeze()
    return rows


def medians(lives: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return one row per event, with the median of each value over all rounds, and True if the target is reached."""
    rows = []
    for same in zip(*lives, strict=True):
        row = {name: median(each[name] for each in same) if _is_figure(value) else value
               for name, value in same[0].items()}  # fmt: skip
        applied_ms, target_ms = row["applied, ms"], row["target, ms"]
        rows.append({**row, "target reached": None if target_ms is None else applied_ms < target_ms})
    return rows


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float)


@contextmanager
def _zookeeper() -> Iterator[str]:
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory(prefix="zookeeper-", dir=SCRATCH) as directory,
        RealZooKeeper(directory, tick_time_ms=2_000, jvm_flags=ZOOKEEPER_FLAGS) as zookeeper,
    ):
        yield zookeeper.connect_string


@contextmanager
def _embedded() -> Iterator[str]:
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory(prefix="coordinator-", dir=SCRATCH) as directory,
        CoordinatorProcess(Path(directory, "coordinator")) as coordinator,
    ):
        yield coordinator.address


SERVERS: Mapping[str, Callable[[], AbstractContextManager[str]]] = {"ZooKeeper": _zookeeper, "embedded": _embedded}


@dataclass
class Stalls:
    """Measures the longest time for which the reactor was blocked, by a check every millisecond."""

    reactor: Any
    longest_s: float = 0.0
    _last_s: float = field(default=0.0)
    _next: Any = None

    def start(self) -> None:
        self._last_s = self.reactor.seconds()
        self._next = self.reactor.callLater(0.001, self._look)

    def stop(self) -> None:
        self._next.cancel()

    def _look(self) -> None:
        now_s = self.reactor.seconds()
        self.longest_s = max(self.longest_s, now_s - self._last_s - 0.001)
        self._last_s = now_s
        self._next = self.reactor.callLater(0.001, self._look)

    def take(self) -> float:
        longest_s, self.longest_s = self.longest_s, 0.0
        return longest_s


class Measured:
    """One controller with its brokers."""

    def __init__(
        self,
        runtime: Runtime,
        server: str,
        address: str,
        ports: list[int],
        partitions: int,
        journal: JournalSettings | None,
    ) -> None:
        self._runtime = runtime
        self._server = server
        self._partitions = partitions
        self._ports = ports
        self._client = self._new_client(address)
        self._operator = self._new_client(address)
        config = ControllerConfig(1, LISTENER, lambda topic: False, min_insync_replicas=lambda topic: 2)
        dependencies = ControllerDependencies.real(runtime, self._client, config)
        self._controller, self._close_journal = journaled(dependencies, journal)
        self._stalls = Stalls(runtime.reactor)

    def _new_client(self, address: str) -> ZooKeeperClient:
        return ZooKeeperClient(self._runtime.reactor, address, random=random.Random(1), session_timeout_ms=30_000)

    async def rows(self) -> list[dict[str, Any]]:
        """Run all measurements."""
        await self._client.start()
        await self._operator.start()
        await self._populate()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECTION_THRESHOLDS)  # as in a broker's process
        self._stalls.start()
        target_s = TARGETS_S[self._partitions]
        rows = [await self._measure("controller failover", self._become_controller, target_s)]
        rows.append(await self._measure("a broker dies", self._kill_broker, target_s))
        rows.append(await self._measure("it comes back", self._revive_broker, None))
        rows.append(await self._measure("a topic of 1,000 partitions is created", self._create_topic, CREATED_TARGET_S))
        rows.append(await self._measure("it is deleted", self._delete_topic, DELETED_TARGET_S))
        self._stalls.stop()
        await self._controller.stop()
        await self._close_journal()
        await self._client.close()
        await self._operator.close()
        return rows

    async def _measure(self, case: str, act: Callable[[], Awaitable[None]], target_s: float | None) -> dict[str, Any]:
        before = list(self._controller.timeline)
        self._stalls.take()
        cpu_s = time.process_time()
        await act()
        started_s = self._runtime.reactor.seconds()
        while not await self._settled(len(before)):
            await pause(self._runtime.reactor, POLL_S)
            if self._runtime.reactor.seconds() > started_s + TIME_S_MAX:
                raise RuntimeError(f"{case}: not done after {TIME_S_MAX} s")
        steps = [step for step in self._controller.timeline if step not in before and step.commands + sum(step.cost)]
        return self._row(case, steps, target_s) | {"CPU, ms": round((time.process_time() - cpu_s) * 1000)}

    async def _settled(self, before: int) -> bool:
        """Return True if an event was handled and the controller has been idle for a moment."""
        timeline = self._controller.timeline

        def quiet() -> bool:
            return len(list(timeline)) > before and timeline.settled and self._controller.queue.idle

        if not quiet():
            return False
        await pause(self._runtime.reactor, 0.1)
        return quiet()

    def _row(self, case: str, steps: list[Step], target_s: float | None) -> dict[str, Any]:
        cost = Cost(*map(sum, zip(*(step.cost for step in steps), strict=True)))
        first_s = min(step.noticed_s for step in steps)
        written_s = max((step.written_s for step in steps if step.written_s is not None), default=first_s)
        taken_s = max(step.settled_s or 0.0 for step in steps) - first_s
        return {
            "coordination": self._server,
            "partitions": self._partitions,
            "event": case,
            "written, ms": round((written_s - first_s) * 1000),
            "applied, ms": round(taken_s * 1000),
            "target, ms": None if target_s is None else round(target_s * 1000),
            "longest stall, ms": round(self._stalls.take() * 1000),
            "round trips": cost.zookeeper_round_trips,
            "znodes": cost.zookeeper_operations,
            "KB with ZooKeeper": cost.zookeeper_bytes // 1000,
            "commands": cost.commands,
            "KB of commands": sum(step.command_bytes for step in steps) // 1000,
        }

    # --- events ---

    async def _become_controller(self) -> None:
        self._controller.start()

    async def _kill_broker(self) -> None:
        await self._operator.delete(znodes.broker_path(2))

    async def _revive_broker(self) -> None:
        await self._register(2)

    async def _create_topic(self) -> None:
        await self._operator.create(znodes.topic_path("new"), documents.encode_topic(_assignment("new", 7)))

    async def _delete_topic(self) -> None:
        await self._operator.create(znodes.delete_topic_path("new"), b"")

    # --- the cluster ---

    async def _register(self, broker_id: int) -> None:
        endpoint = Endpoint(LISTENER, "127.0.0.1", self._ports[broker_id - 1])
        data = documents.encode_broker(BrokerRegistration(broker_id, (endpoint,)))
        await self._operator.create(znodes.broker_path(broker_id), data, ephemeral=True)

    async def _populate(self) -> None:
        await create_persistent_paths(self._operator)
        for broker_id in range(1, BROKER_COUNT + 1):
            # Before the states are written: a broker that registers later may have lost records.
            await self._register(broker_id)
        names = [f"topic-{number}" for number in range(self._partitions // TOPIC_PARTITIONS)]
        units: list[list[Operation]] = []
        for number, name in enumerate(names, 1):
            assignment = _assignment(name, number)
            parents = [
                Create(znodes.topic_path(name), documents.encode_topic(assignment)),
                Create(znodes.partitions_path(name), b""),
            ]
            for outcome in await write_units(self._operator, [parents]):
                if isinstance(outcome, Exception):
                    raise outcome
            units += [_partition(name, index, replicas) for index, replicas in assignment.partitions.items()]
        for outcome in await write_units(self._operator, units):
            if isinstance(outcome, Exception):
                raise outcome


def _assignment(name: str, number: int) -> TopicAssignment:
    """Return an assignment with leaders round robin and a replica of every partition on every broker."""
    ids = tuple(range(1, BROKER_COUNT + 1))
    rows = {index: ids[index % 3 :] + ids[: index % 3] for index in range(TOPIC_PARTITIONS)}
    return TopicAssignment(name, UUID(int=number), rows)


def _partition(name: str, index: int, replicas: tuple[int, ...]) -> list[Operation]:
    partition = TopicPartition(name, index)
    state = LeaderAndIsr(replicas[0], 0, replicas, 0)
    return [
        Create(znodes.partition_path(*partition), b""),
        Create(znodes.partition_state_path(*partition), documents.encode_partition_state(state)),
    ]
