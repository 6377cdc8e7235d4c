"""A simulated cluster of three brokers, and members of a group of KIP-848 whose coordinator dies at a chosen step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from members_scene import CONVERGED_S_MAX, GROUP_ID, OFFSETS_PARTITIONS, PARTITIONS, TOPIC, MembersScene, WatchedClient
from twisted.internet.defer import CancelledError, Deferred

from kreplica.errors import ErrorCode
from kreplica.groups.consumer.assignment import Assignment, from_rows, pairs, to_rows
from kreplica.model import TopicPartition
from kreplica.testing.cluster import BROKER_PORT, SimulatedCluster
from kreplica.testing.coordinator_client import GROUP, Refused
from kreplica.testing.group_member import offset_rows
from kreplica.testing.wire_client import sleep
from kreplica.wire import messages

JOINING_AGAIN = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
LEAVING = -1
INTERVAL_S = 0.5


class ConsumerMember:
    """A member that sends heartbeats, does as it is told, and commits a little more each time.

    :ivar epoch: the last that it was told, in this membership.
    :ivar commits: how often it has committed.
    :ivar fenced: how often it was told to join again.
    """

    def __init__(self, client: WatchedClient, member_id: str) -> None:
        self.member_id = member_id
        self.owned: Assignment = {}
        self.epoch = 0
        self.commits = 0
        self.fenced = 0
        self._client = client
        self._leaving = False
        self.running = Deferred.fromCoroutine(self._run())

    def leave(self) -> None:
        """Leave the group soon."""
        self._leaving = True

    def die(self) -> None:
        """Be gone without a word."""
        self.owned = {}
        self.running.addErrback(lambda failure: failure.trap(CancelledError))
        self.running.cancel()

    async def _run(self) -> None:
        try:
            while not self._leaving:
                await self._beat()
                await self._commit()
                await sleep(self._client.reactor, INTERVAL_S)
            self.owned = {}
            await self._client.ask(messages.CONSUMER_GROUP_HEARTBEAT, self._body(LEAVING))
        finally:
            await self._client.close()

    async def _beat(self) -> None:
        try:
            answer = (await self._client.ask(messages.CONSUMER_GROUP_HEARTBEAT, self._body(self.epoch))).body
        except Refused as error:
            if error.code not in JOINING_AGAIN:
                raise
            self.owned, self.epoch = {}, 0
            self.fenced += 1
            return
        if answer["member_epoch"] < self.epoch:
            raise AssertionError(f"the epoch of {self.member_id} went back")
        self.epoch = answer["member_epoch"]
        if answer["assignment"] is not None:
            self.owned = from_rows(answer["assignment"]["topic_partitions"])

    async def _commit(self) -> None:
        keys = [TopicPartition(TOPIC, partition) for _, partition in pairs(self.owned)]
        if not keys:
            return
        body = {
            "group_id": GROUP_ID,
            "member_id": self.member_id,
            "generation_id_or_member_epoch": self.epoch,
            "topics": offset_rows(dict.fromkeys(keys, self.commits)),
        }
        try:
            await self._client.ask(messages.OFFSET_COMMIT, body, at_most=9)
        except Refused as error:
            if error.code not in (ErrorCode.STALE_MEMBER_EPOCH, *JOINING_AGAIN):
                raise
        else:
            self.commits += 1

    def _body(self, epoch: int) -> dict[str, Any]:
        return {
            "group_id": GROUP_ID,
            "member_id": self.member_id,
            "member_epoch": epoch,
            "rebalance_timeout_ms": 6000,
            "subscribed_topic_names": [TOPIC],
            "topic_partitions": to_rows(self.owned),
        }


class ConsumerMembersScene(MembersScene):
    """:ivar owners: who owns what, checked whenever somebody is told something."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster, commits=True)
        self.members: list[ConsumerMember] = []
        self._steps.append(self._check)

    def join(self) -> ConsumerMember:
        """One more member, on a host of its own."""
        self._made += 1
        host = self.cluster.host(f"member-{self._made}")
        brokers = [(f"broker-{number}", BROKER_PORT) for number in self.cluster.brokers]
        client = WatchedClient(host.reactor, brokers, GROUP_ID, GROUP, client_id=host.name)
        client.step = self._step
        member = ConsumerMember(client, f"id-{self._made}")
        self.members.append(member)
        return member

    def is_shared(self) -> bool:
        """Whether everything is owned, evenly, in one epoch."""
        shares = [[partition for _, partition in pairs(member.owned)] for member in self.members]
        sizes = [len(share) for share in shares]
        one_epoch = len({member.epoch for member in self.members}) == 1
        everything = sorted(each for share in shares for each in share) == list(range(PARTITIONS))
        return one_epoch and everything and max(sizes) - min(sizes) <= 1

    def settle(self) -> None:
        """Until everybody has committed once more and all is shared, and a while longer."""
        before = {member.member_id: member.commits for member in self.members}

        def has_settled() -> bool:
            have_committed = all(member.commits > before[member.member_id] for member in self.members)
            return have_committed and self.is_shared()

        self.cluster.run_until(has_settled, CONVERGED_S_MAX)
        self.cluster.run(7)
        assert self.is_shared()

    def _check(self, what: str) -> None:
        owned = [pair for member in self.members for pair in pairs(member.owned)]
        assert len(owned) == len(set(owned)), "a partition is owned by two"


@contextmanager
def consumer_members(count: int = 2, *, seed: int = 1) -> Iterator[ConsumerMembersScene]:
    """Three brokers and a group of so many members, which share the partitions of a topic."""
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
    for member in scene.members:
        member.leave()
    for member in scene.members:
        cluster.run_until(member.running, CONVERGED_S_MAX)
    cluster.stop()
