"""The offsets that a member commits for its group, and those that the group has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from twisted.internet.defer import DeferredLock

from kreplica.client.cluster import Cluster
from kreplica.client.group.coordinator_connection import CoordinatorLink
from kreplica.client_core.errors import BrokerRefused, ClientError, CommitFailed, check
from kreplica.client_core.offsets import NO_GENERATION, CommittedOffset, GroupIdentity, parse_committed, topic_rows
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.wire.messages import OFFSET_COMMIT, OFFSET_FETCH

BY_NAME_MAX = 9
"""Later versions of OffsetCommit and OffsetFetch name topics by their ids."""

UNKNOWN_TOPIC_PATIENCE_S = 5.0
"""A coordinator may not know a topic yet; one that was deleted it will never know again."""


class Committer(Protocol):
    """Who commits: a member, whichever protocol its group has."""

    @property
    def identity(self) -> GroupIdentity:
        """As what it acts now."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What it may read now."""

    @property
    def has_epoch(self) -> bool:
        """Whether it is known by its epoch, also where it asks for offsets."""

    async def refused(self, error: BrokerRefused, said: GroupIdentity) -> ClientError:
        """What it means that the coordinator refused it.

        :param said: as what it acted.
        """


class GroupOffsets:
    """Of one member; it ends with the membership."""

    def __init__(self, cluster: Cluster, link: CoordinatorLink, member: Committer) -> None:
        self._cluster = cluster
        self._link = link
        self._member = member
        self._turn = DeferredLock()

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """See ``Membership``; one after the other: a commit that is tried again comes behind none that began later."""
        if not offsets:
            return
        await self._turn.acquire()
        try:
            await self._commit_patiently(offsets)
        finally:
            self._turn.release()

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """See ``Membership``."""
        wanted = topic_rows(partitions, lambda each: each.partition, "partition_indexes")
        if not wanted:
            return {}
        return await self._cluster.retrying(lambda: self._committed(wanted))

    async def _commit_patiently(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        reactor = self._cluster.runtime.reactor
        patient_until_s = reactor.seconds() + UNKNOWN_TOPIC_PATIENCE_S

        async def attempt() -> None:
            try:
                await self._commit(offsets)
            except BrokerRefused as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and reactor.seconds() > patient_until_s:
                    error.retriable = False
                raise

        await self._cluster.retrying(attempt)

    async def _commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        member = self._member
        strange = sorted(offsets.keys() - member.assignment)
        if strange:
            names = ", ".join(map(str, strange))
            raise CommitFailed(f"group {member.identity.group_id} has not given this member {names}, or not any more")
        said = member.identity
        body = {
            "group_id": said.group_id,
            "generation_id_or_member_epoch": said.generation,
            "member_id": said.member_id,
            "group_instance_id": said.instance_id,
            "topics": commit_rows(offsets),
        }
        try:
            answer = await self._link.ask(OFFSET_COMMIT, body, at_most=BY_NAME_MAX)
            for topic in answer["topics"]:
                for row in topic["partitions"]:
                    check(row, f"commit of {topic['name']}-{row['partition_index']} by group {said.group_id}")
        except BrokerRefused as error:
            self._link.failed(error)
            raise await member.refused(error, said) from error

    async def _committed(self, wanted: list[dict[str, Any]]) -> dict[TopicPartition, CommittedOffset]:
        said = self._member.identity
        group: dict[str, Any] = {"group_id": said.group_id}
        if self._member.has_epoch and said.generation != NO_GENERATION:
            group |= {"member_id": said.member_id, "member_epoch": said.generation}
        body = {
            "group_id": said.group_id,
            "topics": wanted,
            "groups": [{**group, "topics": wanted}],
            "require_stable": True,
        }
        try:
            answer = await self._link.ask(OFFSET_FETCH, body, at_most=BY_NAME_MAX)
            row = answer["groups"][0] if "groups" in answer else answer
            if "error_code" in row:
                check(row, f"offsets of group {said.group_id}")
            return dict(parse_committed(row["topics"], said.group_id))
        except BrokerRefused as error:
            self._link.failed(error)
            raise await self._member.refused(error, said) from error


def commit_rows(offsets: Mapping[TopicPartition, CommittedOffset]) -> list[dict[str, Any]]:
    """Offsets as OffsetCommit and TxnOffsetCommit name them."""

    def row(partition: TopicPartition) -> dict[str, Any]:
        committed = offsets[partition]
        return {
            "partition_index": partition.partition,
            "committed_offset": committed.offset,
            "committed_leader_epoch": committed.leader_epoch,
            "committed_metadata": committed.metadata,
        }

    return topic_rows(offsets, row, "partitions")
