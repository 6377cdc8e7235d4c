"""Tells the controller that a log directory failed, so that others lead what this broker led from it (KIP-112)."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause
from kreplica.zookeeper import ZooKeeperClient, ZooKeeperError

log = Logger()

RETRY_SECONDS = 1.0


class LogDirEvents:
    """Owned by the broker.

    The notification says only which broker it is: the controller asks it for all its replicas, and hears from its
    answer which of them are offline.  So one notification stands for all directories that failed before it was made.
    """

    def __init__(self, reactor: Reactor, client: ZooKeeperClient, broker_id: int) -> None:
        self._reactor = reactor
        self._client = client
        self._path = f"{znodes.LOG_DIR_EVENT_NOTIFICATION}/{znodes.LOG_DIR_EVENT_PREFIX}"
        self._data = documents.encode_log_dir_event(broker_id)
        self._telling: Deferred[None] | None = None
        self._again = False

    def directory_failed(self) -> None:
        """Notify the controller, for as long as it takes."""
        self._again = True
        if self._telling is None:
            telling = Deferred.fromCoroutine(self._tell())
            telling.addErrback(lambda failure: log.failure("telling of a failed log directory", failure))
            self._telling = None if telling.called else telling

    def stop(self) -> None:
        """Tell no more."""
        if self._telling is not None:
            self._telling.cancel()

    async def _tell(self) -> None:
        try:
            while self._again:
                self._again = False
                try:
                    await self._client.create(self._path, self._data, sequence=True)
                except ZooKeeperError as error:
                    self._again = True
                    log.warn("telling of a failed log directory, trying again: {error}", error=str(error))
                    await pause(self._reactor, RETRY_SECONDS)
        except CancelledError:
            pass
        finally:
            self._telling = None
