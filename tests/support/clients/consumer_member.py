"""A member of a consumer group (KIP-848) that sends heartbeats only when a test requests them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from kreplica.client_core.offsets import offset_rows, topic_rows
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.testing.clients.coordinator_client import CoordinatorClient, RequestRejected
from kreplica.wire import messages
from tests.support.clients.group_member import TOPIC_NAMES_VERSION_MAX

JOINING, LEAVING = 0, -1
REBALANCE_TIMEOUT_MS = 6000

JOINING_AGAIN = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
"""Errors after which a member gives up all partitions and joins again."""

Owned = tuple[UUID, int]
"""Topic ID and partition number."""


class Owners:
    """Ownership of partitions in one group, from the members' point of view.

    :ivar contradictions: one sentence for each case in which a partition had two owners at once.
    """

    def __init__(self) -> None:
        self.contradictions: list[str] = []
        self._owners: dict[Owned, str] = {}

    def now(self, member_id: str, owned: Sequence[Owned]) -> None:
        """Record the partitions that a member owns now."""
        for partition, owner in list(self._owners.items()):
            if owner == member_id:
                del self._owners[partition]
        for partition in owned:
            other = self._owners.setdefault(partition, member_id)
            if other != member_id:
                self.contradictions.append(f"partition {partition[1]} is owned by two members: {other} and {member_id}")


class ConsumerMember:
    """Membership of one consumer process.

    :param client: a client of the group's coordinator that only this member uses.
    :param topics: topics to which the member subscribes.
    :ivar owned: partitions that the member reads, sorted.
    :ivar epoch: last member epoch that the coordinator sent.
    :ivar is_slow: True to keep reading partitions that are being revoked.
    :ivar fenced_count: number of times that the coordinator has fenced the member.
    """

    def __init__(
        self, client: CoordinatorClient, group_id: str, member_id: str, topics: Sequence[str], owners: Owners
    ) -> None:
        self.member_id = member_id
        self.owned: list[Owned] = []
        self.epoch = JOINING
        self.is_slow = False
        self.fenced_count = 0
        self._client = client
        self._group_id = group_id
        self._topics = list(topics)
        self._owners = owners

    async def heartbeat(self) -> None:
        """Send a full heartbeat and apply the assignment in the response.

        :raise RequestRejected: an error that the member cannot handle.
        """
        try:
            answer = (
                await self._client.request_with_retries(messages.CONSUMER_GROUP_HEARTBEAT, self._body(self.epoch))
            ).body
        except RequestRejected as error:
            if error.code not in JOINING_AGAIN:
                raise
            self.fenced_count += 1
            self.epoch = JOINING
            self._own([])
            return
        if answer["member_epoch"] < self.epoch:
            self._owners.contradictions.append(f"{self.member_id} went back to epoch {answer['member_epoch']}")
        self.epoch = answer["member_epoch"]
        if answer["assignment"] is not None:
            rows = answer["assignment"]["topic_partitions"]
            assigned = [(row["topic_id"], partition) for row in rows for partition in row["partitions"]]
            self._own([*assigned, *(self.owned if self.is_slow else ())])

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Replace the subscription."""
        self._topics = list(topics)
        await self.heartbeat()

    async def leave(self) -> None:
        """Leave the group and give up all partitions."""
        self._own([])
        await self._client.request_with_retries(messages.CONSUMER_GROUP_HEARTBEAT, self._body(LEAVING))

    def die(self) -> None:
        """Stop reading without leaving the group."""
        self._own([])

    async def commit(self, offsets: Mapping[TopicPartition, int], epoch: int | None = None) -> bool:
        """Commit offsets.

        :param epoch: member epoch in the request; by default the member's own.
        :return: True if the coordinator accepted the epoch and the offsets are committed.
        """
        body = {
            "group_id": self._group_id,
            "member_id": self.member_id,
            "generation_id_or_member_epoch": self.epoch if epoch is None else epoch,
            "topics": offset_rows(offsets),
        }
        try:
            await self._client.request_with_retries(messages.OFFSET_COMMIT, body, at_most=TOPIC_NAMES_VERSION_MAX)
        except RequestRejected as error:
            if error.code not in (ErrorCode.STALE_MEMBER_EPOCH, *JOINING_AGAIN):
                raise
            return False
        return True

    async def offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the group's committed offsets; -1 for a partition without one."""
        topics = topic_rows(partitions, lambda key: key.partition, "partition_indexes")
        group = {
            "group_id": self._group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "topics": topics,
        }
        body = {"groups": [group]}
        answer = (
            await self._client.request_with_retries(messages.OFFSET_FETCH, body, at_most=TOPIC_NAMES_VERSION_MAX)
        ).body
        return {
            TopicPartition(topic["name"], row["partition_index"]): row["committed_offset"]
            for topic in answer["groups"][0]["topics"]
            for row in topic["partitions"]
        }

    async def close(self) -> None:
        await self._client.close()

    def _own(self, owned: Sequence[Owned]) -> None:
        self.owned = sorted(set(owned))
        self._owners.now(self.member_id, self.owned)

    def _body(self, epoch: int) -> dict[str, Any]:
        topic_ids = dict.fromkeys(topic_id for topic_id, _ in self.owned)
        return {
            "group_id": self._group_id,
            "member_id": self.member_id,
            "member_epoch": epoch,
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
            "subscribed_topic_names": self._topics,
            "topic_partitions": [
                {"topic_id": each, "partitions": [number for topic_id, number in self.owned if topic_id == each]}
                for each in topic_ids
            ],
        }
