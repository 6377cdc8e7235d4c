"""Measures requests to the wrong broker while leadership moves, on simulated brokers that run the product's code.

Each client writes one record after another to its partition.  If the leader rejects a record, it requests the
metadata again and retries after 10 ms.  The controller first writes a leader to ZooKeeper and then sends commands,
so there is a window in which the leader in the znode does not lead yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from twisted.internet.defer import Deferred, succeed

from kreplica.client.errors import ClientError
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.testing.clients.leader_client import LeaderClient
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.testing.cluster.state import active_replicas, state_of
from kreplica.wire.batch_building import BatchBuilder

TOPIC = "load"
PARTITION_COUNT = 6
RETRY_S = 0.01
INTERVAL_S = 0.01
AFTER_S = 0.5
LEADER = 1
SETTINGS = ("auto.leader.rebalance.enable=false", "zookeeper.session.timeout.ms=6000")


@dataclass(slots=True)
class _Window:
    """Times of one partition, in seconds of virtual time; None before they are known.

    :ivar written_s: time at which the znode has another leader.
    :ivar led_s: time at which that leader accepts writes.
    :ivar rejected_s: time of the last NOT_LEADER_OR_FOLLOWER that the client received.
    :ivar early: True if the leader in the znode rejected a record.
    """

    written_s: float | None = None
    led_s: float | None = None
    rejected_s: float | None = None
    early: bool = False


@dataclass(frozen=True, slots=True)
class RoutingResult:
    """Windows of all partitions of all runs.

    :param moved: number of partitions whose leadership moved.
    :param until_led_ms: from the znode's change until its leader leads: median, longest.
    :param until_last_rejection_ms: from the znode's change until the last rejection that the client received: median,
        longest; only for partitions with a rejection.
    :param rejected: number of partitions with a rejection.
    :param early: number of partitions whose leader in the znode rejected a record.
    """

    event: str
    moved: int
    until_led_ms: tuple[float, float]
    until_last_rejection_ms: tuple[float, float]
    rejected: int
    early: int


def routing_results() -> Iterator[RoutingResult]:
    """Yield the windows of each event."""
    for event, start_event in EVENTS.items():
        windows = _Run().windows_of(start_event)
        moved = [window for window in windows if window.written_s is not None and window.led_s is not None]
        rejected = [window for window in moved if window.rejected_s is not None]
        yield RoutingResult(
            event,
            len(moved),
            _median_and_longest([_ms(window.written_s, window.led_s) for window in moved]),
            _median_and_longest([_ms(window.written_s, window.rejected_s) for window in rejected]),
            len(rejected),
            sum(window.early for window in moved),
        )


def _ms(start_s: float | None, end_s: float | None) -> float:
    assert start_s is not None
    assert end_s is not None
    return 1000 * (end_s - start_s)


def _median_and_longest(values: list[float]) -> tuple[float, float]:
    return (median(values), max(values)) if values else (0.0, 0.0)


class _Run:
    """One cluster with a client for each partition."""

    def __init__(self) -> None:
        self.cluster = SimulatedCluster(1, brokers=3, overrides=SETTINGS)
        self.cluster.start()
        admin = self.cluster.client()
        assignment = [(LEADER, 2, 3), (LEADER, 3, 2)] * (PARTITION_COUNT // 2)
        self.cluster.run_until(admin.create_topic(TOPIC, assignment=assignment))
        self.cluster.run_until(admin.close())
        self.keys = [TopicPartition(TOPIC, number) for number in range(PARTITION_COUNT)]
        self.cluster.wait_in_sync(TOPIC, range(PARTITION_COUNT))
        self.windows = {key: _Window() for key in self.keys}
        self.is_stopped = False
        self._writers = [Deferred.fromCoroutine(self._write(key)) for key in self.keys]
        self.cluster.run(1.0)

    def windows_of(self, start_event: StartEvent) -> list[_Window]:
        """Return the windows of all partitions during an event."""
        simulation = self.cluster.simulation
        for window in self.windows.values():
            window.rejected_s, window.early = None, False
        done = start_event(self.cluster)
        until_s = None
        while until_s is None or simulation.now_s < until_s:
            simulation.step()
            self._observe(simulation.now_s)
            if until_s is None and all(window.led_s is not None for window in self.windows.values()):
                until_s = simulation.now_s + AFTER_S
        self.is_stopped = True
        self.cluster.run_until(done)
        for writer in self._writers:
            self.cluster.run_until(writer)
        return list(self.windows.values())

    def _observe(self, now_s: float) -> None:
        for key, window in self.windows.items():
            if window.led_s is not None:
                continue
            state = state_of(self.cluster, key)
            if state is None or state.leader in (LEADER, -1):
                continue
            if window.written_s is None:
                window.written_s = now_s
            if state.leader in (broker for broker, replica in active_replicas(self.cluster, key) if replica.is_leader):
                window.led_s = now_s

    async def _write(self, key: TopicPartition) -> None:
        client = self.cluster.leader_client(*key, name=f"client-of-{key}")
        builder = BatchBuilder()
        builder.append(0, None, b"x")
        batch = bytes(builder.build())
        while not self.is_stopped:
            try:
                await client.produce(*key, batch, acks=1)
                await pause(client.reactor, INTERVAL_S)
            except (ClientError, KafkaError) as error:
                if isinstance(error, KafkaError) and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    self._rejected(key, client)
                await client.close()
                await pause(client.reactor, RETRY_S)
        await client.close()

    def _rejected(self, key: TopicPartition, client: LeaderClient) -> None:
        window, state = self.windows[key], state_of(self.cluster, key)
        window.rejected_s = self.cluster.simulation.now_s
        window.early = window.early or (state is not None and client.leader_epoch == state.leader_epoch)


StartEvent = Callable[[SimulatedCluster], Deferred[None]]
"""Starts an event; the Deferred fires when the request is complete."""


def _kill_leader(cluster: SimulatedCluster) -> Deferred[None]:
    cluster.brokers[LEADER].kill()
    return succeed(None)


def _shut_down_leader(cluster: SimulatedCluster) -> Deferred[None]:
    return cluster.brokers[LEADER].stop()


def _reassign(cluster: SimulatedCluster) -> Deferred[None]:
    """Move the leadership of all partitions to other brokers, while the old leader keeps running."""
    controller = cluster.controller()
    assert controller is not None
    admin = cluster.client(broker=controller)

    async def move() -> None:
        for number in range(PARTITION_COUNT):
            await admin.reassign(TOPIC, number, (2, 3))
        await admin.close()

    return Deferred.fromCoroutine(move())


EVENTS: dict[str, StartEvent] = {
    "broker dies": _kill_leader,
    "controlled shutdown": _shut_down_leader,
    "reassignment": _reassign,
}
