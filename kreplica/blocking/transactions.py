"""A transaction's talk with its coordinator (KIP-98): who the producer is, what belongs to the transaction, its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, TypeVar

from kreplica.blocking.cluster import Cluster
from kreplica.blocking.connection import Connection
from kreplica.blocking.offsets import commit
from kreplica.client_core.errors import UnsupportedVersion, check
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.client_core.offsets import CommittedOffset, offset_rows
from kreplica.client_core.partition_queue import ProducerIdentity
from kreplica.client_core.transaction_requests import (
    ADD_OFFSETS_MAX,
    ADD_PARTITIONS_MAX,
    BUMP_FROM,
    COMMIT_OFFSETS_MAX,
    END_MAX,
    INIT_MAX,
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

GroupOffsets: TypeAlias = Mapping[TopicPartition, int] | Mapping[TopicPartition, CommittedOffset]


def new_producer_id(cluster: Cluster) -> ProducerIdentity:
    """An id for an idempotent producer that has no transactions."""

    def attempt() -> ProducerIdentity:
        return parse_identity(cluster.ask(INIT_PRODUCER_ID, init_body(None, 0), at_most=INIT_MAX), "producer id")

    return cluster.retrying(attempt)


def end_transaction(
    cluster: Cluster, transactional_id: str, identity: ProducerIdentity, *, commit: bool, timeout_s: float | None = None
) -> None:
    """Commit or abort a transaction, whoever wrote in it; again does no harm.

    :param identity: of the producer that wrote.
    :raise BrokerRefused: it was ended otherwise, or the producer was fenced.
    """
    body = producer_body(transactional_id, identity, committed=commit)

    def attempt(connection: Connection) -> None:
        check(connection.request(END_TXN, body, at_most=END_MAX), f"end of transaction {transactional_id!r}")

    cluster.at_coordinator(CoordinatorKind.TRANSACTION, transactional_id, attempt, timeout_s)


class Transactions:
    """One producer's transactions, one after the other.

    :param transaction_timeout_s: a transaction that lasts longer is aborted by its coordinator.
    :param two_phase: none ever is (KIP-939): who prepared it says how it ends.
    :ivar identity: None until ``initialize``.
    :ivar is_doubtful: the coordinator was asked to take something in, and what came of it is not known.
    """

    def __init__(
        self, cluster: Cluster, transactional_id: str, transaction_timeout_s: float, *, two_phase: bool = False
    ) -> None:
        self._cluster = cluster
        self._two_phase = two_phase
        self._timeout_ms = int(transaction_timeout_s * 1000)
        self._members: set[TopicPartition] = set()
        self._has_offsets = False
        self.transactional_id = transactional_id
        self.identity: ProducerIdentity | None = None
        self.is_doubtful = False

    def initialize(self) -> ProducerIdentity:
        """Become the producer of that id: earlier ones are fenced, and what they left open is aborted.

        Again: take the next epoch.

        :raise UnsupportedVersion: the broker does not know transactions without a time-out, which are wanted.
        :raise BrokerRefused: it knows them, and is not to have any (``transaction.two.phase.commit.enable``).
        """
        before = self.identity or NO_PRODUCER
        what = f"producer of {self.transactional_id!r}"

        def attempt(connection: Connection) -> ProducerIdentity:
            # Where an id cannot be carried on, asking for it anew gives the next epoch as well.
            version = connection.version(INIT_PRODUCER_ID, TWO_PHASE_FROM if self._two_phase else INIT_MAX)
            if self._two_phase and version < TWO_PHASE_FROM:
                raise UnsupportedVersion(f"{connection.peer} does not know transactions without a time-out (KIP-939)")
            identity = before if version >= BUMP_FROM else NO_PRODUCER
            body = init_body(self.transactional_id, self._timeout_ms, identity, two_phase=self._two_phase)
            return parse_identity(connection.request(INIT_PRODUCER_ID, body, at_most=version), what)

        self.identity = self._at_coordinator(attempt)
        self._forget()
        return self.identity

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Let partitions belong to the transaction, before anything is sent to them."""
        new = sorted({*partitions} - self._members)
        if not new:
            return
        body = add_partitions_body(self.transactional_id, self._identity(), new)

        def attempt(connection: Connection) -> None:
            answer = connection.request(ADD_PARTITIONS_TO_TXN, body, at_most=ADD_PARTITIONS_MAX)
            check_added_partitions(answer, self.transactional_id)

        self.is_doubtful = True
        self._at_coordinator(attempt)
        self.is_doubtful = False
        self._members.update(new)

    def add_offsets(self, group: str, offsets: GroupOffsets, metadata: str = "") -> None:
        """Let a group's offsets be committed with the transaction, or not at all."""
        rows = offset_rows(offsets, metadata)
        body = producer_body(self.transactional_id, self._identity(), group_id=group, topics=rows, member_id="")

        def attempt(connection: Connection) -> None:
            answer = connection.request(ADD_OFFSETS_TO_TXN, body, at_most=ADD_OFFSETS_MAX)
            check(answer, f"offsets of {group} in transaction {self.transactional_id!r}")

        self.is_doubtful = True
        self._at_coordinator(attempt)
        self.is_doubtful = False
        self._has_offsets = True
        self._cluster.at_coordinator(
            CoordinatorKind.GROUP,
            group,
            lambda connection: commit(connection, TXN_OFFSET_COMMIT, body, f"group {group}", COMMIT_OFFSETS_MAX),
        )

    def end(self, *, commit: bool) -> None:
        """Commit or abort what belongs to the transaction; nothing is asked where nothing does."""
        if self._members or self._has_offsets:
            end_transaction(self._cluster, self.transactional_id, self._identity(), commit=commit)
        self._forget()

    def _forget(self) -> None:
        self._members.clear()
        self._has_offsets = self.is_doubtful = False

    def _identity(self) -> ProducerIdentity:
        assert self.identity is not None
        return self.identity

    def _at_coordinator(self, attempt: Callable[[Connection], T]) -> T:
        return self._cluster.at_coordinator(CoordinatorKind.TRANSACTION, self.transactional_id, attempt)
