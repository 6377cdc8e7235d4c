"""Interface of the stores that make the server's state durable, and the values that they exchange with the server.

A store receives changed state, not operations: the rows of the znodes and sessions that a group of transactions
changed.  Writing a group is idempotent.
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
    """Changes of one group of transactions, made durable atomically.

    :param zxid: ID of the last transaction.
    """

    zxid: int
    znodes: Sequence[ZnodeRow] = ()
    deleted_paths: Sequence[str] = ()
    sessions: Sequence[SessionRow] = ()
    closed_sessions: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Image:
    """The whole durable state.

    :param zxid: last durable transaction; 0 if there is none.
    """

    zxid: int = 0
    znodes: Iterable[ZnodeRow] = field(default=())
    sessions: Iterable[SessionRow] = field(default=())


class Store(Protocol):
    """Stores the state durably; the owner calls ``append`` again only after the previous call has completed."""

    def load(self) -> Deferred[Image]:
        """Open the store and read the durable state; called once, before the other methods.

        :raise StorageError: the store cannot be used; the message contains its path and the reason.
        """

    def append(self, changes: Changes) -> Deferred[None]:
        """Make changes durable.

        After a failure the durable state is unknown: the owner must stop, and start again with ``load``.
        """

    def close(self) -> Deferred[None]:
        """Close the store's files."""


class MemoryStore:
    """Store without durability, for tests and temporary servers."""

    def load(self) -> Deferred[Image]:
        return succeed(Image())

    def append(self, changes: Changes) -> Deferred[None]:
        return succeed(None)

    def close(self) -> Deferred[None]:
        return succeed(None)
