"""A member of a classic group, as consumers are: it joins, shares partitions out where it leads, fetches and commits.

It does nothing by itself: whoever has it lets it send heartbeats between whatever else is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.testing.clients.coordinator_client import Answered, CoordinatorClient, Refused
from kreplica.testing.histories.group_history import GroupHistory
from kreplica.wire import messages
from kreplica.wire.messages import Api
from kreplica.wire.messages.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, build_versioned, parse_versioned

NOBODY, NO_GENERATION = "", -1
PROTOCOL_TYPE, PROTOCOL = "consumer", "range"
PROTOCOL_VERSION = 0
OFFSETS_OF_ONE_MAX = 7
"""Later versions of OffsetFetch take several groups."""

BY_NAME_MAX = 9
"""Later versions of OffsetCommit name topics by their ids."""

ANSWER_TIMEOUT_S = 10.0
REJOINING = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
"""What a member is told that is to join again."""


class GroupMetadata(NamedTuple):
    """By what a group's coordinator knows who commits within a transaction (KIP-447)."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants.

    :param topics: that it reads, with how many partitions each has.
    :param instance_id: of a static member (KIP-345).
    """

    group_id: str
    topics: Mapping[str, int]
    session_timeout_ms: int = 6000
    rebalance_timeout_ms: int = 6000
    instance_id: str | None = None


class GroupMember:
    """One process's membership; made anew, it is another member.

    :param client: that of the group's coordinator, and of nobody else.
    :param history: told what this member is told.
    :ivar assigned: the partitions that it reads in its generation.
    :ivar needs_join: whether it has to join, at first or again, before anything else.
    """

    def __init__(self, client: CoordinatorClient, subscription: Subscription, history: GroupHistory) -> None:
        self.assigned: list[TopicPartition] = []
        self.needs_join = True
        self._client = client
        self._subscription = subscription
        self._history = history
        self._member_id = NOBODY
        self._generation = NO_GENERATION
        self._heard_s = 0.0

    @property
    def metadata(self) -> GroupMetadata:
        """What a transactional producer says of it."""
        subscription = self._subscription
        return GroupMetadata(subscription.group_id, self._generation, self._member_id, subscription.instance_id)

    # --- membership --------------------------------------------------------------------------------------------------

    async def join(self) -> None:
        """Join, however often that takes, until this member is in a generation and knows what it reads.

        :raise Refused: FENCED_INSTANCE_ID, or what no member can help.
        """
        self.assigned = []
        while True:
            try:
                await self._sync(await self._join())
            except Refused as error:
                self._take_in(error)
            else:
                break
        self.needs_join = False
        self._heard_s = self._client.reactor.seconds()

    async def heartbeat(self) -> None:
        """Say that it lives, where that is due; afterwards ``needs_join`` tells whether the group goes on as it was."""
        if self._client.reactor.seconds() - self._heard_s < self._subscription.session_timeout_ms / 3000:
            return
        try:
            await self._client.ask(messages.HEARTBEAT, self._as_member())
        except Refused as error:
            self.refused(error)
        self._heard_s = self._client.reactor.seconds()

    async def leave(self) -> None:
        """Leave the group."""
        member = {"member_id": self._member_id, "group_instance_id": self._subscription.instance_id}
        body = {"group_id": self._subscription.group_id, **member, "members": [member]}
        try:
            await self._client.ask(messages.LEAVE_GROUP, body)
        except Refused as error:
            self._take_in(error)
        self.needs_join = True

    def refused(self, error: Refused) -> None:
        """Take in what this member, or a producer in its name, was told.

        :raise Refused: it says nothing of membership.
        """
        self._take_in(error)
        self.needs_join = True

    def _take_in(self, error: Refused) -> None:
        if error.code is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = error.answer["member_id"]
        elif error.code not in REJOINING:
            raise error
        elif error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = NOBODY

    async def _join(self) -> dict[str, Any]:
        subscription = self._subscription
        wanted = build_versioned(SUBSCRIPTION, PROTOCOL_VERSION, {"topics": sorted(subscription.topics)})
        body = {
            "group_id": subscription.group_id,
            "session_timeout_ms": subscription.session_timeout_ms,
            "rebalance_timeout_ms": subscription.rebalance_timeout_ms,
            "member_id": self._member_id,
            "group_instance_id": subscription.instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [{"name": PROTOCOL, "metadata": wanted}],
        }
        answer = (await self._ask_long(messages.JOIN_GROUP, body)).body
        self._member_id, self._generation = answer["member_id"], answer["generation_id"]
        return answer

    async def _sync(self, joined: dict[str, Any]) -> None:
        leads = joined["leader"] == self._member_id and not joined.get("skip_assignment")
        shares = self._shares(joined["members"]) if leads else {}
        body = {
            **self._as_member(),
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": PROTOCOL,
            "assignments": [{"member_id": each, "assignment": share} for each, share in shares.items()],
        }
        answer = (await self._ask_long(messages.SYNC_GROUP, body)).body
        self.assigned = _partitions(answer["assignment"])
        self._history.joined(self._subscription.instance_id or self._member_id, self._generation, self.assigned)

    async def _ask_long(self, api: Api, body: dict[str, Any]) -> Answered:
        """Ask what is answered when all other members have come too, or the time for that is over."""
        patience_s = self._subscription.rebalance_timeout_ms / 1000 + ANSWER_TIMEOUT_S
        return await self._client.ask(api, body, timeout_s=patience_s)

    def _shares(self, members: list[dict[str, Any]]) -> dict[str, bytes]:
        """Of each topic a range of partitions for every member that wants it."""
        wanted = {each["member_id"]: parse_versioned(SUBSCRIPTION, each["metadata"])[1]["topics"] for each in members}
        shares: dict[str, list[dict[str, Any]]] = {member_id: [] for member_id in sorted(wanted)}
        for topic, count in sorted(self._subscription.topics.items()):
            takers = [member_id for member_id in shares if topic in wanted[member_id]]
            bounds = [count * index // len(takers) for index in range(len(takers) + 1)]
            for index, member_id in enumerate(takers):
                partitions = list(range(bounds[index], bounds[index + 1]))
                if partitions:
                    shares[member_id].append({"topic": topic, "partitions": partitions})
        return {
            member_id: build_versioned(ASSIGNMENT, PROTOCOL_VERSION, {"assigned_partitions": share})
            for member_id, share in shares.items()
        }

    def _as_member(self) -> dict[str, Any]:
        return {
            "group_id": self._subscription.group_id,
            "generation_id": self._generation,
            "member_id": self._member_id,
            "group_instance_id": self._subscription.instance_id,
        }

    # --- offsets -----------------------------------------------------------------------------------------------------

    async def offsets(self) -> dict[TopicPartition, int]:
        """Where its partitions are to be read from: what is committed, once no transaction is to decide that (KIP-447).

        :raise Refused: what no member can help.
        """
        expected = self._history.expected(self.assigned)
        topics = [{"name": name, "partition_indexes": numbers} for name, numbers in by_topic(self.assigned).items()]
        body = {"group_id": self._subscription.group_id, "topics": topics, "require_stable": True}
        answer = (await self._client.ask(messages.OFFSET_FETCH, body, at_most=OFFSETS_OF_ONE_MAX)).body
        fetched = {
            TopicPartition(topic["name"], row["partition_index"]): max(row["committed_offset"], 0)
            for topic in answer["topics"]
            for row in topic["partitions"]
        }
        self._history.fetched(expected, fetched)
        return fetched

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit how far it has read.

        :return: whether it was a member still, so that they are committed.
        :raise Refused: what no member can help.
        """
        number = self._history.committing(self._generation, offsets)
        topics = offset_rows(offsets)
        body = {**self._as_member(), "generation_id_or_member_epoch": self._generation, "topics": topics}
        try:
            answered = await self._client.ask(messages.OFFSET_COMMIT, body, at_most=BY_NAME_MAX)
        except Refused as error:
            if not error.is_doubtful:
                self._history.refused(number)
            self.refused(error)
            return False
        # The next heartbeat is due as it was: only that tells of a rebalance, in which commits are still accepted.
        self._history.committed(number, is_doubtful=answered.is_doubtful)
        return True


def offset_rows(offsets: Mapping[TopicPartition, int]) -> list[dict[str, Any]]:
    """How OffsetCommit and TxnOffsetCommit name offsets."""
    return [
        {
            "name": name,
            "partitions": [
                {
                    "partition_index": number,
                    "committed_offset": offsets[TopicPartition(name, number)],
                    "committed_metadata": "",
                }
                for number in numbers
            ],
        }
        for name, numbers in by_topic(offsets).items()
    ]


def by_topic(partitions: Any) -> dict[str, list[int]]:
    """Partitions, gathered under the names of their topics."""
    gathered: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        gathered.setdefault(topic, []).append(partition)
    return gathered


def _partitions(assignment: bytes) -> list[TopicPartition]:
    if not assignment:
        return []
    fields = parse_versioned(ASSIGNMENT, assignment)[1]
    return [
        TopicPartition(row["topic"], partition)
        for row in fields["assigned_partitions"]
        for partition in row["partitions"]
    ]
