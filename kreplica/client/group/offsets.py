"""Commits and fetches a group's offsets on behalf of one of its members."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from twisted.internet.defer import DeferredLock

from kreplica.client.cluster import Cluster
from kreplica.client.group.coordinator_connection import CoordinatorConnections
from kreplica.client_core.errors import BrokerRefused, ClientError, CommitFailed, check
from kreplica.client_core.offsets import (
    NO_GENERATION,
    CommittedOffset,
    GroupIdentity,
    check_committed,
    offset_rows,
    parse_committed,
    topic_rows,
)
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.wire.messages import OFFSET_COMMIT, OFFSET_FETCH

TOPIC_NAMES_VERSION_MAX = 9
"""Last version of OffsetCommit and OffsetFetch that identifies topics by name."""

UNKNOWN_TOPIC_RETRIED_S = 5.0
"""Time for which requests for an unknown topic are retried, because the coordinator may not know a new topic yet."""


class Committer(Protocol):
    """The member that commits offsets."""

    @property
    def identity(self) -> GroupIdentity:
        """The member's current identity."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the member may consume."""

    @property
    def has_epoch(self) -> bool:
        """True if OffsetFetch requests contain the member epoch."""

    async def application_error(self, error: BrokerRefused, identity: GroupIdentity) -> ClientError:
        """Return the error to raise to the application after the coordinator rejected a request.

        :param identity: the identity that the request contained.
        """


class MemberOffsets:
    """Commits and fetches offsets for one member."""

    def __init__(self, cluster: Cluster, coordinator: CoordinatorConnections, member: Committer) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._member = member
        self._commit_lock = DeferredLock()

    async def commit(
        self, offsets: Mapping[TopicPartition, CommittedOffset], on_attempted: Callable[[], None] = lambda: None
    ) -> None:
        """See ``Membership``; commits run one at a time, so that a retry does not overwrite a later commit."""
        if not offsets:
            on_attempted()
            return
        await self._commit_lock.acquire()
        try:
            await self._commit_with_retries(offsets, on_attempted)
        finally:
            self._commit_lock.release()

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """See ``Membership``."""
        requested_rows = topic_rows(partitions, lambda each: each.partition, "partition_indexes")
        if not requested_rows:
            return {}
        return await self._cluster.retrying(lambda: self._committed(requested_rows))

    async def _commit_with_retries(
        self, offsets: Mapping[TopicPartition, CommittedOffset], on_attempted: Callable[[], None]
    ) -> None:
        reactor = self._cluster.runtime.reactor
        retried_until_s = reactor.seconds() + UNKNOWN_TOPIC_RETRIED_S

        async def attempt() -> None:
            nonlocal on_attempted
            try:
                await self._commit(offsets)
            except BrokerRefused as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and reactor.seconds() > retried_until_s:
                    error.retriable = False
                raise
            finally:
                first, on_attempted = on_attempted, lambda: None
                first()

        await self._cluster.retrying(attempt)

    async def _commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        member = self._member
        unassigned = sorted(offsets.keys() - member.assignment)
        if unassigned:
            names = ", ".join(map(str, unassigned))
            raise CommitFailed(f"group {member.identity.group_id} does not assign {names} to this member")
        identity = member.identity
        body = {
            "group_id": identity.group_id,
            "generation_id_or_member_epoch": identity.generation,
            "member_id": identity.member_id,
            "group_instance_id": identity.instance_id,
            "topics": offset_rows(offsets),
        }
        try:
            response = await self._coordinator.request(OFFSET_COMMIT, body, at_most=TOPIC_NAMES_VERSION_MAX)
            check_committed(response, f"group {identity.group_id}")
        except BrokerRefused as error:
            self._coordinator.process_error(error)
            raise await member.application_error(error, identity) from error

    async def _committed(self, requested_rows: list[dict[str, Any]]) -> dict[TopicPartition, CommittedOffset]:
        identity = self._member.identity
        group: dict[str, Any] = {"group_id": identity.group_id}
        if self._member.has_epoch and identity.generation != NO_GENERATION:
            group |= {"member_id": identity.member_id, "member_epoch": identity.generation}
        body = {
            "group_id": identity.group_id,
            "topics": requested_rows,
            "groups": [{**group, "topics": requested_rows}],
            "require_stable": True,
        }
        try:
            response = await self._coordinator.request(OFFSET_FETCH, body, at_most=TOPIC_NAMES_VERSION_MAX)
            row = response["groups"][0] if "groups" in response else response
            if "error_code" in row:
                check(row, f"offsets of group {identity.group_id}")
            return dict(parse_committed(row["topics"], identity.group_id))
        except BrokerRefused as error:
            self._coordinator.process_error(error)
            raise await self._member.application_error(error, identity) from error
