"""Notifies the controller of ISR changes through ZooKeeper, as Kafka's brokers do."""

from __future__ import annotations

from itertools import islice
from typing import Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.model import TopicPartition
from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause
from kreplica.zookeeper import Created, ZooKeeperError

log = Logger()

INTERVAL_SECONDS = 0.5
"""Interval between notifications; the first is sent at once, since a reassignment may be waiting for it."""

PARTITIONS_MAX = 2000
"""Maximum number of partitions in one notification; topic names have up to 249 characters, and a znode at most 1 MB."""

PATH = f"{znodes.ISR_CHANGE_NOTIFICATION}/{znodes.ISR_CHANGE_PREFIX}"


class NotificationClient(Protocol):
    """The operations of the ZooKeeper client used here."""

    def create(self, path: str, data: bytes = b"", *, sequence: bool = False) -> Deferred[Created]: ...


class IsrNotifications:
    """Queue of changed partitions; each change is sent at least once."""

    def __init__(self, reactor: Reactor, client: NotificationClient) -> None:
        self._reactor = reactor
        self._client = client
        self._changed: dict[TopicPartition, None] = {}
        self._sending: Deferred[None] | None = None
        self._stopped = False

    def add(self, key: TopicPartition) -> None:
        """Queue a partition whose state znode this broker wrote."""
        self._changed[key] = None
        if self._sending is None and not self._stopped:
            self._sending = Deferred.fromCoroutine(self._send())
            self._sending.addErrback(lambda failure: log.failure("ISR change notifications failed", failure))

    def stop(self) -> None:
        """Stop sending; changes that are still queued are not sent."""
        self._stopped = True
        if self._sending is not None:
            self._sending.cancel()

    async def _send(self) -> None:
        try:
            await pause(self._reactor, 0)  # changes written together go into one notification
            while self._changed:
                sent = list(islice(self._changed, PARTITIONS_MAX))
                try:
                    await self._client.create(PATH, documents.encode_partitions(sent), sequence=True)
                except ZooKeeperError as error:
                    log.warn("ISR change notification failed and will be retried: {error}", error=str(error))
                else:
                    for key in sent:
                        del self._changed[key]
                await pause(self._reactor, INTERVAL_SECONDS)
        except CancelledError:
            pass
        finally:
            self._sending = None
