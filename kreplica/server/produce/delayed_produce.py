"""What was appended and may not be acknowledged yet: it waits until those replicas have it that were asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kreplica.errors import ErrorCode
from kreplica.replication import DelayedOperation, Partition, Role
from kreplica.runtime import Reactor
from kreplica.server.protocol.request import Request

ALL_IN_SYNC = -1
NO_ANSWER = 0
LEADER_ONLY = 1

Row = dict[str, Any]


def is_reached(partition: Partition, offset: int, acks: int) -> bool:
    """Whether all below an offset may be acknowledged.

    With ``acks=all`` that takes all in-sync replicas; with ``acks=1`` only this one, which has it at once unless the
    topic's ``flush.messages=1`` asks for a sync first.
    """
    if acks == ALL_IN_SYNC:
        return partition.is_committed(offset)
    return acks == NO_ANSWER or partition.is_durable(offset)


class Pending:
    """One partition's batch that may not be acknowledged yet.

    A new leader epoch is no reason to give up: as long as this broker leads without a break the batch stays where it
    is, and a producer that is not idempotent would write it again.

    :ivar row: of the answer; has the error code in the end.
    """

    __slots__ = ("_leadership_generation", "acks", "offset", "partition", "row")

    def __init__(self, partition: Partition, offset: int, acks: int, row: Row) -> None:
        self.partition = partition
        self._leadership_generation = partition.leadership_generation
        self.offset = offset
        self.acks = acks
        self.row = row

    def is_over(self) -> bool:
        """Whether it may be, or never will be by this leader (the row says so then)."""
        partition = self.partition
        if partition.leadership_generation != self._leadership_generation:
            offline = partition.role is Role.OFFLINE
            self._fail(ErrorCode.KAFKA_STORAGE_ERROR if offline else ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return True
        if not is_reached(partition, self.offset, self.acks):
            return False
        if self._lacks_replicas:
            self._fail(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return True

    def expire(self) -> None:
        """The time is up: it may be acknowledged later, but by then nobody asks."""
        if not self.is_over():
            lacks = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            self._fail(lacks if self._lacks_replicas else ErrorCode.REQUEST_TIMED_OUT)

    @property
    def _lacks_replicas(self) -> bool:
        partition = self.partition
        return self.acks == ALL_IN_SYNC and len(partition.leadership.isr) < partition.in_sync_required

    def _fail(self, code: ErrorCode) -> None:
        self.row["error_code"] = int(code)
        if "base_offset" in self.row:
            self.row["base_offset"] = -1


class WaitingForReplicas:
    """A request that may not be acknowledged yet, for at least one of its partitions.

    :param answer: called once, when all of them are over; not where the client has gone.
    """

    def __init__(
        self,
        reactor: Reactor,
        request: Request,
        pending: list[Pending],
        timeout_s: float,
        answer: Callable[[], None],
    ) -> None:
        self._pending = pending
        self._answer = answer
        waiting = DelayedOperation(reactor, [p.partition for p in pending], timeout_s, self._look, self._expire)
        request.on_abandoned(waiting.abandon)

    def _look(self, changed: set[Partition]) -> bool:
        self._pending = [p for p in self._pending if p.partition not in changed or not p.is_over()]
        if not self._pending:
            self._answer()
        return not self._pending

    def _expire(self) -> None:
        for pending in self._pending:
            pending.expire()
        self._answer()
