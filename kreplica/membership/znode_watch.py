"""Keeps a copy of a znode's data up to date."""

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
    """Watch of one znode; owned by the object that stores the data.

    :param what: name of the data, for log messages.
    :param read: reads the data and sets the given watcher; called again after each change, one call at a time.
    """

    def __init__(self, reactor: Reactor, what: str, read: Callable[[Watcher], Awaitable[None]]) -> None:
        self._reactor = reactor
        self._what = what
        self._read = read
        self._reading: Deferred[None] | None = None
        self._read_again = False
        self._stopped = False

    async def start(self) -> None:
        """Read the data for the first time.

        :raise ZooKeeperError: the data cannot be read.
        """
        await self._read(self._changed)

    def session_renewed(self) -> None:
        """Read again, because watches of the old session are lost and changes may have been missed."""
        self._schedule_read()

    def stop(self) -> None:
        """Stop watching for changes."""
        self._stopped = True
        if self._reading is not None:
            self._reading.cancel()

    def _changed(self, event: WatchEvent) -> None:
        self._schedule_read()

    def _schedule_read(self) -> None:
        self._read_again = True
        if self._reading is None and not self._stopped:
            self._reading = reading = Deferred.fromCoroutine(self._run_scheduled_reads())
            reading.addErrback(lambda failure: log.failure("cannot read {what}", failure, what=self._what))
            reading.addBoth(self._reads_ended)  # at once if the session has expired

    def _reads_ended(self, _: None) -> None:
        self._reading = None

    async def _run_scheduled_reads(self) -> None:
        try:
            while self._read_again:
                self._read_again = False
                try:
                    await self._read(self._changed)
                except SessionExpired:
                    return  # continues with session_renewed
                except ZooKeeperError as error:
                    log.warn("cannot read {what}: {error}", what=self._what, error=str(error))
                    self._read_again = True
                    await pause(self._reactor, RETRY_SECONDS)
        except CancelledError:
            pass  # cancelled by stop
