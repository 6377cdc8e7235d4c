"""Member of a classic group: joins, assigns partitions as the group leader, fetches and commits offsets.

It has no timers: its owner calls ``heartbeat`` regularly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kreplica.client_core.offsets import GroupIdentity, offset_rows, topic_rows
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.testing.clients.coordinator_client import CoordinatorClient, RequestRejected, Response
from kreplica.wire import messages
from kreplica.wire.messages import Api
from kreplica.wire.messages.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, build_versioned, parse_versioned
from tests.support.clients.group_history import GroupHistory

NO_MEMBER_ID, NO_GENERATION = "", -1
PROTOCOL_TYPE, PROTOCOL = "consumer", "range"
PROTOCOL_VERSION = 0
OFFSETS_OF_ONE_MAX = 7
"""Later versions of OffsetFetch take several groups."""

TOPIC_NAMES_VERSION_MAX = 9
"""Later versions of OffsetCommit identify topics by ID."""

REQUEST_TIMEOUT_S = 10.0
REJOIN_ERRORS = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
"""Errors after which a member joins again."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Configuration of a member.

    :param topics: subscribed topics and their numbers of partitions.
    :param instance_id: instance ID of a static member (KIP-345).
    """

    group_id: str
    topics: Mapping[str, int]
    session_timeout_ms: int = 6000
    rebalance_timeout_ms: int = 6000
    instance_id: str | None = None


class GroupMember:
    """Membership of one process in a group.

    :param client: client of the group's coordinator, used by this member alone.
    :param history: records the responses to this member.
    :ivar assigned: assigned partitions in the current generation.
    :ivar needs_join: true if the member must join before its next request.
    """

    def __init__(self, client: CoordinatorClient, subscription: Subscription, history: GroupHistory) -> None:
        self.assigned: list[TopicPartition] = []
        self.needs_join = True
        self._client = client
        self._subscription = subscription
        self._history = history
        self._member_id = NO_MEMBER_ID
        self._generation = NO_GENERATION
        self._last_heartbeat_s = 0.0

    @property
    def identity(self) -> GroupIdentity:
        subscription = self._subscription
        return GroupIdentity(subscription.group_id, self._generation, self._member_id, subscription.instance_id)

    # --- membership --------------------------------------------------------------------------------------------------

    async def join(self) -> None:
        """Join, with retries, until this member has an assignment.

        :raise RequestRejected: FENCED_INSTANCE_ID, or another error that joining again does not solve.
        """
        self.assigned = []
        while True:
            try:
                await self._sync(await self._join())
            except RequestRejected as error:
                self._handle_error(error)
            else:
                break
        self.needs_join = False
        self._last_heartbeat_s = self._client.reactor.seconds()

    async def heartbeat(self) -> None:
        """Send a heartbeat if one is due; sets ``needs_join`` during a rebalance."""
        if self._client.reactor.seconds() - self._last_heartbeat_s < self._subscription.session_timeout_ms / 3000:
            return
        try:
            await self._client.request_with_retries(messages.HEARTBEAT, self._member_fields())
        except RequestRejected as error:
            self.rejected(error)
        self._last_heartbeat_s = self._client.reactor.seconds()

    async def leave(self) -> None:
        member = {"member_id": self._member_id, "group_instance_id": self._subscription.instance_id}
        body = {"group_id": self._subscription.group_id, **member, "members": [member]}
        try:
            await self._client.request_with_retries(messages.LEAVE_GROUP, body)
        except RequestRejected as error:
            self._handle_error(error)
        self.needs_join = True

    def rejected(self, error: RequestRejected) -> None:
        """Handle an error response to this member or to its transactional producer.

        :raise RequestRejected: the error is unrelated to the membership.
        """
        self._handle_error(error)
        self.needs_join = True

    def _handle_error(self, error: RequestRejected) -> None:
        if error.code is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = error.response["member_id"]
        elif error.code not in REJOIN_ERRORS:
            raise error
        elif error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = NO_MEMBER_ID

    async def _join(self) -> dict[str, Any]:
        subscription = self._subscription
        subscribed = build_versioned(SUBSCRIPTION, PROTOCOL_VERSION, {"topics": sorted(subscription.topics)})
        body = {
            "group_id": subscription.group_id,
            "session_timeout_ms": subscription.session_timeout_ms,
            "rebalance_timeout_ms": subscription.rebalance_timeout_ms,
            "member_id": self._member_id,
            "group_instance_id": subscription.instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [{"name": PROTOCOL, "metadata": subscribed}],
        }
        answer = (await self._ask_during_rebalance(messages.JOIN_GROUP, body)).body
        self._member_id, self._generation = answer["member_id"], answer["generation_id"]
        return answer

    async def _sync(self, joined: dict[str, Any]) -> None:
        leads = joined["leader"] == self._member_id and not joined.get("skip_assignment")
        assignments = self._range_assignments(joined["members"]) if leads else {}
        body = {
            **self._member_fields(),
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": PROTOCOL,
            "assignments": [{"member_id": each, "assignment": share} for each, share in assignments.items()],
        }
        answer = (await self._ask_during_rebalance(messages.SYNC_GROUP, body)).body
        self.assigned = _partitions(answer["assignment"])
        self._history.joined(self._subscription.instance_id or self._member_id, self._generation, self.assigned)

    async def _ask_during_rebalance(self, api: Api, body: dict[str, Any]) -> Response:
        """Send a request whose response waits for the other members, at most for the rebalance timeout."""
        total_timeout_s = self._subscription.rebalance_timeout_ms / 1000 + REQUEST_TIMEOUT_S
        return await self._client.request_with_retries(api, body, timeout_s=total_timeout_s)

    def _range_assignments(self, members: list[dict[str, Any]]) -> dict[str, bytes]:
        """Assign to every member a range of the partitions of each topic that it subscribed to."""
        topics = {each["member_id"]: parse_versioned(SUBSCRIPTION, each["metadata"])[1]["topics"] for each in members}
        assignments: dict[str, list[dict[str, Any]]] = {member_id: [] for member_id in sorted(topics)}
        for topic, count in sorted(self._subscription.topics.items()):
            subscribers = [member_id for member_id in assignments if topic in topics[member_id]]
            bounds = [count * index // len(subscribers) for index in range(len(subscribers) + 1)]
            for index, member_id in enumerate(subscribers):
                partitions = list(range(bounds[index], bounds[index + 1]))
                if partitions:
                    assignments[member_id].append({"topic": topic, "partitions": partitions})
        return {
            member_id: build_versioned(ASSIGNMENT, PROTOCOL_VERSION, {"assigned_partitions": share})
            for member_id, share in assignments.items()
        }

    def _member_fields(self) -> dict[str, Any]:
        return {
            "group_id": self._subscription.group_id,
            "generation_id": self._generation,
            "member_id": self._member_id,
            "group_instance_id": self._subscription.instance_id,
        }

    # --- offsets -----------------------------------------------------------------------------------------------------

    async def offsets(self) -> dict[TopicPartition, int]:
        """Fetch the committed offsets of the assigned partitions, after pending transactional commits (KIP-447).

        :raise RequestRejected: the response contains an error that is not retriable.
        """
        expected = self._history.expected(self.assigned)
        topics = topic_rows(self.assigned, lambda key: key.partition, "partition_indexes")
        body = {"group_id": self._subscription.group_id, "topics": topics, "require_stable": True}
        answer = (await self._client.request_with_retries(messages.OFFSET_FETCH, body, at_most=OFFSETS_OF_ONE_MAX)).body
        fetched = {
            TopicPartition(topic["name"], row["partition_index"]): max(row["committed_offset"], 0)
            for topic in answer["topics"]
            for row in topic["partitions"]
        }
        self._history.fetched(expected, fetched)
        return fetched

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit offsets.

        :return: false if it is no longer a member of the generation.
        :raise RequestRejected: the error does not concern the membership.
        """
        number = self._history.committing(self._generation, offsets)
        topics = offset_rows(offsets)
        body = {**self._member_fields(), "generation_id_or_member_epoch": self._generation, "topics": topics}
        try:
            answered = await self._client.request_with_retries(
                messages.OFFSET_COMMIT, body, at_most=TOPIC_NAMES_VERSION_MAX
            )
        except RequestRejected as error:
            if not error.has_pending_attempt:
                self._history.rejected(number)
            self.rejected(error)
            return False
        # A commit does not postpone the heartbeat: commits are accepted during a rebalance and do not report it.
        self._history.committed(number, has_pending_attempt=answered.has_pending_attempt)
        return True


def _partitions(assignment: bytes) -> list[TopicPartition]:
    if not assignment:
        return []
    fields = parse_versioned(ASSIGNMENT, assignment)[1]
    return [
        TopicPartition(row["topic"], partition)
        for row in fields["assigned_partitions"]
        for partition in row["partitions"]
    ]
