"""Consumer of the partitions that its group assigns to it, and an application that commits its offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kreplica.client.errors import ClientError
from kreplica.errors import KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime import Reactor
from kreplica.testing.clients.group_member import GroupMember
from kreplica.testing.clients.leader_client import LeaderClient
from kreplica.testing.clients.wire_client import sleep
from kreplica.testing.histories.record_history import Listener
from kreplica.wire.records import Record

FETCH_SIZE_MAX = 2000
WAIT_MS = 200
IDLE_S = 0.4

Polled = Mapping[TopicPartition, list[Record]]


class GroupConsumer:
    """Reads the partitions assigned to its member, starting at the committed offsets.

    :param name: the consumer's name in the history.
    :param leader_client: creates a client of a partition's leader.
    :param history: history of the topic that it reads.
    """

    def __init__(
        self,
        reactor: Reactor,
        name: str,
        member: GroupMember,
        leader_client: Callable[[TopicPartition], LeaderClient],
        history: Listener,
    ) -> None:
        self.reactor = reactor
        self.member = member
        self._name = name
        self._leader_client = leader_client
        self._leaders: dict[TopicPartition, LeaderClient] = {}
        self._history = history
        self._positions: dict[TopicPartition, int] | None = None

    async def poll(self) -> Polled:
        """Return the next records, possibly none; the same records again until ``advance`` is called.

        :raise RequestRejected: the group's coordinator returned an error that joining again does not solve.
        """
        member = self.member
        if member.needs_join:
            self._positions = None
            await member.join()
        if self._positions is None:
            self._positions = await member.offsets()
        await member.heartbeat()
        polled = {} if member.needs_join else await self._fetch(self._positions)
        if not polled:
            await sleep(self.reactor, IDLE_S)
        return polled

    def advance(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the positions after polled records.

        :param offsets: result of ``ends_of``.
        """
        if self._positions is not None:
            self._positions.update(offsets)

    def reset_positions(self) -> None:
        self._positions = None

    async def leave(self) -> None:
        await self.member.leave()
        for client in self._leaders.values():
            await client.close()

    async def _fetch(self, positions: Mapping[TopicPartition, int]) -> Polled:
        polled: dict[TopicPartition, list[Record]] = {}
        for key, position in positions.items():
            client = self._leaders.get(key)
            if client is None:
                client = self._leaders[key] = self._leader_client(key)
            try:
                records = await client.fetch(*key, position, wait_ms=WAIT_MS, size_max=FETCH_SIZE_MAX)
            except (ClientError, KafkaError):
                await client.close()
                continue
            if records:
                self._history.sought(key.partition, position, self._name)
                self._history.read(key.partition, records, self._name)
                polled[key] = records
        return polled


def ends_of(polled: Polled) -> dict[TopicPartition, int]:
    """Return the offsets to commit for polled records."""
    return {key: records[-1].offset + 1 for key, records in polled.items()}


class OffsetCommitter:
    """Application that commits after every poll, so that each record is processed at least once."""

    def __init__(self, consumer: GroupConsumer) -> None:
        self._consumer = consumer
        self._finishing = False

    def finish(self) -> None:
        """Make ``run`` leave the group and return."""
        self._finishing = True

    async def run(self) -> None:
        consumer = self._consumer
        while not self._finishing:
            polled = await consumer.poll()
            if polled:
                offsets = ends_of(polled)
                if await consumer.member.commit(offsets):
                    consumer.advance(offsets)
        await consumer.leave()
