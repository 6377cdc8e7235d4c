"""Who leads partitions, and who holds them: elections and reassignments, which the controller decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from kreplica.client_core.admin.asking import SERVER_TIMEOUT_MS, UNKNOWN, Subject, Told, need, outcome
from kreplica.client_core.admin.outcomes import Outcomes
from kreplica.client_core.cluster import BrokerConnection
from kreplica.client_core.errors import BrokerRefused, ClientError, check
from kreplica.client_core.offsets import topic_rows
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.wire.messages import ALTER_PARTITION_REASSIGNMENTS, ELECT_LEADERS, LIST_PARTITION_REASSIGNMENTS

ELECTION_TYPES_FROM = 1
"""From this version on ElectLeaders knows unclean elections (KIP-460)."""

NOT_ELECTED = UNKNOWN | {
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ErrorCode.ELECTION_NOT_NEEDED,
}
"""What an election may come to; that another one might go well later is not waited for."""


class ElectionType(IntEnum):
    """Which leader is wanted."""

    PREFERRED = 0
    """The first replica, where it is in sync."""

    UNCLEAN = 1
    """Any replica that lives, where none leads; records may be lost."""


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition whose replicas move.

    :param replicas: all of them at the moment, also those that come and those that go.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Reassignments(Subject):
    """Who leads partitions, and who holds them."""

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        type: ElectionType = ElectionType.PREFERRED,
        timeout_s: float | None = None,
    ) -> Outcomes[TopicPartition, bool]:
        """Have leaders elected.

        :param partitions: None: all that need it; what is told then is of those alone.
        :return: whether there was an election; False where the leader is already as it should be.
        """
        if partitions is None:
            # One question, whose items are known by its answer.
            whole = await self.at_controller([None], self._electing(type), timeout_s, final=NOT_ELECTED)
            return Outcomes(whole[None])

        async def ask(connection: BrokerConnection, share: list[TopicPartition]) -> Told[TopicPartition, bool]:
            return await self._elect(connection, type, share)

        return await self.at_controller(partitions, ask, timeout_s, final=NOT_ELECTED)

    def _electing(self, type: ElectionType) -> Any:
        async def ask(connection: BrokerConnection, _: list[None]) -> Told[None, Told[TopicPartition, bool]]:
            return {None: await self._elect(connection, type, None)}

        return ask

    async def _elect(
        self, connection: BrokerConnection, type: ElectionType, partitions: list[TopicPartition] | None
    ) -> Told[TopicPartition, bool]:
        if type is not ElectionType.PREFERRED:
            need(connection, ELECT_LEADERS, ELECTION_TYPES_FROM, "unclean elections")
        rows = None
        if partitions is not None:
            rows = [
                {"topic": row["name"], "partitions": row["partitions"]}
                for row in topic_rows(partitions, lambda each: each.partition, "partitions")
            ]
        body = {"election_type": int(type), "topic_partitions": rows, "timeout_ms": SERVER_TIMEOUT_MS}
        answer = await self._cluster.request(connection, ELECT_LEADERS, body)
        if answer.get("error_code"):
            check(answer, "an election")
        told: dict[TopicPartition, bool | ClientError] = {}
        for topic in answer["replica_election_results"]:
            for row in topic["partition_result"]:
                partition = TopicPartition(topic["topic"], row["partition_id"])
                told[partition] = _elected(outcome(row, f"election for {partition}"))
        return told

    async def alter_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, timeout_s: float | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Have replicas moved; returns when the moves are ordered, long before they end.

        :param replicas: brokers that shall delay each partition, the preferred leader first; None: cancel its move.
        """

        def row(partition: TopicPartition) -> dict[str, Any]:
            brokers = replicas[partition]
            return {
                "partition_index": partition.partition,
                "replicas": None if brokers is None else list(brokers),
            }

        async def ask(connection: BrokerConnection, share: list[TopicPartition]) -> Told[TopicPartition, None]:
            body = {"timeout_ms": SERVER_TIMEOUT_MS, "topics": topic_rows(share, row, "partitions")}
            answer = await self._cluster.request(connection, ALTER_PARTITION_REASSIGNMENTS, body)
            check(answer, "a reassignment")
            told: dict[TopicPartition, ClientError | None] = {}
            for topic in answer["responses"]:
                for each in topic["partitions"]:
                    partition = TopicPartition(topic["name"], each["partition_index"])
                    told[partition] = outcome(each, f"reassignment of {partition}")
            return told

        async def mend(_: TopicPartition, error: BrokerRefused) -> ClientError | None:
            return None if error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS else error

        return await self.at_controller(replicas, ask, timeout_s, mend=mend)

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_s: float | None = None
    ) -> Mapping[TopicPartition, Reassignment]:
        """The partitions whose replicas move.

        :param partitions: among these; None: among all.
        :raise ClientError: the controller does not answer.
        """
        topics = None
        if partitions is not None:
            topics = topic_rows(partitions, lambda each: each.partition, "partition_indexes")

        async def ask(connection: BrokerConnection) -> Mapping[TopicPartition, Reassignment]:
            body = {"timeout_ms": SERVER_TIMEOUT_MS, "topics": topics}
            answer = await self._cluster.request(connection, LIST_PARTITION_REASSIGNMENTS, body)
            check(answer, "reassignments")
            return {
                TopicPartition(topic["name"], row["partition_index"]): Reassignment(
                    tuple(row["replicas"]), tuple(row["adding_replicas"]), tuple(row["removing_replicas"])
                )
                for topic in answer["topics"]
                for row in topic["partitions"]
            }

        return await self._cluster.at_controller(ask, timeout_s)


def _elected(error: BrokerRefused | None) -> bool | ClientError:
    if error is None:
        return True
    return False if error.code is ErrorCode.ELECTION_NOT_NEEDED else error
