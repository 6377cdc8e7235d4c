"""Notifies the controller of failed log directories, so that other replicas become leaders (KIP-112)."""

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
    """Notifies the controller of one broker's failed log directories; owned by the broker.

    The notification contains only the broker id. The controller then requests the state of all replicas of the broker,
    so one notification covers all directories that failed before it.
    """

    def __init__(self, reactor: Reactor, client: ZooKeeperClient, broker_id: int) -> None:
        self._reactor = reactor
        self._client = client
        self._path = f"{znodes.LOG_DIR_EVENT_NOTIFICATION}/{znodes.LOG_DIR_EVENT_PREFIX}"
        self._data = documents.encode_log_dir_event(broker_id)
        self._reporting: Deferred[None] | None = None
        self._again = False

    def directory_failed(self) -> None:
        """Notify the controller; retries until this succeeds."""
        self._again = True
        if self._reporting is None:
            reporting = Deferred.fromCoroutine(self._report())
            reporting.addErrback(lambda failure: log.failure("reporting a failed log directory failed", failure))
            self._reporting = None if reporting.called else reporting

    def stop(self) -> None:
        """Stop notifying."""
        if self._reporting is not None:
            self._reporting.cancel()

    async def _report(self) -> None:
        try:
            while self._again:
                self._again = False
                try:
                    await self._client.create(self._path, self._data, sequence=True)
                except ZooKeeperError as error:
                    self._again = True
                    log.warn("cannot report a failed log directory, retrying: {error}", error=str(error))
                    await pause(self._reactor, RETRY_SECONDS)
        except CancelledError:
            pass
        finally:
            self._reporting = None
