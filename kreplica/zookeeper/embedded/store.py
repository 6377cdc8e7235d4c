"""What keeps the coordinator's state: the interface, and the values that go through it.

A store is given the state that changed, not operations: the rows of znodes and sessions as they are after a group of
transactions.  Writing such a group twice, or on top of later state that it is part of, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from twisted.internet.defer import Deferred, succeed

from kreplica.zookeeper.embedded.sessions import SessionRow
from kreplica.zookeeper.embedded.znode import ZnodeRow


@dataclass(frozen=True, slots=True)
class Changes:
    """What one group of transactions changed; all of it becomes durable, or none.

    :param zxid: of the last transaction.
    """

    zxid: int
    znodes: Sequence[ZnodeRow] = ()
    deleted_paths: Sequence[str] = ()
    sessions: Sequence[SessionRow] = ()
    closed_sessions: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Image:
    """The whole durable state.

    :param zxid: of the last durable transaction; 0 where there never was one.
    """

    zxid: int = 0
    znodes: Iterable[ZnodeRow] = field(default=())
    sessions: Iterable[SessionRow] = field(default=())


class Store(Protocol):
    """Keeps the state.  One owner; ``append`` is not called again before the last one is durable."""

    def load(self) -> Deferred[Image]:
        """Open, and read all that is durable; called once, first.

        :raise StorageError: where it cannot be used, with its path and the reason.
        """

    def append(self, changes: Changes) -> Deferred[None]:
        """Make changes durable; the answer comes when they are.

        A failure says nothing about what is durable: the owner stops, and starts again from ``load``.
        """

    def close(self) -> Deferred[None]:
        """Release the files."""


class MemoryStore:
    """Keeps nothing: for tests and for throw-away coordinators, where a stop is the end of everything."""

    def load(self) -> Deferred[Image]:
        return succeed(Image())

    def append(self, changes: Changes) -> Deferred[None]:
        return succeed(None)

    def close(self) -> Deferred[None]:
        return succeed(None)
