"""Members of a group on a simulated cluster, whose listeners track the partitions that they own."""

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
    """Owner of each partition, according to the listeners of all readers of one group.

    :ivar contradictions: descriptions of partitions that had two owners.
    """

    def __init__(self) -> None:
        self.contradictions: list[str] = []
        self._owners: dict[TopicPartition, str] = {}

    def assign(self, name: str, partitions: Partitions) -> None:
        for partition in sorted(partitions):
            other = self._owners.setdefault(partition, name)
            if other != name:
                self.contradictions.append(f"{name} was assigned {partition}, which {other} owns")

    def reclaim(self, name: str, partitions: Partitions) -> None:
        """Reassign to a resumed process the partitions that no other reader was assigned in the meantime."""
        for partition in sorted(partitions):
            self._owners.setdefault(partition, name)

    def release(self, name: str, partitions: Partitions) -> None:
        for partition in sorted(partitions):
            if self._owners.get(partition) == name:
                del self._owners[partition]


class Reader:
    """A process with one membership, which is also its listener.

    :ivar owned: partitions according to the listener's calls.
    :ivar calls: all calls of the listener: (method, partitions).
    :ivar revocation_hook: awaited in ``on_revoked``, if set.
    :ivar assignment_hook: awaited in ``on_assigned``, if set.
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
        self.owned: Partitions = frozenset()
        self.calls: list[tuple[str, list[int]]] = []
        self.final_error: Exception | None = None
        self.revocation_hook: Callable[[Partitions], Deferred[None]] | None = None
        self.assignment_hook: Callable[[Partitions], Deferred[None]] | None = None
        runtime = runtime_of(self.host.runtime)
        self.cluster = Cluster(brokers.bootstrap_servers, options=ClientOptions(client_id=name), runtime=runtime)
        settings = GroupOptions(**{"group_id": "g", **FAST, **options})  # type: ignore[arg-type]
        self.membership: Membership = new_membership(self.cluster, settings, topics, self)

    @property
    def partition_numbers(self) -> list[int]:
        return sorted(each.partition for each in self.owned)

    def start(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.membership.start())

    def stop(self) -> None:
        self.brokers.run_until(self._stop())

    def die(self) -> None:
        """Kill the process."""
        self.owners.release(self.name, self.owned)
        self.owned = frozenset()
        self.host.kill()

    async def _stop(self) -> None:
        await self.membership.stop()
        await self.cluster.close()

    # --- as a listener ---

    async def on_revoked(self, partitions: Partitions) -> None:
        self._record_call("revoked", partitions)
        if self.revocation_hook is not None:
            await self.revocation_hook(partitions)
        self._remove(partitions)

    async def on_assigned(self, partitions: Partitions) -> None:
        self._record_call("assigned", partitions)
        assert not self.owned & partitions
        self.owned |= partitions
        self.owners.assign(self.name, partitions)
        if self.assignment_hook is not None:
            await self.assignment_hook(partitions)

    def on_lost(self, partitions: Partitions) -> None:
        self._record_call("lost", partitions)
        self._remove(partitions)

    def on_ended(self, error: Exception) -> None:
        self.final_error = error

    def _remove(self, partitions: Partitions) -> None:
        assert partitions <= self.owned
        self.owned -= partitions
        self.owners.release(self.name, partitions)

    def _record_call(self, method: str, partitions: Partitions) -> None:
        self.calls.append((method, sorted(each.partition for each in partitions)))


def delay(reader: Reader, seconds: float) -> Callable[[Partitions], Deferred[None]]:
    """Return a hook that delays the reader's listener."""
    return lambda _: pause(reader.host.runtime.reactor, seconds)


def new_brokers(seed: int = 11, overrides: Iterable[str] = OVERRIDES) -> SimulatedCluster:
    """Return a started cluster of three brokers, with the topic t of six partitions."""
    brokers = SimulatedCluster(seed=seed, brokers=3, overrides=list(overrides))
    brokers.start()
    brokers.run_until(brokers.client().create_topic("t", len(ALL), replication_factor=3))
    brokers.wait_in_sync("t", ALL)
    return brokers


def start_readers(brokers: SimulatedCluster, *names: str, **options: object) -> list[Reader]:
    """Start readers of one group, and return them when the partitions are assigned."""
    owners = Owners()
    readers = [Reader(brokers, name, owners=owners, **options) for name in names]
    for reader in readers:
        brokers.run_until(reader.start())
    settle(brokers, *readers)
    return readers


def settle(brokers: SimulatedCluster, *readers: Reader, timeout_s: float = 60.0) -> None:
    """Run until the readers own equal shares of all partitions, and check that no partition had two owners."""

    def is_balanced() -> bool:
        counts = [len(reader.owned) for reader in readers]
        return sum(counts) == len(ALL) and max(counts) - min(counts) <= 1

    try:
        brokers.run_until(is_balanced, timeout_s)
    except TimeoutError:
        raise AssertionError({reader.name: reader.calls for reader in readers}) from None
    assert readers[0].owners.contradictions == []


def coordinator_of(brokers: SimulatedCluster, group: str = "g") -> int:
    """Return the ID of the broker that coordinates a group whose ID is a single character."""
    offsets = [each for each in range(50) if brokers.leader_of("__consumer_offsets", each) != -1]
    return brokers.leader_of("__consumer_offsets", ord(group) % len(offsets))
