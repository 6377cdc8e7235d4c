"""Reads the registrations of live brokers, which contain the URLs of their admin APIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.cluster import documents, znodes
from kreplica.model import BrokerRegistration
from kreplica.runtime import Reactor
from kreplica.zookeeper import OperationTimeout, ZooKeeperError, read_all
from kreplica.zookeeper.batches import MultiReader

log = Logger()

WAIT_SECONDS_MAX = 1.0
"""Maximum time that a caller waits for a read."""

_LAST_KNOWN = "the brokers and their addresses are the last known ones."

REUSE_SECONDS = 1.0
"""Time in seconds for which a result is reused, because charts poll every second."""


class Registrations(Protocol):
    """The live brokers."""

    async def live(self) -> Mapping[int, BrokerRegistration]:
        """Return the registrations by broker ID, in order; the last known ones while ZooKeeper is unreachable.

        :raise ZooKeeperError: ZooKeeper cannot be read, and was never read before.
        """

    @property
    def problem(self) -> str | None:
        """Why the last read failed, as a sentence; None if it succeeded."""


class RegistrationReader:
    """Reads ZooKeeper on demand, at most once in ``REUSE_SECONDS``."""

    def __init__(self, reactor: Reactor, client: MultiReader) -> None:
        self._reactor = reactor
        self._seconds = reactor.seconds
        self._client = client
        self.problem: str | None = None
        self._started_s = 0.0
        self._read_s: float | None = None
        self._known: dict[int, BrokerRegistration] = {}
        self._waiting: list[Deferred[None]] = []

    async def live(self) -> Mapping[int, BrokerRegistration]:
        """Return the registrations by broker ID; see ``Registrations``."""
        now_s = self._seconds()
        is_hanging = bool(self._waiting) and now_s - self._started_s > WAIT_SECONDS_MAX and self._read_s is not None
        if not is_hanging and (self._read_s is None or now_s - self._read_s >= REUSE_SECONDS):
            # A cancelled caller stops waiting; the read continues for the others.
            waiter: Deferred[None] = Deferred()
            self._waiting.append(waiter)
            if len(self._waiting) == 1:
                self._started_s = now_s
                reading = Deferred.fromCoroutine(self._read())
                reading.addCallbacks(self._read_succeeded, self._read_failed)
            await self._wait(waiter)
        return self._known

    async def _wait(self, waiter: Deferred[None]) -> None:
        """Wait for the read, up to ``WAIT_SECONDS_MAX``.

        :raise ZooKeeperError: the read failed or takes too long, and no earlier registrations are known.
        """
        try:
            await waiter.addTimeout(WAIT_SECONDS_MAX, cast(IReactorTime, self._reactor))
        except TimeoutError:
            if self._read_s is None:
                raise OperationTimeout(znodes.BROKER_IDS) from None
            self.problem = f"ZooKeeper does not respond: {_LAST_KNOWN}"
        except ZooKeeperError as error:
            if self._read_s is None:
                raise
            self.problem = f"ZooKeeper cannot be read ({error}): {_LAST_KNOWN}"

    def _read_succeeded(self, found: dict[int, BrokerRegistration]) -> None:
        self._known = found
        self._read_s = self._seconds()
        self.problem = None
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
