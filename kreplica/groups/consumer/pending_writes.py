"""Uncommitted state changes of a group and the requests that are waiting for them.

A group applies each change to its current, possibly uncommitted state and responds once the change is committed, so
that concurrent heartbeats see each other's changes. One write is in flight at a time; changes made in the meantime form
the next write.

A failed write may still be committed later. It is therefore retried until it is committed; until then, the group writes
nothing else and rejects requests. A new leader of the partition reads the result from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twisted.internet.interfaces import IDelayedCall

from kreplica.errors import ErrorCode
from kreplica.groups.consumer.state import GroupState
from kreplica.runtime import Reactor

if TYPE_CHECKING:
    from kreplica.coordination.state_log import Pair, StateLog

RETRY_SECONDS = 1.0
"""Delay before a failed write is retried."""

Respond = Callable[[ErrorCode], None]


@dataclass(slots=True)
class _Write:
    """One write.

    :param base: state before the write.
    :param state: state after the write.
    :ivar records: by key, because only the last record of a key is needed.
    """

    base: GroupState
    state: GroupState
    records: dict[bytes, bytes | None] = field(default_factory=dict)
    callbacks: list[Respond] = field(default_factory=list)


class GroupWrites:
    """Writes of one group; owned by the group.

    :param on_committed: called with each committed state, in order.
    :param on_dropped: called after a write that was too large has been discarded, with the state before it.
    :param on_settled: called with the error code after each attempt to write; may call ``add``.
    :ivar is_failing: the last write failed and will be retried.
    """

    def __init__(
        self,
        reactor: Reactor,
        log: StateLog,
        state: GroupState,
        on_committed: Callable[[GroupState], None],
        on_dropped: Callable[[GroupState], None],
        on_settled: Callable[[ErrorCode], None],
    ) -> None:
        self._reactor = reactor
        self._log = log
        self._on_committed = on_committed
        self._on_dropped = on_dropped
        self._on_settled = on_settled
        self._in_flight: _Write | None = None
        self._next = _Write(state, state)
        self._retry: IDelayedCall | None = None
        self.is_failing = False

    @property
    def is_in_flight(self) -> bool:
        """True while a write is in flight."""
        return self._in_flight is not None

    @property
    def waiting_count(self) -> int:
        """Number of requests that are waiting for a response."""
        in_flight = self._in_flight
        return len(self._next.callbacks) + (len(in_flight.callbacks) if in_flight is not None else 0)

    def add(self, records: Iterable[Pair], state: GroupState, *callbacks: Respond) -> None:
        """Write the records that lead to a state, now or after the write in flight.

        :param records: may be empty.
        :param callbacks: called with NONE once the state is committed, otherwise with the error.
        """
        write = self._next
        for key, value in records:
            write.records.pop(key, None)
            write.records[key] = value
        write.state = state
        write.callbacks += callbacks
        if self._in_flight is None:
            self._start_next()

    def close(self, code: ErrorCode) -> None:
        """Respond to all waiting requests and stop writing; the write in flight may still be committed."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._fail_waiting(code)
        self._in_flight = None

    def _start_next(self) -> None:
        """Start the next write; if there are no changes, respond immediately."""
        write = self._next
        self._next = _Write(write.state, write.state)
        if write.records:
            self._in_flight = write
            self._append()
        else:
            _call_all(write.callbacks, ErrorCode.NONE)

    def _append(self) -> None:
        write = self._in_flight
        if write is not None:
            state = write.state
            self._retry = None
            self._log.append(list(write.records.items()), lambda: self._on_committed(state), self._on_append_done)

    def _on_append_done(self, code: ErrorCode) -> None:
        write = self._in_flight
        if write is None:
            return
        self.is_failing = code is not ErrorCode.NONE and code is not ErrorCode.MESSAGE_TOO_LARGE
        if code is ErrorCode.NONE:
            self._in_flight = None
            callbacks, write.callbacks = write.callbacks, []
            self._on_settled(code)
            if self._in_flight is None:
                self._start_next()
            _call_all(callbacks, code)
        elif code is ErrorCode.MESSAGE_TOO_LARGE:
            # Later changes are based on the discarded state, so they are discarded too.
            self._on_dropped(write.base)
            self._fail_waiting(ErrorCode.UNKNOWN_SERVER_ERROR)
            self._in_flight = None
            self._next = _Write(write.base, write.base)
            self._on_settled(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            # Retry even though another broker may be the leader by now; if none is, this broker continues in its epoch.
            self._retry = self._reactor.callLater(RETRY_SECONDS, self._append)
            self._fail_waiting(code)
            self._on_settled(code)

    def _fail_waiting(self, code: ErrorCode) -> None:
        """Fail all waiting requests; the state changes remain pending."""
        callbacks = self._next.callbacks
        self._next.callbacks = []
        if self._in_flight is not None:
            callbacks = self._in_flight.callbacks + callbacks
            self._in_flight.callbacks = []
        _call_all(callbacks, code)


def _call_all(callbacks: list[Respond], code: ErrorCode) -> None:
    for respond in callbacks:
        respond(code)
