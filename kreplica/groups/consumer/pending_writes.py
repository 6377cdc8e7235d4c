"""What a group has decided and has yet to be committed, and who waits for it.

A group decides at once, on top of what it has decided before, and answers when all of it is committed: of two members
that heartbeat at the same time neither sees the group as it was before the other.  One write at a time is on its way;
what is decided meanwhile leaves together, as the next.

A write whose answer was given up may be committed later all the same, or never.  So it is neither forgotten nor
replaced: it is repeated until it is committed, and nothing else of the group is written before.  Meanwhile the group
serves nobody; whoever leads the partition next knows what was committed.
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
"""A write that failed is repeated after so long."""

Answer = Callable[[ErrorCode], None]


@dataclass(slots=True)
class _Write:
    """:param base: the group before it.
    :param state: the group after it.
    :ivar records: by key: of several of the same key the last is enough.
    """

    base: GroupState
    state: GroupState
    records: dict[bytes, bytes | None] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)


class GroupWrites:
    """Owned by one group.

    :param committed: told of each state that is committed, in their order.
    :param dropped: told to go back to a state, as what followed it cannot be written at all.
    :param settled: told whenever a write has ended, with what those are told who waited for it: more may be added.
    :ivar is_failing: the last write failed, and is to be repeated.
    """

    def __init__(
        self,
        reactor: Reactor,
        log: StateLog,
        state: GroupState,
        committed: Callable[[GroupState], None],
        dropped: Callable[[GroupState], None],
        settled: Callable[[ErrorCode], None],
    ) -> None:
        self._reactor = reactor
        self._log = log
        self._committed = committed
        self._dropped = dropped
        self._settled = settled
        self._under_way: _Write | None = None
        self._next = _Write(state, state)
        self._retry: IDelayedCall | None = None
        self.is_failing = False

    @property
    def is_under_way(self) -> bool:
        """Whether a write is on its way."""
        return self._under_way is not None

    @property
    def waiting_count(self) -> int:
        """How many wait for an answer."""
        under_way = self._under_way
        return len(self._next.answers) + (len(under_way.answers) if under_way is not None else 0)

    def add(self, records: Iterable[Pair], state: GroupState, *answers: Answer) -> None:
        """Take what leads the group to a state, perhaps nothing.

        :param answers: told NONE once that state is committed, at once where it is, or why it is not.
        """
        write = self._next
        for key, value in records:
            write.records.pop(key, None)
            write.records[key] = value
        write.state = state
        write.answers += answers
        if self._under_way is None:
            self._begin()

    def close(self, code: ErrorCode) -> None:
        """Answer all who wait; nothing more is written, whatever becomes of the write that is on its way."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._give_up(code)
        self._under_way = None

    def _begin(self) -> None:
        """Write what was decided; where nothing has changed, answer."""
        write = self._next
        self._next = _Write(write.state, write.state)
        if write.records:
            self._under_way = write
            self._append()
        else:
            _tell(write.answers, ErrorCode.NONE)

    def _append(self) -> None:
        write = self._under_way
        if write is not None:
            state = write.state
            self._retry = None
            self._log.append(list(write.records.items()), lambda: self._committed(state), self._answered)

    def _answered(self, code: ErrorCode) -> None:
        write = self._under_way
        if write is None:
            return
        self.is_failing = code is not ErrorCode.NONE and code is not ErrorCode.MESSAGE_TOO_LARGE
        if code is ErrorCode.NONE:
            self._under_way = None
            answers, write.answers = write.answers, []
            self._settled(code)
            if self._under_way is None:
                self._begin()
            _tell(answers, code)
        elif code is ErrorCode.MESSAGE_TOO_LARGE:
            # What the others decided stands on it.
            self._dropped(write.base)
            self._give_up(ErrorCode.UNKNOWN_SERVER_ERROR)
            self._under_way = None
            self._next = _Write(write.base, write.base)
            self._settled(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            # Also where another may lead: if nobody does, this broker goes on, in the same epoch.
            self._retry = self._reactor.callLater(RETRY_SECONDS, self._append)
            self._give_up(code)
            self._settled(code)

    def _give_up(self, code: ErrorCode) -> None:
        """Answer all who wait; what was decided stays."""
        answers = self._next.answers
        self._next.answers = []
        if self._under_way is not None:
            answers = self._under_way.answers + answers
            self._under_way.answers = []
        _tell(answers, code)


def _tell(answers: list[Answer], code: ErrorCode) -> None:
    for answer in answers:
        answer(code)
