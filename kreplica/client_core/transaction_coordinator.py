"""Requests from a transactional producer to its coordinators (KIP-98)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from kreplica.client_core.cluster import BrokerConnection, ClusterCore
from kreplica.client_core.errors import UnsupportedVersion, check
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.client_core.offsets import GroupIdentity, GroupOffsets, check_committed, offset_rows
from kreplica.client_core.partition_queue import ProducerIdentity
from kreplica.client_core.transaction_requests import (
    ADD_OFFSETS_MAX,
    ADD_PARTITIONS_MAX,
    COMMIT_OFFSETS_MAX,
    END_MAX,
    INIT_MAX,
    NEXT_EPOCH_FROM,
    NO_PRODUCER,
    TWO_PHASE_FROM,
    add_partitions_body,
    check_added_partitions,
    init_body,
    parse_identity,
    producer_body,
)
from kreplica.model import TopicPartition
from kreplica.wire.messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)

T = TypeVar("T")


async def new_producer_id(cluster: ClusterCore[Any]) -> ProducerIdentity:
    """Return a new producer id for an idempotent producer without transactions."""

    async def attempt() -> ProducerIdentity:
        return parse_identity(
            await cluster.request_any(INIT_PRODUCER_ID, init_body(None, 0), at_most=INIT_MAX), "producer id"
        )

    return await cluster.retrying(attempt)


async def end_transaction(
    cluster: ClusterCore[Any],
    transactional_id: str,
    identity: ProducerIdentity,
    *,
    commit: bool,
    timeout_s: float | None = None,
) -> None:
    """Commit or abort any producer's transaction; a repeated call has no effect.

    :param identity: producer id and epoch of the transaction's producer.
    :raise BrokerRefused: the transaction has already ended with the other outcome, or the producer was fenced.
    """
    body = producer_body(transactional_id, identity, committed=commit)

    async def attempt(connection: BrokerConnection) -> None:
        response = await cluster.request(connection, END_TXN, body, at_most=END_MAX)
        check(response, f"end of transaction {transactional_id!r}")

    await cluster.at_coordinator(CoordinatorKind.TRANSACTION, transactional_id, attempt, timeout_s)


class TransactionCoordinatorClient:
    """Sends the requests of one transactional id and tracks the partitions and offsets of the current transaction.

    :param timeout_s: the coordinator aborts a transaction that is open for longer than this.
    :param two_phase: transactions have no timeout (KIP-939) and stay open until they are ended explicitly.
    :ivar identity: producer id and epoch; None until ``initialize`` has completed.
    :ivar is_outcome_unknown: the outcome of a request to add partitions or offsets is unknown.
    """

    def __init__(
        self, cluster: ClusterCore[Any], transactional_id: str, timeout_s: float, *, two_phase: bool = False
    ) -> None:
        self._cluster = cluster
        self._two_phase = two_phase
        self._timeout_ms = int(timeout_s * 1000)
        self._partitions: set[TopicPartition] = set()
        self._has_offsets = False
        self.transactional_id = transactional_id
        self.identity: ProducerIdentity | None = None
        self.is_outcome_unknown = False

    async def initialize(self) -> ProducerIdentity:
        """Request the producer id and epoch; this fences earlier producers of the id and aborts their transaction.

        A repeated call requests the next epoch.

        :raise UnsupportedVersion: the broker does not support transactions without a timeout.
        :raise BrokerRefused: the broker does not allow such transactions (``transaction.two.phase.commit.enable``).
        """
        current = self.identity or NO_PRODUCER
        what = f"producer of {self.transactional_id!r}"

        async def attempt(connection: BrokerConnection) -> ProducerIdentity:
            version = connection.version(INIT_PRODUCER_ID, TWO_PHASE_FROM if self._two_phase else INIT_MAX)
            if self._two_phase and version < TWO_PHASE_FROM:
                raise UnsupportedVersion(f"{connection.peer} does not support transactions without a timeout (KIP-939)")
            # Before version NEXT_EPOCH_FROM, a request without the current identity also returns the next epoch.
            identity = current if version >= NEXT_EPOCH_FROM else NO_PRODUCER
            body = init_body(self.transactional_id, self._timeout_ms, identity, two_phase=self._two_phase)
            response = await self._cluster.request(connection, INIT_PRODUCER_ID, body, at_most=version)
            return parse_identity(response, what)

        identity = self.identity = await self._at_coordinator(attempt)
        self.forget()
        return identity

    async def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction; called before records are sent to them."""
        new = sorted({*partitions} - self._partitions)
        if not new:
            return
        assert self.identity is not None
        body = add_partitions_body(self.transactional_id, self.identity, new)

        async def attempt(connection: BrokerConnection) -> None:
            response = await self._cluster.request(connection, ADD_PARTITIONS_TO_TXN, body, at_most=ADD_PARTITIONS_MAX)
            check_added_partitions(response, self.transactional_id)

        self.is_outcome_unknown = True
        await self._at_coordinator(attempt)
        self._partitions.update(new)
        self.is_outcome_unknown = False

    async def add_offsets(self, offsets: GroupOffsets, group: GroupIdentity, metadata: str = "") -> None:
        """Commit a group's offsets with the transaction.

        :param metadata: stored with offsets that have no metadata of their own.
        :raise BrokerRefused: a coordinator rejected the offsets.
        """
        assert self.identity is not None
        name = group.group_id
        body = producer_body(self.transactional_id, self.identity, group_id=name)
        commit_body = producer_body(
            self.transactional_id,
            self.identity,
            group_id=name,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.instance_id,
            topics=offset_rows(offsets, metadata),
        )

        async def add(connection: BrokerConnection) -> None:
            response = await self._cluster.request(connection, ADD_OFFSETS_TO_TXN, body, at_most=ADD_OFFSETS_MAX)
            check(response, f"offsets of {name} in transaction {self.transactional_id!r}")

        async def commit(connection: BrokerConnection) -> None:
            api, at_most = TXN_OFFSET_COMMIT, COMMIT_OFFSETS_MAX
            check_committed(await self._cluster.request(connection, api, commit_body, at_most=at_most), f"group {name}")

        self.is_outcome_unknown = True
        await self._at_coordinator(add)
        self._has_offsets = True
        await self._cluster.at_coordinator(CoordinatorKind.GROUP, name, commit)
        self.is_outcome_unknown = False

    async def end(self, *, commit: bool, is_uncertain: bool = False) -> None:
        """Send EndTxn if the transaction has partitions or offsets, or may have some (``is_uncertain``)."""
        if self._partitions or self._has_offsets or is_uncertain:
            assert self.identity is not None
            await end_transaction(self._cluster, self.transactional_id, self.identity, commit=commit)

    def forget(self) -> None:
        """Reset the state of the current transaction."""
        self._partitions.clear()
        self._has_offsets = self.is_outcome_unknown = False

    async def _at_coordinator(self, attempt: Callable[[BrokerConnection], Awaitable[T]]) -> T:
        return await self._cluster.at_coordinator(CoordinatorKind.TRANSACTION, self.transactional_id, attempt)
