"""Brings ranges of files into memory away from the reactor, so that sending them does not wait for the disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.runtime.disk import File
from kreplica.runtime.offload import Offload
from kreplica.server.protocol.metrics import ServerMetrics

log = Logger()

AHEAD_BYTES = 1024 * 1024
"""How much is looked at, and loaded, at a time."""

_READ_BYTES = 256 * 1024


class ColdReads:
    """Shared by a server's connections, each of which waits for one at most.

    :param unreadable: told of a file that could not be read within an answer, or of another error at that moment.
    """

    def __init__(
        self, offload: Offload, metrics: ServerMetrics, unreadable: Callable[[str, OSError], None] = lambda *_: None
    ) -> None:
        self.unreadable = unreadable
        self._offload = offload
        self._metrics = metrics

    def load(self, file: File, position: int, size: int) -> Deferred[None]:
        """Read the range and forget it; afterwards it is in the page cache.

        The errback is the file's ``OSError``.
        """
        self._metrics.cold_reads += 1
        return self._offload.run(_load, file, position, size)


def _load(file: File, position: int, size: int) -> None:
    for start in range(position, position + size, _READ_BYTES):
        file.read_at(start, min(_READ_BYTES, position + size - start))


class Sender(Protocol):
    """Who sends what was in no memory; called later, never within ``LookAhead.in_memory``."""

    def loaded(self) -> None:
        """What had to be loaded is there."""

    def load_failed(self) -> None:
        """It could not be read."""


class LookAhead:
    """Of one connection: whether what it sends next is in memory.

    :param sender: told what became of whatever ``in_memory`` had to load.
    :ivar is_loading: nothing can be sent until that.
    """

    __slots__ = ("_cold_reads", "_sender", "_until", "is_loading")

    def __init__(self, cold_reads: ColdReads, sender: Sender) -> None:
        self._cold_reads = cold_reads
        self._sender = sender
        self._until = -1
        self.is_loading = False

    def in_memory(self, file: File, position: int, size: int) -> int:
        """How many bytes from that position can be sent now; 0 begins to load them.

        :param size: how many are left to be sent of this file, at least 1.
        """
        if position >= self._until:
            size = min(size, AHEAD_BYTES)
            if not file.is_cached(position, size):
                self._load(file, position, size)
                return 0
            self._until = position + size
        return min(size, self._until - position)

    def forget(self) -> None:
        """The next question is about another range."""
        self._until = -1

    def _load(self, file: File, position: int, size: int) -> None:
        self.is_loading = True
        loading = self._cold_reads.load(file, position, size)
        loading.addCallbacks(self._end, self._fail, callbackArgs=(position + size,), errbackArgs=(file,))
        loading.addErrback(lambda failure: log.failure("sending an answer", failure))

    def _end(self, _: None, until: int) -> None:
        self.is_loading = False
        self._until = until
        self._sender.loaded()

    def _fail(self, failure: Failure, file: File) -> None:
        self.is_loading = False
        log.failure("reading an answer from disk", failure)
        if isinstance(failure.value, OSError):
            self.unreadable(file, failure.value)
        self._sender.load_failed()

    def unreadable(self, file: File, error: OSError) -> None:
        """Tell that sending a file failed: whose it is has to know, for its readers come again."""
        self._cold_reads.unreadable(file.path, error)
