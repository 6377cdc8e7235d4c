"""Group commit: many logs, and many appends to each, become durable by one round of syncs off the reactor's thread."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from kreplica.runtime.offload import Offload
from kreplica.storage.coalescing import Coalescing
from kreplica.storage.durability import Unsynced
from kreplica.storage.log import Log


class Flusher:
    """Syncs the logs of one directory, round by round.

    :param synced: told after each round which logs have a higher recovery point now.
    :param failed: told of the first sync that failed; nothing is synced after that.
    """

    def __init__(
        self, offload: Offload, synced: Callable[[list[Log]], None], failed: Callable[[OSError], None]
    ) -> None:
        self._offload = offload
        self._synced = synced
        self._failed = failed
        self._wanted: dict[Log, None] = {}
        self._rounds = Coalescing(self._round)
        self._broken = False

    def request(self, log: Log) -> None:
        """Have all that the log holds when the next round begins synced."""
        if not self._broken:
            self._wanted[log] = None
            self._rounds.request()

    def forget(self, log: Log) -> None:
        """The log is deleted; a round that has begun ends by itself."""
        self._wanted.pop(log, None)

    def drained(self) -> Deferred[None]:
        """Fires when nothing is left to sync, or once a sync has failed."""
        return self._rounds.idle()

    async def _round(self) -> None:
        wanted, self._wanted = self._wanted, {}
        try:
            work = [(log, log.unsynced()) for log in wanted]
            await self._offload.run(_sync_all, [unsynced for _, unsynced in work])
        except OSError as error:
            self._broken = True
            self._wanted.clear()
            self._failed(error)
            return
        for log, unsynced in work:
            log.mark_synced(unsynced)
        self._synced([log for log, _ in work])


def _sync_all(work: list[Unsynced]) -> None:
    for unsynced in work:
        unsynced.sync()
