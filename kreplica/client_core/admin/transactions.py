"""Transactions and producers, including hanging transactions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kreplica.client_core.admin.outcomes import Outcomes
from kreplica.client_core.admin.request_routing import UNKNOWN, RequestRouter, Results, outcome, require_version
from kreplica.client_core.cluster import BrokerConnection
from kreplica.client_core.errors import BrokerRefused, ClientError, check
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.client_core.offsets import topic_rows
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.wire.messages import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
)

DURATIONS_FROM, PATTERNS_FROM = 1, 2
"""First versions of ListTransactions that filter by duration (KIP-994) and by pattern (KIP-1152)."""

NO_TIME = -1
NO_REPLICA = UNKNOWN | {ErrorCode.NOT_LEADER_OR_FOLLOWER}
"""Error codes for partitions without a replica on the inspected broker."""

FENCING_TRANSACTION_TIMEOUT_MS = 60_000
"""Transaction timeout of a fenced transactional id, until the id's next producer sets its own timeout."""


class TransactionState(StrEnum):
    """State of a transactional id."""

    UNKNOWN = "Unknown"
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"

    @classmethod
    def _missing_(cls, _: object) -> TransactionState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in the result of ``list_transactions``."""

    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """State of a transactional id and of its transaction.

    :param start_time_ms: start of the open transaction in milliseconds since 1970; -1 if there is none.
    :param partitions: partitions of that transaction.
    """

    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """State of a producer at a replica.

    :param coordinator_epoch: coordinator epoch of the producer's last transaction; -1 if there is none.
    :param transaction_start_offset: first offset of the producer's open transaction; -1 if there is none.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """Producer id and epoch that a coordinator has assigned to a transactional id."""

    producer_id: int
    producer_epoch: int


class Transactions(RequestRouter):
    """Requests for transactions and producers."""

    async def list_transactions(
        self,
        *,
        states: Iterable[TransactionState] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int | None = None,
        pattern: str | None = None,
        timeout_s: float | None = None,
    ) -> list[TransactionListing]:
        """Return the cluster's transactional ids, sorted.

        :param states: states to include; if empty, all are included.
        :param producer_ids: producer ids to include; if empty, all are included.
        :param longer_than_ms: include only transactions that have been open for longer than this.
        :param pattern: RE2 expression that must match the whole id.
        :raise ClientError: a live broker did not respond or does not support the filter.
        """
        body = {
            "state_filters": [each.value for each in states],
            "producer_id_filters": list(producer_ids),
            "duration_filter": NO_TIME if longer_than_ms is None else longer_than_ms,
            "transactional_id_pattern": pattern,
        }

        async def send(connection: BrokerConnection) -> list[dict[str, Any]]:
            if longer_than_ms is not None:
                require_version(connection, LIST_TRANSACTIONS, DURATIONS_FROM, "filters by duration")
            if pattern is not None:
                require_version(connection, LIST_TRANSACTIONS, PATTERNS_FROM, "filters by pattern")
            response = await self._cluster.request(connection, LIST_TRANSACTIONS, body)
            check(response, f"transactions of {connection.peer}")
            return list(response["transaction_states"])

        results = await self.at_all_brokers(send, timeout_s)
        listings = {
            row["transactional_id"]: TransactionListing(
                row["transactional_id"], row["producer_id"], TransactionState(row["transaction_state"])
            )
            for rows in results.values()
            for row in rows
        }
        return [listings[each] for each in sorted(listings)]

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> Outcomes[str, TransactionDescription]:
        """Describe transactional ids."""

        async def send(connection: BrokerConnection, share: list[str]) -> Results[str, TransactionDescription]:
            response = await self._cluster.request(connection, DESCRIBE_TRANSACTIONS, {"transactional_ids": share})
            return {row["transactional_id"]: _transaction(row) for row in response["transaction_states"]}

        return await self.at_coordinators(CoordinatorKind.TRANSACTION, transactional_ids, send, timeout_s)

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> Outcomes[str, ProducerIdentity]:
        """Fence the producers of transactional ids; their open transactions are aborted (KIP-588)."""

        async def send(connection: BrokerConnection, share: list[str]) -> Results[str, ProducerIdentity]:
            async def fence(each: str) -> ProducerIdentity:
                body = {"transactional_id": each, "transaction_timeout_ms": FENCING_TRANSACTION_TIMEOUT_MS}
                response = await self._cluster.request(connection, INIT_PRODUCER_ID, body)
                check(response, f"transactional id {each}")
                return ProducerIdentity(response["producer_id"], response["producer_epoch"])

            return await self.one_by_one(share, fence)

        return await self.at_coordinators(CoordinatorKind.TRANSACTION, transactional_ids, send, timeout_s)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker_id: int | None = None, timeout_s: float | None = None
    ) -> Outcomes[TopicPartition, tuple[ProducerState, ...]]:
        """Return the producers that have written to partitions, and their open transactions (KIP-664).

        :param broker_id: broker whose replicas are inspected; None selects the leaders.
        """

        async def send(
            connection: BrokerConnection, share: list[TopicPartition]
        ) -> Results[TopicPartition, tuple[ProducerState, ...]]:
            body = {"topics": topic_rows(share, lambda each: each.partition, "partition_indexes")}
            response = await self._cluster.request(connection, DESCRIBE_PRODUCERS, body)
            results: dict[TopicPartition, tuple[ProducerState, ...] | ClientError] = {}
            for topic in response["topics"]:
                for row in topic["partitions"]:
                    partition = TopicPartition(topic["name"], row["partition_index"])
                    results[partition] = outcome(row, f"producers of {partition}") or _producers(row)
            return results

        if broker_id is None:
            return await self.at_leaders(partitions, send, timeout_s)

        async def attempt(remaining: list[TopicPartition]) -> Results[TopicPartition, tuple[ProducerState, ...]]:
            if broker_id not in self._cluster.view.brokers:
                await self._cluster.refresh()
            return await self._send_each(dict.fromkeys(remaining, broker_id), self._cluster.connection, send)

        return await self.settle(partitions, attempt, timeout_s, final=NO_REPLICA)

    async def abort_transaction(
        self, partition: TopicPartition, producer: ProducerState, *, timeout_s: float | None = None
    ) -> None:
        """Abort a hanging transaction, which its coordinator no longer knows, in one partition (KIP-664).

        :param producer: a result of ``describe_producers``.
        :raise BrokerRefused: the producer or its coordinator has a newer epoch.
        """
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "transaction_result": False,
            "topics": [{"name": partition.topic, "partition_indexes": [partition.partition]}],
            "coordinator_epoch": max(producer.coordinator_epoch, 0),
        }

        async def send(connection: BrokerConnection, _: list[TopicPartition]) -> Results[TopicPartition, None]:
            response = await self._cluster.request(connection, WRITE_TXN_MARKERS, {"markers": [marker]})
            row = response["markers"][0]["topics"][0]["partitions"][0]
            return {partition: outcome(row, f"transaction of producer {producer.producer_id} in {partition}")}

        (await self.at_leaders([partition], send, timeout_s)).raise_first()

    async def hanging_transactions(
        self, partitions: Iterable[TopicPartition], *, open_for_ms: int, timeout_s: float | None = None
    ) -> dict[TopicPartition, list[ProducerState]]:
        """Return transactions that are open in partitions but not at any coordinator (KIP-664).

        :param open_for_ms: minimum age of the producer's last record.
        :raise ClientError: a broker did not respond.
        """
        now_ms = self._cluster.wall_clock_ms()
        described = (await self.describe_producers(partitions, timeout_s=timeout_s)).raise_first()
        suspects = {
            partition: [
                each
                for each in producers
                if each.transaction_start_offset >= 0 and now_ms - each.last_timestamp_ms > open_for_ms
            ]
            for partition, producers in described.items()
        }
        producer_ids = sorted({each.producer_id for producers in suspects.values() for each in producers})
        listed = await self.list_transactions(producer_ids=producer_ids, timeout_s=timeout_s) if producer_ids else []
        known = await self.describe_transactions([each.transactional_id for each in listed], timeout_s=timeout_s)
        known_open = {(each.producer_id, partition) for each in _existing(known) for partition in each.partitions}
        hanging = {
            partition: [each for each in producers if (each.producer_id, partition) not in known_open]
            for partition, producers in suspects.items()
        }
        return {partition: producers for partition, producers in hanging.items() if producers}


def _existing(known: Outcomes[str, TransactionDescription]) -> Iterable[TransactionDescription]:
    for error in known.failed.values():
        if not (isinstance(error, BrokerRefused) and error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
            raise error
    return known.succeeded.values()


def _transaction(row: dict[str, Any]) -> TransactionDescription | ClientError:
    error = outcome(row, f"transactional id {row['transactional_id']}")
    if error is not None:
        return error
    partitions = frozenset(
        TopicPartition(topic["topic"], partition) for topic in row["topics"] for partition in topic["partitions"]
    )
    return TransactionDescription(
        row["transactional_id"],
        TransactionState(row["transaction_state"]),
        row["producer_id"],
        row["producer_epoch"],
        row["transaction_timeout_ms"],
        row["transaction_start_time_ms"],
        partitions,
    )


def _producers(row: dict[str, Any]) -> tuple[ProducerState, ...]:
    return tuple(
        ProducerState(
            each["producer_id"],
            each["producer_epoch"],
            each["last_sequence"],
            each["last_timestamp"],
            each["coordinator_epoch"],
            each["current_txn_start_offset"],
        )
        for each in row["active_producers"]
    )
