"""Leader elections and reassignments of replicas, performed by the controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from kreplica.client_core.admin.outcomes import Outcomes
from kreplica.client_core.admin.request_routing import (
    SERVER_TIMEOUT_MS,
    UNKNOWN,
    RequestRouter,
    Results,
    outcome,
    require_version,
)
from kreplica.client_core.cluster import BrokerConnection
from kreplica.client_core.errors import BrokerRefused, ClientError, check
from kreplica.client_core.offsets import topic_rows
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.wire.messages import ALTER_PARTITION_REASSIGNMENTS, ELECT_LEADERS, LIST_PARTITION_REASSIGNMENTS

ELECTION_TYPES_FROM = 1
"""First version of ElectLeaders that supports unclean elections (KIP-460)."""

NOT_ELECTED = UNKNOWN | {
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ErrorCode.ELECTION_NOT_NEEDED,
}
"""Retriable error codes that are nevertheless final results of an election; a later election may succeed."""


class ElectionType(IntEnum):
    """Type of a leader election."""

    PREFERRED = 0
    """Elect the preferred replica if it is in sync."""

    UNCLEAN = 1
    """Elect any live replica of a partition without a leader; may lose records."""


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition whose replicas are being moved.

    :param replicas: all current replicas, including those being added or removed.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Reassignments(RequestRouter):
    """Requests for leaders and replicas."""

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        type: ElectionType = ElectionType.PREFERRED,
        timeout_s: float | None = None,
    ) -> Outcomes[TopicPartition, bool]:
        """Elect leaders.

        :param partitions: None elects leaders for all partitions that need an election; the result contains only those.
        :return: True if a leader was elected; False if the leader did not change.
        """
        if partitions is None:
            # One request, whose response names the partitions.
            elect_all = self._all_partitions_election(type)
            outcomes = await self.at_controller([None], elect_all, timeout_s, final=NOT_ELECTED)
            return Outcomes(outcomes[None])

        async def send(connection: BrokerConnection, share: list[TopicPartition]) -> Results[TopicPartition, bool]:
            return await self._elect(connection, type, share)

        return await self.at_controller(partitions, send, timeout_s, final=NOT_ELECTED)

    def _all_partitions_election(self, type: ElectionType) -> Any:
        async def send(connection: BrokerConnection, _: list[None]) -> Results[None, Results[TopicPartition, bool]]:
            return {None: await self._elect(connection, type, None)}

        return send

    async def _elect(
        self, connection: BrokerConnection, type: ElectionType, partitions: list[TopicPartition] | None
    ) -> Results[TopicPartition, bool]:
        if type is not ElectionType.PREFERRED:
            require_version(connection, ELECT_LEADERS, ELECTION_TYPES_FROM, "unclean elections")
        rows = None
        if partitions is not None:
            rows = [
                {"topic": row["name"], "partitions": row["partitions"]}
                for row in topic_rows(partitions, lambda each: each.partition, "partitions")
            ]
        body = {"election_type": int(type), "topic_partitions": rows, "timeout_ms": SERVER_TIMEOUT_MS}
        response = await self._cluster.request(connection, ELECT_LEADERS, body)
        if response.get("error_code"):
            check(response, "an election")
        results: dict[TopicPartition, bool | ClientError] = {}
        for topic in response["replica_election_results"]:
            for row in topic["partition_result"]:
                partition = TopicPartition(topic["topic"], row["partition_id"])
                results[partition] = _election_result(outcome(row, f"election for {partition}"))
        return results

    async def alter_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, timeout_s: float | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Start moving replicas; return before the moves complete.

        :param replicas: brokers of each partition, the preferred leader first; None cancels a reassignment.
        """

        def row(partition: TopicPartition) -> dict[str, Any]:
            brokers = replicas[partition]
            return {
                "partition_index": partition.partition,
                "replicas": None if brokers is None else list(brokers),
            }

        async def send(connection: BrokerConnection, share: list[TopicPartition]) -> Results[TopicPartition, None]:
            body = {"timeout_ms": SERVER_TIMEOUT_MS, "topics": topic_rows(share, row, "partitions")}
            response = await self._cluster.request(connection, ALTER_PARTITION_REASSIGNMENTS, body)
            check(response, "a reassignment")
            results: dict[TopicPartition, ClientError | None] = {}
            for topic in response["responses"]:
                for each in topic["partitions"]:
                    partition = TopicPartition(topic["name"], each["partition_index"])
                    results[partition] = outcome(each, f"reassignment of {partition}")
            return results

        async def reconcile(_: TopicPartition, error: BrokerRefused) -> ClientError | None:
            return None if error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS else error

        return await self.at_controller(replicas, send, timeout_s, reconcile=reconcile)

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_s: float | None = None
    ) -> Mapping[TopicPartition, Reassignment]:
        """Return the partitions whose replicas are being moved.

        :param partitions: partitions to include; None includes all.
        :raise ClientError: the controller did not respond.
        """
        topics = None
        if partitions is not None:
            topics = topic_rows(partitions, lambda each: each.partition, "partition_indexes")

        async def send(connection: BrokerConnection) -> Mapping[TopicPartition, Reassignment]:
            body = {"timeout_ms": SERVER_TIMEOUT_MS, "topics": topics}
            response = await self._cluster.request(connection, LIST_PARTITION_REASSIGNMENTS, body)
            check(response, "reassignments")
            return {
                TopicPartition(topic["name"], row["partition_index"]): Reassignment(
                    tuple(row["replicas"]), tuple(row["adding_replicas"]), tuple(row["removing_replicas"])
                )
                for topic in response["topics"]
                for row in topic["partitions"]
            }

        return await self._cluster.at_controller(send, timeout_s)


def _election_result(error: BrokerRefused | None) -> bool | ClientError:
    if error is None:
        return True
    return False if error.code is ErrorCode.ELECTION_NOT_NEEDED else error
