"""Continues ZooKeeper requests after a lost connection, so that the handler that sent them continues too.

A repeated read also sets its watch again.  A multi may or may not have been applied: its znodes are read again, and it
is sent again only if it was not applied.  All this happens in the same session; if the session expires, every request
fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.zookeeper import (
    Check,
    ConnectionLoss,
    Create,
    Created,
    Delete,
    NotSent,
    Operation,
    OperationResult,
    Read,
    ReadResult,
    SetData,
    Stat,
    WatchEvent,
    read_all,
)
from kreplica.zookeeper.operations import ANY_VERSION

log = Logger()

T = TypeVar("T")

LOSSES_MAX = 10
"""Number of lost connections after which a request fails.

The request itself may be the cause, for example if its response is too large.
"""

CurrentZnode = tuple[bytes, Stat] | None
"""Data and stat of a znode, or None if it does not exist."""


class Outcome(Enum):
    """Outcome of an operation without a response, according to its znode."""

    APPLIED = "applied"
    NOT_APPLIED = "not applied"
    ABSENT = "absent"
    """The znode that a Delete removes does not exist; any client may have removed it."""
    MISSING = "missing"
    """The znode that the operation writes does not exist; another client may have removed it since."""
    UNKNOWN = "unknown"
    """Another client has changed the znode since."""


class Client(Protocol):
    """The subset of the client's methods that a controller's term uses."""

    def exists(self, path: str, watch: Callable[[WatchEvent], None] | None = None) -> Deferred[Stat | None]: ...

    def get_data(
        self, path: str, watch: Callable[[WatchEvent], None] | None = None
    ) -> Deferred[tuple[bytes, Stat]]: ...

    def get_children(self, path: str, watch: Callable[[WatchEvent], None] | None = None) -> Deferred[list[str]]: ...

    def multi(self, operations: Sequence[Operation]) -> Deferred[list[OperationResult]]: ...

    def multi_read(self, reads: Sequence[Read]) -> Deferred[list[ReadResult]]: ...


class ResumingClient:
    """ZooKeeper client whose requests survive a lost connection.

    A request fails with ``ConnectionLoss`` if its outcome cannot be determined or after ``LOSSES_MAX`` losses, and with
    ``NotSent`` if there is no connection for the length of the session timeout.

    :param last_zxid: returns the last transaction ID that the session has seen.
    :param resumed: called for each request that is continued.
    """

    def __init__(self, client: Client, last_zxid: Callable[[], int], resumed: Callable[[], None]) -> None:
        self._client = client
        self._last_zxid = last_zxid
        self._resumed = resumed

    def exists(self, path: str, watch: Callable[[WatchEvent], None] | None = None) -> Deferred[Stat | None]:
        return self.repeat_if_lost(lambda: self._client.exists(path, watch))

    def get_data(
        self, path: str, watch: Callable[[WatchEvent], None] | None = None
    ) -> Deferred[tuple[bytes, Stat]]:
        return self.repeat_if_lost(lambda: self._client.get_data(path, watch))

    def get_children(self, path: str, watch: Callable[[WatchEvent], None] | None = None) -> Deferred[list[str]]:
        return self.repeat_if_lost(lambda: self._client.get_children(path, watch))

    def multi_read(self, reads: Sequence[Read]) -> Deferred[list[ReadResult]]:
        return self.repeat_if_lost(lambda: self._client.multi_read(reads))

    def repeat_if_lost(self, read: Callable[[], Deferred[T]]) -> Deferred[T]:
        """Start a request that changes nothing, and repeat it after a lost connection."""
        return read().addErrback(self._repeat, read, 1)

    def _repeat(self, failure: Failure, read: Callable[[], Deferred[T]], losses: int) -> Deferred[T]:
        if not _is_lost(failure) or losses >= LOSSES_MAX:
            return fail(failure)
        self._resumed()
        return read().addErrback(self._repeat, read, losses + 1)

    def multi(self, operations: Sequence[Operation]) -> Deferred[list[OperationResult]]:
        """Apply operations; the first one is the check of the controller epoch."""
        return self._client.multi(operations).addErrback(self._resume, operations, 1)

    def _resume(
        self, failure: Failure, operations: Sequence[Operation], losses: int
    ) -> Deferred[list[OperationResult]]:
        if not _is_lost(failure) or losses >= LOSSES_MAX:
            return fail(failure)
        self._resumed()
        # Responses arrive in order, so a transaction of this multi is newer than the last one that was seen.
        return Deferred.fromCoroutine(self._continue(failure, operations, losses, self._last_zxid()))

    async def _continue(
        self, failure: Failure, operations: Sequence[Operation], losses: int, zxid: int
    ) -> list[OperationResult]:
        await self._catch_up(operations[0])
        paths = [operation.path for operation in operations]
        results = await read_all(self, paths)
        znodes = [result if isinstance(result, tuple) else None for result in results]
        outcome = outcome_of_multi(operations, znodes, zxid)
        log.warn(
            "controller: the connection to ZooKeeper was lost during a write of {count} operations ({path} ...); "
            "outcome: {outcome}",
            count=len(operations) - 1,
            path=operations[-1].path,
            outcome=outcome.value,
        )
        if outcome is Outcome.APPLIED:
            return [_result(operation, znode) for operation, znode in zip(operations, znodes, strict=True)]
        if outcome is Outcome.NOT_APPLIED:
            return await self._client.multi(operations).addErrback(self._resume, operations, losses + 1)
        assert failure.value is not None
        raise failure.value

    async def _catch_up(self, check: Operation) -> None:
        """Wait until the lost multi has been applied or can no longer be applied, so that reads show its outcome.

        A write waits for all earlier writes of the session.  It also fails if another controller has been elected.

        :param check: the check of the controller epoch.
        """
        await self.repeat_if_lost(lambda: self._client.multi([check]))


def outcome_of_multi(operations: Sequence[Operation], znodes: Sequence[CurrentZnode], zxid: int) -> Outcome:
    """Return APPLIED or NOT_APPLIED for a multi, or UNKNOWN if its znodes do not show which.

    A multi is atomic, so a single operation with a known outcome is sufficient.

    :param znodes: the current state of each operation's znode.
    :param zxid: last transaction before the multi.
    """
    outcomes = {
        outcome_of(operation, znode, zxid)
        for operation, znode in zip(operations, znodes, strict=True)
        if not isinstance(operation, Check)
    }
    if Outcome.NOT_APPLIED in outcomes:
        return Outcome.NOT_APPLIED
    if Outcome.APPLIED in outcomes:
        return Outcome.APPLIED if Outcome.MISSING not in outcomes else Outcome.UNKNOWN
    if Outcome.UNKNOWN in outcomes:
        return Outcome.UNKNOWN
    return Outcome.NOT_APPLIED if Outcome.MISSING in outcomes else Outcome.APPLIED


def outcome_of(operation: Create | SetData | Delete, znode: CurrentZnode, zxid: int) -> Outcome:
    """Derive the outcome of an operation from the current state of its znode.

    :param zxid: last transaction before the operation.
    """
    if isinstance(operation, Delete):
        if znode is None:
            return Outcome.ABSENT
        return Outcome.NOT_APPLIED if znode[1].czxid <= zxid else Outcome.UNKNOWN
    if znode is None:
        return Outcome.MISSING
    data, stat = znode
    data_matches = data == (operation.data or b"")
    if isinstance(operation, SetData) and operation.version != ANY_VERSION:
        if stat.version == operation.version + 1:  # only one write can replace a version
            return Outcome.APPLIED if data_matches else Outcome.NOT_APPLIED
        return Outcome.NOT_APPLIED if stat.version == operation.version else Outcome.UNKNOWN
    if stat.mzxid <= zxid:
        return Outcome.NOT_APPLIED
    is_unchanged_since = isinstance(operation, SetData) or stat.version == 0
    return Outcome.APPLIED if data_matches and is_unchanged_since else Outcome.UNKNOWN


def _is_lost(failure: Failure) -> bool:
    """Return True if the request was sent, and its connection was lost before the response."""
    return isinstance(failure.value, ConnectionLoss) and not isinstance(failure.value, NotSent)


def _result(operation: Operation, znode: CurrentZnode) -> OperationResult:
    if isinstance(operation, Check | Delete) or znode is None:
        return None
    return Created(operation.path, znode[1]) if isinstance(operation, Create) else znode[1]
