"""Reads the registrations of live brokers, which have the URLs of their admin APIs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.cluster import documents, znodes
from kreplica.model import BrokerRegistration
from kreplica.zookeeper import read_all
from kreplica.zookeeper.batches import MultiReader

log = Logger()

REUSE_SECONDS = 1.0
"""Time for which a result is reused, because charts poll every second."""


class Registrations(Protocol):
    """The live brokers."""

    async def live(self) -> Mapping[int, BrokerRegistration]:
        """Return the registrations by broker ID, in order.

        :raise ZooKeeperError: ZooKeeper cannot be read.
        """


class RegistrationReader:
    """Reads ZooKeeper on demand, at most once in ``REUSE_SECONDS``.

    :param seconds: the reactor's clock.
    """

    def __init__(self, seconds: Callable[[], float], client: MultiReader) -> None:
        self._seconds = seconds
        self._client = client
        self._read_s: float | None = None
        self._known: dict[int, BrokerRegistration] = {}
        self._waiting: list[Deferred[None]] = []

    async def live(self) -> Mapping[int, BrokerRegistration]:
        """Return the registrations by broker ID; see ``Registrations``."""
        if self._read_s is None or self._seconds() - self._read_s >= REUSE_SECONDS:
            # A cancelled caller stops waiting; the read continues for the others.
            waiter: Deferred[None] = Deferred()
            self._waiting.append(waiter)
            if len(self._waiting) == 1:
                reading = Deferred.fromCoroutine(self._read())
                reading.addCallbacks(self._read_succeeded, self._read_failed)
            await waiter
        return self._known

    def _read_succeeded(self, found: dict[int, BrokerRegistration]) -> None:
        self._known = found
        self._read_s = self._seconds()
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.called:
                waiter.callback(None)

    def _read_failed(self, failure: Failure) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.called:
                waiter.errback(failure)

    async def _read(self) -> dict[int, BrokerRegistration]:
        names = await self._client.get_children(znodes.BROKER_IDS)
        numbers = sorted(int(name) for name in names if name.isdecimal())
        responses = await read_all(self._client, [znodes.broker_path(number) for number in numbers])
        found = {}
        for number, response in zip(numbers, responses, strict=True):
            if isinstance(response, tuple):
                try:
                    found[number] = documents.decode_broker(number, response[0], response[1].czxid)
                except znodes.ZnodeError as error:
                    log.warn("skipped a broker registration that cannot be read: {error}", error=str(error))
        return found
