"""Produce requests that wait until enough replicas have their batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kreplica.errors import ErrorCode
from kreplica.replication import DelayedOperation, Partition
from kreplica.runtime import Reactor
from kreplica.server.protocol.request import Request

ALL_IN_SYNC = -1
NO_RESPONSE = 0
LEADER_ONLY = 1

Row = dict[str, Any]


def is_reached(partition: Partition, offset: int, acks: int) -> bool:
    """Return whether all records below an offset may be acknowledged.

    ``acks=all`` requires all in-sync replicas.  ``acks=1`` requires only the leader, which has the records at once
    unless ``flush.messages=1`` of the topic requires an fsync first.
    """
    if acks == ALL_IN_SYNC:
        return partition.is_committed(offset)
    return acks == NO_RESPONSE or partition.is_durable(offset)


class Pending:
    """Batch of one partition that may not be acknowledged yet.

    A new leader epoch does not fail the batch: while this broker leads without interruption the batch keeps its offset,
    and an error would make a producer that is not idempotent write it twice.

    :ivar row: response row; an error is written into it.
    """

    __slots__ = ("_leadership_generation", "acks", "offset", "partition", "row")

    def __init__(self, partition: Partition, offset: int, acks: int, row: Row) -> None:
        self.partition = partition
        self._leadership_generation = partition.leadership_generation
        self.offset = offset
        self.acks = acks
        self.row = row

    def is_complete(self) -> bool:
        """Return whether the batch may be acknowledged or has failed; writes the error into the row."""
        partition = self.partition
        if partition.leadership_generation != self._leadership_generation:
            self._fail(partition.role.unavailable().code)
            return True
        if not is_reached(partition, self.offset, self.acks):
            return False
        if self._lacks_replicas:
            self._fail(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return True

    def expire(self) -> None:
        """Write the timeout error into the row, unless the batch has completed in the meantime."""
        if not self.is_complete():
            lacks_replicas = self._lacks_replicas
            self._fail(
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if lacks_replicas else ErrorCode.REQUEST_TIMED_OUT
            )

    @property
    def _lacks_replicas(self) -> bool:
        partition = self.partition
        return self.acks == ALL_IN_SYNC and len(partition.leadership.isr) < partition.in_sync_required

    def _fail(self, code: ErrorCode) -> None:
        self.row["error_code"] = int(code)
        if "base_offset" in self.row:
            self.row["base_offset"] = -1


class DelayedProduce:
    """Request with at least one batch that may not be acknowledged yet.

    :param respond: called once, when no batch is pending; never if the connection closes first.
    """

    def __init__(
        self,
        reactor: Reactor,
        request: Request,
        pending: list[Pending],
        timeout_s: float,
        respond: Callable[[], None],
    ) -> None:
        self._pending = pending
        self._respond = respond
        request.has_waited = True
        waiting = DelayedOperation(reactor, [p.partition for p in pending], timeout_s, self._try_complete, self._expire)
        request.on_abandoned(waiting.abandon)

    def _try_complete(self, changed: set[Partition]) -> bool:
        self._pending = [p for p in self._pending if p.partition not in changed or not p.is_complete()]
        if not self._pending:
            self._respond()
        return not self._pending

    def _expire(self) -> None:
        for pending in self._pending:
            pending.expire()
        self._respond()
