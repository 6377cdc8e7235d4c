"""Retries the startup steps of a broker while ZooKeeper is slow or the connection is lost.

Every step is repeatable: it reads back the result of an earlier attempt whose response was lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause
from kreplica.zookeeper import (
    ClientClosed,
    ConnectionLoss,
    NotReadOnly,
    OperationTimeout,
    RequestTimeout,
    SessionExpired,
    SessionMoved,
    Throttled,
    ZooKeeperClient,
)

log = Logger()

T = TypeVar("T")

RETRY_SECONDS_MIN = 0.1
RETRY_SECONDS_MAX = 5.0

REPORT_SECONDS = 5.0
"""Interval between log lines about the step in progress."""

TRANSIENT = (ConnectionLoss, OperationTimeout, RequestTimeout, SessionExpired, SessionMoved, Throttled, NotReadOnly)
"""Errors that occur while ZooKeeper is slow, restarting or unreachable."""


class StartupSteps:
    """Runs the startup steps of a broker until it is registered.

    A session that expires is replaced; the caller then reads the settings and sets the watches again.
    """

    def __init__(self, runtime: Runtime, client: ZooKeeperClient) -> None:
        self._reactor = runtime.reactor
        self._random = runtime.random
        self._client = client

    async def connect(self, connect_string: str) -> None:
        """Establish the first session.

        :raise OperationTimeout: no server accepted a connection within ``zookeeper.connection.timeout.ms``. If a server
            accepts connections but opens no session (slow, or without quorum), the broker keeps waiting.
        """
        log.info("connecting to ZooKeeper at {connect}", connect=connect_string)
        start = self._client.start
        while True:
            try:
                return await self.with_progress_log("a session with ZooKeeper", start())
            except OperationTimeout as error:
                if not self._client.server_accepted:
                    raise
                log.warn("no session with ZooKeeper; retrying: {error}", error=str(error))
            start = self._client.renew

    async def run(self, what: str, step: Callable[[], Awaitable[T]]) -> T:
        """Run one step until ZooKeeper has responded.

        :param what: name of the step, for the log: "the registration in ZooKeeper".
        :param step: can be repeated after an error in ``TRANSIENT``.
        """
        delay_s = RETRY_SECONDS_MIN
        while True:
            try:
                if self._client.state.ended:
                    await self._renew()
                return await self.with_progress_log(what, step())
            except ClientClosed:
                raise
            except TRANSIENT as error:
                log.warn("retrying {what}: {error}", what=what, error=str(error))
            await pause(self._reactor, delay_s * self._random.uniform(0.5, 1.0))
            delay_s = min(2 * delay_s, RETRY_SECONDS_MAX)

    async def _renew(self) -> None:
        log.warn("the ZooKeeper session ended during startup; opening another")
        await self.with_progress_log("a session with ZooKeeper", self._client.renew())

    async def with_progress_log(self, what: str, request: Awaitable[T]) -> T:
        """Await a response, with a log line every ``REPORT_SECONDS``."""
        started_s = self._reactor.seconds()
        timer: IDelayedCall

        def report() -> None:
            nonlocal timer
            timer = self._reactor.callLater(REPORT_SECONDS, report)
            log.warn(
                "waiting for {what} for {seconds:.0f} s; last problem: {problem}",
                what=what,
                seconds=self._reactor.seconds() - started_s,
                problem=self._client.last_problem or "none reported",
            )

        timer = self._reactor.callLater(REPORT_SECONDS, report)
        try:
            return await request
        finally:
            timer.cancel()
