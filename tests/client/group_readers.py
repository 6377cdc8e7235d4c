"""Members of a group on a simulated cluster, and the partitions that each owns according to its listener."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twisted.internet.defer import Deferred

from kreplica.client.client_runtime import runtime_of
from kreplica.client.cluster import Cluster
from kreplica.client.group import GroupOptions, Membership, new_membership
from kreplica.client_core.options import ClientOptions
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.testing.cluster.cluster import SimulatedCluster

Partitions = frozenset[TopicPartition]

ALL = list(range(6))

KINDS: dict[str, dict[str, object]] = {
    "eager": {"protocol": "classic", "assignors": ("range",)},
    "sticky": {"protocol": "classic", "assignors": ("sticky",)},
    "cooperative": {"protocol": "classic", "assignors": ("cooperative-sticky",)},
    "consumer": {"protocol": "consumer"},
}

OVERRIDES = (
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.min.session.timeout.ms=6000",
    "group.consumer.session.timeout.ms=9000",
    "group.consumer.min.heartbeat.interval.ms=500",
    "group.consumer.heartbeat.interval.ms=1000",
)

FAST = {"session_timeout_s": 9.0, "heartbeat_interval_s": 1.0, "rebalance_timeout_s": 30.0}


class Owners:
    """Owners of partitions, according to all readers of one group.

    :ivar contradictions: partitions that had two owners.
    """

    def __init__(self) -> None:
        self.contradictions: list[str] = []
        self._owners: dict[TopicPartition, str] = {}

    def take(self, name: str, partitions: Partitions) -> None:
        for partition in sorted(partitions):
            other = self._owners.setdefault(partition, name)
            if other != name:
                self.contradictions.append(f"{name} was given {partition}, which {other} owns")

    def take_again(self, name: str, partitions: Partitions) -> None:
        """A suspended process continues: it still owns the partitions that no other reader has taken."""
        for partition in sorted(partitions):
            self._owners.setdefault(partition, name)

    def give(self, name: str, partitions: Partitions) -> None:
        for partition in sorted(partitions):
            if self._owners.get(partition) == name:
                del self._owners[partition]


class Reader:
    """A process with one membership, which is also its listener.

    :ivar has: partitions according to the listener's calls.
    :ivar calls: all calls of the listener: (method, partitions).
    :ivar before_giving: awaited in ``on_revoked`` if it is set; ``before_taking`` in ``on_assigned``.
    """

    def __init__(
        self,
        brokers: SimulatedCluster,
        name: str,
        topics: Iterable[str] = ("t",),
        *,
        owners: Owners | None = None,
        **options: object,
    ) -> None:
        self.brokers, self.name = brokers, name
        self.host = brokers.host(name)
        self.owners = owners or Owners()
        self.has: Partitions = frozenset()
        self.calls: list[tuple[str, list[int]]] = []
        self.ended: Exception | None = None
        self.before_giving: Callable[[Partitions], Deferred[None]] | None = None
        self.before_taking: Callable[[Partitions], Deferred[None]] | None = None
        runtime = runtime_of(self.host.runtime)
        self.cluster = Cluster(
            brokers.bootstrap_servers, options=ClientOptions(client_id=name), runtime=runtime
        )
        settings = GroupOptions(**{"group_id": "g", **FAST, **options})  # type: ignore[arg-type]
        self.membership: Membership = new_membership(self.cluster, settings, topics, self)

    @property
    def numbers(self) -> list[int]:
        return sorted(each.partition for each in self.has)

    def start(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.membership.start())

    def stop(self) -> None:
        self.brokers.run_until(self._stop())

    def die(self) -> None:
        """Kill the process."""
        self.owners.give(self.name, self.has)
        self.has = frozenset()
        self.host.kill()

    async def _stop(self) -> None:
        await self.membership.stop()
        await self.cluster.close()

    # --- as a listener ---

    async def on_revoked(self, partitions: Partitions) -> None:
        self._note("revoked", partitions)
        if self.before_giving is not None:
            await self.before_giving(partitions)
        self._lost(partitions)

    async def on_assigned(self, partitions: Partitions) -> None:
        self._note("assigned", partitions)
        assert not self.has & partitions
        self.has |= partitions
        self.owners.take(self.name, partitions)
        if self.before_taking is not None:
            await self.before_taking(partitions)

    def on_lost(self, partitions: Partitions) -> None:
        self._note("lost", partitions)
        self._lost(partitions)

    def on_ended(self, error: Exception) -> None:
        self.ended = error

    def _lost(self, partitions: Partitions) -> None:
        assert partitions <= self.has
        self.has -= partitions
        self.owners.give(self.name, partitions)

    def _note(self, what: str, partitions: Partitions) -> None:
        self.calls.append((what, sorted(each.partition for each in partitions)))


def waiting(reader: Reader, seconds: float) -> Callable[[Partitions], Deferred[None]]:
    """Return a listener that awaits a delay before it releases partitions."""
    return lambda _: pause(reader.host.runtime.reactor, seconds)


def new_brokers(seed: int = 11, overrides: Iterable[str] = OVERRIDES) -> SimulatedCluster:
    """Three brokers that have the topic t with six partitions."""
    simulated = SimulatedCluster(seed=seed, brokers=3, overrides=list(overrides))
    simulated.start()
    simulated.run_until(simulated.client().create_topic("t", len(ALL), replication_factor=3))
    simulated.wait_in_sync("t", ALL)
    return simulated


def begin(brokers: SimulatedCluster, *names: str, **options: object) -> list[Reader]:
    """Return readers of one group after their first rebalance."""
    owners = Owners()
    readers = [Reader(brokers, name, owners=owners, **options) for name in names]
    for reader in readers:
        brokers.run_until(reader.start())
    settle(brokers, *readers)
    return readers


def settle(brokers: SimulatedCluster, *readers: Reader, timeout_s: float = 60.0) -> None:
    """Run until all partitions are read in equal shares; no partition had two owners meanwhile."""

    def settled() -> bool:
        counts = [len(reader.has) for reader in readers]
        return sum(counts) == len(ALL) and max(counts) - min(counts) <= 1

    try:
        brokers.run_until(settled, timeout_s)
    except TimeoutError:
        raise AssertionError({reader.name: reader.calls for reader in readers}) from None
    assert readers[0].owners.contradictions == []


def coordinator_of(brokers: SimulatedCluster, group: str = "g") -> int:
    """Return the broker that coordinates a group whose ID is one character."""
    offsets = [each for each in range(50) if brokers.leader_of("__consumer_offsets", each) != -1]
    return brokers.leader_of("__consumer_offsets", ord(group) % len(offsets))
