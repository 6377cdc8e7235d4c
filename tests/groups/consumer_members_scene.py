"""A simulated cluster of three brokers with members of a KIP-848 group, whose coordinator dies at a chosen step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from members_scene import CONVERGED_S_MAX, GROUP_ID, OFFSETS_PARTITIONS, PARTITIONS, TOPIC, MembersScene, WatchedClient
from twisted.internet.defer import CancelledError, Deferred

from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.testing.clients.coordinator_client import GROUP
from kreplica.testing.cluster.cluster import BROKER_PORT, SimulatedCluster
from tests.support.clients.consumer_member import ConsumerMember, Owners

INTERVAL_S = 0.5


class Reader:
    """A member that sends heartbeats and commits every half second.

    :ivar commits: number of commits.
    """

    def __init__(self, client: WatchedClient, member: ConsumerMember) -> None:
        self.member = member
        self.commits = 0
        self._client = client
        self._leaving = False
        self.running = Deferred.fromCoroutine(self._run())

    @property
    def partitions(self) -> list[int]:
        """Return the partitions it reads."""
        return [partition for _, partition in self.member.owned]

    def leave(self) -> None:
        """Leave the group at the next step."""
        self._leaving = True

    def die(self) -> None:
        """Stop without leaving the group."""
        self.member.die()
        self.running.addErrback(lambda failure: failure.trap(CancelledError))
        self.running.cancel()

    async def _run(self) -> None:
        try:
            while not self._leaving:
                await self.member.heartbeat()
                if self.partitions:
                    offsets = dict.fromkeys((TopicPartition(TOPIC, each) for each in self.partitions), self.commits)
                    self.commits += await self.member.commit(offsets)
                await pause(self._client.reactor, INTERVAL_S)
            await self.member.leave()
        finally:
            await self._client.close()


class ConsumerMembersScene(MembersScene):
    """:ivar owners: the owner of each partition."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster, commits=True)
        self.owners = Owners()
        self.readers: list[Reader] = []

    def join(self) -> Reader:
        """Add a member on its own host."""
        self._made += 1
        host = self.cluster.host(f"member-{self._made}")
        brokers = [(f"broker-{number}", BROKER_PORT) for number in self.cluster.brokers]
        client = WatchedClient(host.reactor, brokers, GROUP_ID, GROUP, client_id=host.name)
        client.step = self._step
        member = ConsumerMember(client, GROUP_ID, f"id-{self._made}", [TOPIC], self.owners)
        reader = Reader(client, member)
        self.readers.append(reader)
        return reader

    def is_shared(self) -> bool:
        """Return True if all partitions are owned, evenly and in one epoch."""
        shares = [reader.partitions for reader in self.readers]
        sizes = [len(share) for share in shares]
        one_epoch = len({reader.member.epoch for reader in self.readers}) == 1
        everything = sorted(each for share in shares for each in share) == list(range(PARTITIONS))
        return one_epoch and everything and max(sizes) - min(sizes) <= 1

    def settle(self) -> None:
        """Run until all members have committed again and partitions are shared, and a while longer."""
        before = {reader.member.member_id: reader.commits for reader in self.readers}

        def has_settled() -> bool:
            all_have_committed = all(reader.commits > before[reader.member.member_id] for reader in self.readers)
            return all_have_committed and self.is_shared()

        self.cluster.run_until(has_settled, CONVERGED_S_MAX)
        self.cluster.run(7)
        assert self.is_shared()
        assert self.owners.contradictions == []


@contextmanager
def consumer_members(count: int = 2, *, seed: int = 1) -> Iterator[ConsumerMembersScene]:
    """Three brokers and a group of this many members."""
    settings = [
        f"offsets.topic.num.partitions={OFFSETS_PARTITIONS}",
        "controlled.shutdown.enable=false",
        "group.consumer.session.timeout.ms=10000",
    ]
    cluster = SimulatedCluster(seed, brokers=3, overrides=settings)
    cluster.start()
    client = cluster.client()
    cluster.run_until(client.create_topic(TOPIC, PARTITIONS, replication_factor=3))
    cluster.run_until(client.close())
    scene = ConsumerMembersScene(cluster)
    for _ in range(count):
        scene.join()
    scene.settle()
    yield scene
    for reader in scene.readers:
        reader.leave()
        cluster.run_until(reader.running, CONVERGED_S_MAX)
    cluster.stop()
