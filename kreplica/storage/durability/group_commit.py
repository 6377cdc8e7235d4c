"""Group commit: one round of syncs in another thread makes the appends to many logs durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

from kreplica.errors import StorageError
from kreplica.runtime import Runtime
from kreplica.runtime.disk import is_out_of_descriptors, is_temporary
from kreplica.storage.durability.coalescing import Coalescing
from kreplica.storage.durability.unflushed import Unsynced

RETRY_SECONDS = 1.0
"""Delay before a sync that failed for lack of space or descriptors is retried."""


class SyncableLog(Protocol):
    """The operations of a log that group commit needs."""

    owner: Any

    @property
    def failure(self) -> StorageError | None: ...

    def unsynced(self) -> Unsynced: ...

    def mark_synced(self, synced: Unsynced) -> None: ...


LogT = TypeVar("LogT", bound=SyncableLog)


class Syncer(Generic[LogT]):
    """Syncs the logs of one directory in rounds.

    :param on_synced: called after each round with the logs whose recovery point advanced.
    :param on_failure: called for the first failed sync; the directory is not synced after that.
    """

    def __init__(
        self, runtime: Runtime, on_synced: Callable[[list[LogT]], None], on_failure: Callable[[OSError], None]
    ) -> None:
        self._runtime = runtime
        self._on_synced = on_synced
        self._on_failure = on_failure
        self._requested: dict[LogT, None] = {}
        self._rounds = Coalescing(self._round)
        self._retry: IDelayedCall | None = None
        self._broken = False

    def request(self, log: LogT) -> None:
        """Sync a log in the next round, up to its log end at that time."""
        if not self._broken:
            self._requested[log] = None
            self._rounds.request()

    def forget(self, log: LogT) -> None:
        """Cancel the requested sync of a deleted log; a running round is not affected."""
        self._requested.pop(log, None)

    def when_drained(self) -> Deferred[None]:
        """Cancel retries, and return a Deferred that fires when no sync is running or requested."""
        self.cancel()
        return self._rounds.when_idle()

    def cancel(self) -> None:
        """Cancel pending retries."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    async def _round(self) -> None:
        requested, self._requested = self._requested, {}
        try:
            work = [(log, log.unsynced()) for log in requested]
        except OSError as error:
            self._handle_failed_round(requested, error, is_temporary_error=is_temporary(error))
            return
        try:
            await self._runtime.offload.run(_sync_all, [unsynced for _, unsynced in work])
        except OSError as error:
            self._handle_failed_round(requested, error, is_temporary_error=is_out_of_descriptors(error))
            return
        for log, unsynced in work:
            log.mark_synced(unsynced)
        self._on_synced([log for log, _ in work])

    def _handle_failed_round(self, logs: dict[LogT, None], error: OSError, *, is_temporary_error: bool) -> None:
        """Retry the logs later, or stop syncing the directory.

        :param is_temporary_error: True if files could not be opened or indexes not written, but no sync failed.
        """
        if not is_temporary_error:
            self._broken = True
            self._requested.clear()
            self.cancel()
            self._on_failure(error)
            return
        self._requested = {log: None for log in logs if log.failure is None and log.owner is not None} | self._requested
        if self._retry is None:
            self._retry = self._runtime.reactor.callLater(RETRY_SECONDS, self._retry_round)

    def _retry_round(self) -> None:
        self._retry = None
        self._rounds.request()


def _sync_all(work: list[Unsynced]) -> None:
    for unsynced in work:
        unsynced.sync()
