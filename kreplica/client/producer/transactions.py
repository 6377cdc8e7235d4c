"""Transactions of one producer, one after the other: what belongs to them, and how they end (KIP-98)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.client.cluster import Cluster
from kreplica.client.connection import Connection
from kreplica.client.group.membership import GroupIdentity
from kreplica.client_core.errors import (
    BrokerRefused,
    ClientError,
    OutcomeUnknown,
    ProducerUnusable,
    TransactionFailed,
    check,
)
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
    add_partitions_body,
    check_added_partitions,
    check_rows,
    init_body,
    is_fenced,
    parse_identity,
    producer_body,
)
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.wire.messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)

T = TypeVar("T")

log = Logger()


class Phase(Enum):
    """Of a producer's transactions."""

    IDLE = "no transaction is open: begin first"
    BEGINNING = "a transaction is being begun"
    OPEN = "a transaction is open already"
    ENDING = "the transaction is being ended"


class Transactions:
    """Owned by a producer, which closes it; the papers of the batches in transactions.

    :param came: is called when a partition may be sent to, or nothing may be sent any more.
    :ivar unusable: why there will be no more transactions; ``broken`` why this one can only be aborted.
    :ivar is_doubtful: the coordinator was asked to take something in, and what came of it is not known.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_s: float, came: Callable[[], None]) -> None:
        self._cluster = cluster
        self._timeout_ms = int(timeout_s * 1000)
        self._came = came
        self._identity: ProducerIdentity | None = None
        self._members: set[TopicPartition] = set()
        self._wanted: dict[TopicPartition, None] = {}
        self._joining: Deferred[None] | None = None
        self._has_offsets = False
        self.transactional_id = transactional_id
        self.phase = Phase.IDLE
        self.broken: TransactionFailed | None = None
        self.unusable: ClientError | None = None
        self.is_doubtful = False

    # --- papers ---

    @property
    def error(self) -> ClientError | None:
        """Why nothing more may be sent; None as a rule."""
        return self.unusable or self.broken

    def identity(self) -> ProducerIdentity | None:
        """The producer's; known since the first transaction was begun."""
        return self._identity

    def renew(self) -> None:
        """Never within a transaction: numbers that are used up end it."""

    def admit(self, partition: TopicPartition) -> bool:
        """Whether a partition belongs to the transaction; where not, that is asked for."""
        if partition in self._members:
            return True
        self._wanted[partition] = None
        if self._joining is None:
            self._joining = Deferred.fromCoroutine(self._join())
            self._joining.addBoth(self._joined)
        return False

    def fail(self, error: ClientError) -> None:
        """A part of the transaction is missing: it can only be aborted, or the producer can do nothing more."""
        if is_fenced(error):
            self._fenced(error)
        elif self.broken is None and self.phase is not Phase.IDLE:
            self.broken = TransactionFailed(f"transaction {self.transactional_id!r}: {error}")
            self.broken.__cause__ = error

    def _fenced(self, error: ClientError) -> None:
        if self.unusable is None:
            self.unusable = ProducerUnusable(f"another producer took {self.transactional_id!r} over: {error}")
            self.unusable.__cause__ = error

    # --- its course ---

    def expect(self, phase: Phase) -> None:
        """Begin something that only makes sense in a phase.

        :raise ValueError: it is another one.
        :raise ClientError: the producer is of no use any more.
        """
        if self.unusable is not None:
            raise self.unusable
        if self.phase is not phase:
            raise ValueError(self.phase.value)

    def check(self) -> None:
        """:raise ClientError: the transaction cannot go on."""
        if self.error is not None:
            raise self.error

    async def begin(self) -> ProducerIdentity | None:
        """Begin one.

        :return: the identity with which all partitions begin anew; None where they go on.
        """
        self.expect(Phase.IDLE)
        self.phase = Phase.BEGINNING
        try:
            began = await self.initialize() if self._identity is None else None
        except BaseException:
            self.phase = Phase.IDLE
            raise
        self.phase = Phase.OPEN
        return began

    async def initialize(self) -> ProducerIdentity:
        """Become the producer of that id: earlier ones are fenced, and what they left open is aborted.

        Again: take the next epoch.

        :raise ProducerUnusable: somebody else has become that.
        """
        before = self._identity or NO_PRODUCER
        what = f"producer of {self.transactional_id!r}"

        async def attempt(connection: Connection) -> ProducerIdentity:
            # Where an id cannot be carried on, asking for it anew gives the next epoch as well.
            known = connection.version(INIT_PRODUCER_ID, INIT_MAX) >= BUMP_FROM
            body = init_body(self.transactional_id, self._timeout_ms, before if known else NO_PRODUCER)
            answer = await self._cluster.request(connection, INIT_PRODUCER_ID, body, at_most=INIT_MAX)
            return parse_identity(answer, what)

        identity = self._identity = await self._guarded(self._at_coordinator(attempt))
        self._forget()
        return identity

    async def add_offsets(self, offsets: Mapping[TopicPartition, int | CommittedOffset], group: GroupIdentity) -> None:
        """Let a group's offsets be committed with the transaction, or not at all.

        :raise TransactionFailed: they are not taken: the transaction can only be aborted.
        """
        self.check()
        try:
            await self._guarded(self._add_offsets(offsets, group))
        except ProducerUnusable:
            raise
        except ClientError as error:
            self.fail(error)
            self._came()
            raise self.broken or error from error

    async def _add_offsets(self, offsets: Mapping[TopicPartition, int | CommittedOffset], group: GroupIdentity) -> None:
        name, what = group.group_id, f"offsets of {group.group_id} in transaction {self.transactional_id!r}"
        body = self._body(group_id=name)

        async def add(connection: Connection) -> None:
            check(await self._cluster.request(connection, ADD_OFFSETS_TO_TXN, body, at_most=ADD_OFFSETS_MAX), what)

        self.is_doubtful = True
        await self._at_coordinator(add)
        self.is_doubtful, self._has_offsets = False, True
        commit_body = self._body(
            group_id=name,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.instance_id,
            topics=offset_rows(offsets),
        )

        async def commit(connection: Connection) -> None:
            api, at_most = TXN_OFFSET_COMMIT, COMMIT_OFFSETS_MAX
            check_rows(await self._cluster.request(connection, api, commit_body, at_most=at_most), f"group {name}")

        self.is_doubtful = True
        await self._cluster.at_coordinator(CoordinatorKind.GROUP, name, commit)
        self.is_doubtful = False

    async def commit(self) -> None:
        """Commit what belongs to the transaction, all of which was written.

        :raise OutcomeUnknown: the coordinator never said whether it is committed; there will be no more transactions.
        :raise TransactionFailed: the coordinator refuses: it can only be aborted.
        """
        what = f"transaction {self.transactional_id!r}"
        try:
            await self._guarded(self._end(commit=True))
        except ProducerUnusable:
            raise
        except ClientError as error:
            if error.retriable:
                self.unusable = OutcomeUnknown(f"{what}: whether it was committed is not known: {error}")
                raise self.unusable from error
            self.fail(error)
            raise self.broken or error from error
        except BaseException:
            self.unusable = OutcomeUnknown(f"{what}: whether it was committed is not known: nobody waited for that")
            raise
        self._forget()
        self.phase = Phase.IDLE

    async def abort(self, *, doubtful: bool) -> ProducerIdentity | None:
        """Abort what belongs to the transaction, of which nothing is under way any more.

        :param doubtful: something was sent of which nobody knows whether it is written.
        :return: the identity with which all partitions begin anew; None where they go on.
        """
        doubtful = doubtful or self.is_doubtful
        try:
            # Also before the next epoch is asked for: while the transaction is open, that fences this very producer.
            await self._guarded(self._end(commit=False, doubtful=doubtful))
        except BrokerRefused as error:
            if not doubtful or error.code is not ErrorCode.INVALID_TXN_STATE:
                raise  # else nothing was open
        self._forget()
        began = await self.initialize() if doubtful else None
        self.phase = Phase.IDLE
        return began

    def close(self, error: ClientError) -> None:
        """Ask no more."""
        self.unusable = error
        if self._joining is not None:
            self._joining.cancel()

    # --- the coordinator ---

    async def _join(self) -> None:
        """Let partitions belong to the transaction: all those that are wanted in this turn of the reactor, at once."""
        await pause(self._cluster.surroundings.reactor, 0)
        while self._wanted and self.error is None:
            partitions = sorted(self._wanted)
            self._wanted.clear()
            await self._add_partitions(partitions)
            self._members.update(partitions)
            self._came()

    async def _add_partitions(self, partitions: list[TopicPartition]) -> None:
        assert self._identity is not None
        body = add_partitions_body(self.transactional_id, self._identity, partitions)

        async def attempt(connection: Connection) -> None:
            answer = await self._cluster.request(connection, ADD_PARTITIONS_TO_TXN, body, at_most=ADD_PARTITIONS_MAX)
            check_added_partitions(answer, self.transactional_id)

        self.is_doubtful = True
        await self._at_coordinator(attempt)
        self.is_doubtful = False

    def _joined(self, outcome: Failure | None) -> None:
        self._joining = None
        if not isinstance(outcome, Failure) or outcome.check(CancelledError):
            return
        error = outcome.value
        if not isinstance(error, ClientError):
            log.failure("adding partitions to transaction {name}", outcome, name=self.transactional_id)
            error = ClientError(str(error))
        self._wanted.clear()
        self.fail(error)
        self._came()

    async def _end(self, *, commit: bool, doubtful: bool = False) -> None:
        """Nothing is asked where nothing belongs to the transaction."""
        if not (self._members or self._has_offsets or doubtful):
            return
        body = self._body(committed=commit)

        async def attempt(connection: Connection) -> None:
            answer = await self._cluster.request(connection, END_TXN, body, at_most=END_MAX)
            check(answer, f"end of transaction {self.transactional_id!r}")

        await self._at_coordinator(attempt)

    def _forget(self) -> None:
        self._members.clear()
        self._wanted.clear()
        self.broken = None
        self._has_offsets = self.is_doubtful = False

    def _body(self, **more: Any) -> dict[str, Any]:
        assert self._identity is not None
        return producer_body(self.transactional_id, self._identity, **more)

    async def _at_coordinator(self, attempt: Callable[[Connection], Awaitable[T]]) -> T:
        return await self._cluster.at_coordinator(CoordinatorKind.TRANSACTION, self.transactional_id, attempt)

    async def _guarded(self, work: Awaitable[T]) -> T:
        """:raise ProducerUnusable: somebody else took the transactional id over."""
        try:
            return await work
        except ClientError as error:
            if is_fenced(error):
                self._fenced(error)
                self._came()
                assert self.unusable is not None
                raise self.unusable from error
            raise
