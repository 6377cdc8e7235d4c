"""Loads file ranges into the page cache in a thread, so that sending them does not block the reactor."""

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
"""Maximum size of the range that is checked against the page cache, and loaded, at a time."""

_READ_BYTES = 256 * 1024


class PagePrefetch:
    """Loader for the connections of a server; each connection waits for at most one range.

    :param on_unreadable: called with the path of a file whose range could not be sent, and the error.
    """

    def __init__(
        self, offload: Offload, metrics: ServerMetrics, on_unreadable: Callable[[str, OSError], None] = lambda *_: None
    ) -> None:
        self.on_unreadable = on_unreadable
        self._offload = offload
        self._metrics = metrics

    def load(self, file: File, position: int, size: int) -> Deferred[None]:
        """Load a range into the page cache by reading it; fails with the file's ``OSError``."""
        self._metrics.cold_reads += 1
        return self._offload.run(_load, file, position, size)


def _load(file: File, position: int, size: int) -> None:
    for start in range(position, position + size, _READ_BYTES):
        file.read_at(start, min(_READ_BYTES, position + size - start))


class Sender(Protocol):
    """Transport that waits for a range; its methods are called later, never within ``ReadAhead.cached_bytes``."""

    def loaded(self) -> None:
        """Resume sending: the range is in the page cache."""

    def load_failed(self) -> None:
        """Close the connection: the range could not be read."""


class ReadAhead:
    """Checks whether the next bytes of one connection are in the page cache, and loads them if not.

    :ivar is_loading: a range is being loaded; the connection cannot send.
    """

    __slots__ = ("_cached_until", "_prefetch", "_sender", "is_loading")

    def __init__(self, prefetch: PagePrefetch, sender: Sender) -> None:
        self._prefetch = prefetch
        self._sender = sender
        self._cached_until = -1
        self.is_loading = False

    def cached_bytes(self, file: File, position: int, size: int) -> int:
        """Return the number of bytes from this position that can be sent now; start loading them if it is 0.

        :param size: unsent bytes of the file range, at least 1.
        """
        if position >= self._cached_until:
            size = min(size, AHEAD_BYTES)
            if not file.is_cached(position, size):
                self._load(file, position, size)
                return 0
            self._cached_until = position + size
        return min(size, self._cached_until - position)

    def reset(self) -> None:
        """Discard the result of the last check, because the next range starts."""
        self._cached_until = -1

    def _load(self, file: File, position: int, size: int) -> None:
        self.is_loading = True
        loading = self._prefetch.load(file, position, size)
        loading.addCallbacks(self._end, self._fail, callbackArgs=(position + size,), errbackArgs=(file,))
        loading.addErrback(lambda failure: log.failure("sending a response failed", failure))

    def _end(self, _: None, until: int) -> None:
        self.is_loading = False
        self._cached_until = until
        self._sender.loaded()

    def _fail(self, failure: Failure, file: File) -> None:
        self.is_loading = False
        log.failure("reading records of a response from disk failed", failure)
        if isinstance(failure.value, OSError):
            self.report_unreadable(file, failure.value)
        self._sender.load_failed()

    def report_unreadable(self, file: File, error: OSError) -> None:
        """Report a failed file to its log directory, since clients will fetch from it again."""
        self._prefetch.on_unreadable(file.path, error)
