"""Phases of a producer's transactions, and the effect of errors on the transaction and the producer (KIP-98)."""

from __future__ import annotations

from collections.abc import Awaitable
from enum import Enum
from typing import Any, TypeVar

from kreplica.client_core.cluster import ClusterCore
from kreplica.client_core.errors import (
    BrokerRefused,
    ClientError,
    OutcomeUnknown,
    ProducerUnusable,
    TransactionFailed,
)
from kreplica.client_core.offsets import GroupIdentity, GroupOffsets
from kreplica.client_core.partition_queue import ProducerIdentity
from kreplica.client_core.transaction_coordinator import TransactionCoordinatorClient
from kreplica.client_core.transaction_requests import is_fenced
from kreplica.errors import ErrorCode

T = TypeVar("T")


class Phase(Enum):
    """Phase of a producer's transactions; the value is the error message for an operation that it does not allow."""

    IDLE = "no transaction is open: call begin() first"
    BEGINNING = "a transaction is starting"
    OPEN = "a transaction is already open"
    ENDING = "the transaction is ending"


class TransactionCore(TransactionCoordinatorClient):
    """The transactions of one producer, one after another.

    :ivar unusable: the final error of the producer, or None.
    :ivar broken: the error after which the current transaction can only be aborted, or None.
    """

    def __init__(
        self, cluster: ClusterCore[Any], transactional_id: str, timeout_s: float, *, two_phase: bool = False
    ) -> None:
        super().__init__(cluster, transactional_id, timeout_s, two_phase=two_phase)
        self.phase = Phase.IDLE
        self.broken: TransactionFailed | None = None
        self.unusable: ClientError | None = None

    # --- state ---

    @property
    def error(self) -> ClientError | None:
        """The error that prevents sending; None if there is none."""
        return self.unusable or self.broken

    def check(self) -> None:
        """Raise the error that prevents sending, if there is one.

        :raise ClientError: the transaction cannot continue.
        """
        if self.error is not None:
            raise self.error

    def expect(self, phase: Phase) -> None:
        """Raise an error unless the current phase is the expected one.

        :raise ValueError: the current phase is a different one.
        :raise ClientError: the producer is unusable.
        """
        if self.unusable is not None:
            raise self.unusable
        if self.phase is not phase:
            raise ValueError(self.phase.value)

    def fail(self, error: ClientError) -> None:
        """Record that part of the transaction was not written, so that the transaction can only be aborted."""
        if is_fenced(error):
            self._fenced(error)
        elif self.broken is None and self.phase is not Phase.IDLE:
            self.broken = TransactionFailed(f"transaction {self.transactional_id!r}: {error}")
            self.broken.__cause__ = error

    def _fenced(self, error: ClientError) -> None:
        if self.unusable is None:
            what = f"another producer took over transactional id {self.transactional_id!r}"
            self.unusable = ProducerUnusable(f"{what}: {error}")
            self.unusable.__cause__ = error

    # --- begin and end ---

    async def begin(self) -> ProducerIdentity | None:
        """Begin a transaction.

        :return: the identity if all partitions must restart their sequences; otherwise None.
        """
        self.expect(Phase.IDLE)
        self.phase = Phase.BEGINNING
        try:
            new_identity = await self.initialize() if self.identity is None else None
        except BaseException:
            self.phase = Phase.IDLE
            raise
        self.phase = Phase.OPEN
        return new_identity

    async def initialize(self) -> ProducerIdentity:
        """Request the producer id and epoch, or the next epoch.

        :raise ProducerUnusable: another producer took over the transactional id.
        """
        return await self._detect_fencing(super().initialize())

    async def commit(self) -> None:
        """Commit the transaction, whose records have all been written.

        :raise OutcomeUnknown: the coordinator did not respond; the producer is unusable.
        :raise TransactionFailed: the coordinator rejected the commit; the transaction can only be aborted.
        """
        what = f"transaction {self.transactional_id!r}"
        try:
            await self._detect_fencing(self.end(commit=True))
        except ProducerUnusable:
            raise
        except ClientError as error:
            if error.retriable:
                self.unusable = OutcomeUnknown(f"{what}: it is unknown whether it was committed: {error}")
                raise self.unusable from error
            self.fail(error)
            if self.broken is None:
                raise
            raise self.broken from error
        except BaseException:
            self.unusable = OutcomeUnknown(f"{what}: it is unknown whether it was committed: the caller was cancelled")
            raise
        self.forget()
        self.phase = Phase.IDLE

    async def abort(self, *, is_uncertain: bool) -> ProducerIdentity | None:
        """Abort the transaction; none of its requests may be in flight.

        :param is_uncertain: the outcome of a produce request is unknown.
        :return: the identity if all partitions must restart their sequences; otherwise None.
        """
        is_uncertain = is_uncertain or self.is_outcome_unknown
        try:
            # Requesting the next epoch during an open transaction would fence this producer.
            await self._detect_fencing(self.end(commit=False, is_uncertain=is_uncertain))
        except BrokerRefused as error:
            # After an unknown outcome, INVALID_TXN_STATE means that no transaction was open.
            if not is_uncertain or error.code is not ErrorCode.INVALID_TXN_STATE:
                raise
        self.forget()
        new_identity = await self.initialize() if is_uncertain else None
        self.phase = Phase.IDLE
        return new_identity

    async def add_offsets(self, offsets: GroupOffsets, group: GroupIdentity, metadata: str = "") -> None:
        """Commit a group's offsets with the transaction.

        :param metadata: stored with offsets that have no metadata of their own.
        :raise TransactionFailed: a coordinator rejected the offsets; the transaction can only be aborted.
        """
        self.check()
        try:
            await self._detect_fencing(super().add_offsets(offsets, group, metadata))
        except ProducerUnusable:
            raise
        except ClientError as error:
            self.fail(error)
            if self.broken is None:
                raise
            raise self.broken from error

    def forget(self) -> None:
        """Reset the state of the current transaction."""
        super().forget()
        self.broken = None

    async def _detect_fencing(self, work: Awaitable[T]) -> T:
        """Return the result of a request; mark the producer as unusable if it was fenced.

        :raise ProducerUnusable: another producer took over the transactional id.
        """
        try:
            return await work
        except ClientError as error:
            if is_fenced(error):
                self._fenced(error)
                assert self.unusable is not None
                raise self.unusable from error
            raise
