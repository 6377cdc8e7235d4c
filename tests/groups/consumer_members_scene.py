"""Simulated cluster of three brokers and the members of a KIP-848 group; its coordinator dies at chosen steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from members_scene import (
    CONVERGENCE_S_MAX,
    GROUP_ID,
    OFFSETS_PARTITIONS,
    PARTITIONS,
    TOPIC,
    MembersScene,
    WatchedClient,
)
from twisted.internet.defer import CancelledError, Deferred

from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.testing.clients.coordinator_client import GROUP
from kreplica.testing.cluster.cluster import BROKER_PORT, SimulatedCluster
from tests.support.clients.consumer_member import ConsumerMember, Owners

INTERVAL_S = 0.5


class Reader:
    """A member that sends a heartbeat and commits every half second.

    :ivar commit_count: number of commits.
    :ivar finished: fires when the member has left the group.
    """

    def __init__(self, client: WatchedClient, member: ConsumerMember) -> None:
        self.member = member
        self.commit_count = 0
        self._client = client
        self._leaving = False
        self.finished = Deferred.fromCoroutine(self._run())

    @property
    def partitions(self) -> list[int]:
        """Return the partitions that the member owns."""
        return [partition for _, partition in self.member.owned]

    def leave(self) -> None:
        """Leave the group in the next iteration."""
        self._leaving = True

    def die(self) -> None:
        """Stop without leaving the group."""
        self.member.die()
        self.finished.addErrback(lambda failure: failure.trap(CancelledError))
        self.finished.cancel()

    async def _run(self) -> None:
        try:
            while not self._leaving:
                await self.member.heartbeat()
                if self.partitions:
                    offsets = dict.fromkeys(
                        (TopicPartition(TOPIC, each) for each in self.partitions), self.commit_count
                    )
                    self.commit_count += await self.member.commit(offsets)
                await pause(self._client.reactor, INTERVAL_S)
            await self.member.leave()
        finally:
            await self._client.close()


class ConsumerMembersScene(MembersScene):
    """A cluster and the members of a KIP-848 group.

    :ivar owners: the owner of each partition.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster, commits=True)
        self.owners = Owners()
        self.readers: list[Reader] = []

    def join(self) -> Reader:
        """Add a member on a new host."""
        self._member_count += 1
        host = self.cluster.host(f"member-{self._member_count}")
        brokers = [(f"broker-{number}", BROKER_PORT) for number in self.cluster.brokers]
        client = WatchedClient(host.reactor, brokers, GROUP_ID, GROUP, client_id=host.name)
        client.step = self._step
        member = ConsumerMember(client, GROUP_ID, f"id-{self._member_count}", [TOPIC], self.owners)
        reader = Reader(client, member)
        self.readers.append(reader)
        return reader

    def is_balanced(self) -> bool:
        """Return True if all members have the same epoch and share all partitions evenly."""
        shares = [reader.partitions for reader in self.readers]
        sizes = [len(share) for share in shares]
        has_one_epoch = len({reader.member.epoch for reader in self.readers}) == 1
        covers_all = sorted(each for share in shares for each in share) == list(range(PARTITIONS))
        return has_one_epoch and covers_all and max(sizes) - min(sizes) <= 1

    def settle(self) -> None:
        """Run until all members have committed again and share the partitions evenly, then for seven more seconds."""
        before = {reader.member.member_id: reader.commit_count for reader in self.readers}

        def has_settled() -> bool:
            have_all_committed = all(reader.commit_count > before[reader.member.member_id] for reader in self.readers)
            return have_all_committed and self.is_balanced()

        self.cluster.run_until(has_settled, CONVERGENCE_S_MAX)
        self.cluster.run(7)
        assert self.is_balanced()
        assert self.owners.contradictions == []


@contextmanager
def consumer_members(count: int = 2, *, seed: int = 1) -> Iterator[ConsumerMembersScene]:
    """Yield a group with ``count`` members on three brokers."""
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
        cluster.run_until(reader.finished, CONVERGENCE_S_MAX)
    cluster.stop()
