"""Something in ZooKeeper that a broker keeps up with: read at the start, and again whenever it changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause
from kreplica.zookeeper import SessionExpired, WatchEvent, ZooKeeperError

log = Logger()

RETRY_SECONDS = 1.0

Watcher = Callable[[WatchEvent], None]


class ZnodeWatch:
    """Owned by whoever keeps what was read.

    :param what: what is read, for the log.
    :param read: reads it, and leaves the given watcher there; called again for each change, one call at a time.
    """

    def __init__(self, reactor: Reactor, what: str, read: Callable[[Watcher], Awaitable[None]]) -> None:
        self._reactor = reactor
        self._what = what
        self._read = read
        self._reading: Deferred[None] | None = None
        self._read_again = False
        self._stopped = False

    async def start(self) -> None:
        """Read it for the first time.

        :raise ZooKeeperError: where it cannot be.
        """
        await self._read(self._changed)

    def session_renewed(self) -> None:
        """Watches are gone with the old session, and changes may have been missed."""
        self._read_soon()

    def stop(self) -> None:
        """Follow no more changes."""
        self._stopped = True
        if self._reading is not None:
            self._reading.cancel()

    def _changed(self, event: WatchEvent) -> None:
        self._read_soon()

    def _read_soon(self) -> None:
        self._read_again = True
        if self._reading is None and not self._stopped:
            self._reading = Deferred.fromCoroutine(self._follow())
            self._reading.addErrback(lambda failure: log.failure("reading {what}", failure, what=self._what))

    async def _follow(self) -> None:
        try:
            while self._read_again:
                self._read_again = False
                try:
                    await self._read(self._changed)
                except SessionExpired:
                    return  # until there is another session
                except ZooKeeperError as error:
                    log.warn("{what} could not be read: {error}", what=self._what, error=str(error))
                    self._read_again = True
                    await pause(self._reactor, RETRY_SECONDS)
        except CancelledError:
            pass  # by stop
        finally:
            self._reading = None
