"""Tells the controller which partitions' in-sync sets their leaders have written, as Kafka's brokers do."""

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
"""Between two notifications of one broker: the first goes at once, for a reassignment may wait for it."""

PARTITIONS_MAX = 2000
"""In one notification: topics' names are up to 249 characters long, and a znode holds a megabyte."""

PATH = f"{znodes.ISR_CHANGE_NOTIFICATION}/{znodes.ISR_CHANGE_PREFIX}"


class Notices(Protocol):
    """The part of the ZooKeeper client that is used here."""

    def create(self, path: str, data: bytes = b"", *, sequence: bool = False) -> Deferred[Created]: ...


class IsrNotifications:
    """Owned by the broker; tells each change once or, where a connection was lost meanwhile, more than once."""

    def __init__(self, reactor: Reactor, client: Notices) -> None:
        self._reactor = reactor
        self._client = client
        self._changed: dict[TopicPartition, None] = {}
        self._telling: Deferred[None] | None = None
        self._stopped = False

    def add(self, key: TopicPartition) -> None:
        """The state znode of a partition was written by this broker."""
        self._changed[key] = None
        if self._telling is None and not self._stopped:
            self._telling = Deferred.fromCoroutine(self._tell())
            self._telling.addErrback(lambda failure: log.failure("changed in-sync sets cannot be told", failure))

    def stop(self) -> None:
        """Tell nothing more: a controller reads the states itself where it has to know."""
        self._stopped = True
        if self._telling is not None:
            self._telling.cancel()

    async def _tell(self) -> None:
        try:
            await pause(self._reactor, 0)  # whatever was written together is told together
            while self._changed:
                told = list(islice(self._changed, PARTITIONS_MAX))
                try:
                    await self._client.create(PATH, documents.encode_partitions(told), sequence=True)
                except ZooKeeperError as error:
                    log.warn("changed in-sync sets are not told yet: {error}", error=str(error))
                else:
                    for key in told:
                        del self._changed[key]
                await pause(self._reactor, INTERVAL_SECONDS)
        except CancelledError:
            pass
        finally:
            self._telling = None
