"""Supervises a broker in a child process and restarts it after an unexpected exit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.errors import KreplicaError
from kreplica.service.process.broker_process import Serving
from kreplica.service.standalone.broker_run import BrokerRun

log = Logger()

PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 30.0
"""Limits of the delay before a restart; it doubles with each exit."""

CALM_S = 60.0
"""After this time in service the delay is reset to its minimum."""

STOP_S_MAX = 60.0
"""Timeout of an orderly stop; after it the process is killed and recovers at its next start."""

FOR_THE_PARENT = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Environment variables of systemd that only the parent process must use."""


class BrokerEnded(KreplicaError):
    """The process exited before the broker served clients; the message gives the reason."""


class SupervisedBroker:
    """Supervises one broker process; the owner must stop it, even after a failed start.

    :param reactor: spawns processes.
    :param command: the command line of the child process.
    :param relay: receives each of its log lines.
    """

    def __init__(self, reactor: Any, number: int, command: Sequence[str], relay: Callable[[str], None]) -> None:
        self._reactor = reactor
        self._number = number
        self._command = tuple(command)
        self._relay = relay
        self._run: BrokerRun | None = None
        self._first: Deferred[Serving] | None = None
        self._gone: Deferred[None] | None = None
        self._again: IDelayedCall | None = None
        self._kept = False
        self._pause_s = PAUSE_S_MIN
        self._serving_since_s: float | None = None

    async def start(self) -> Serving:
        """Return when the broker serves clients; later exits cause restarts.

        :raise BrokerEnded: the process exited before.
        :raise OSError: the system cannot start another process.
        """
        self._first = Deferred()
        try:
            self._spawn()
            serving = await self._first
        finally:
            self._first = None
        self._kept = True
        return serving

    def resume(self) -> None:
        """Continue the process if it was suspended."""
        if self._run is not None:
            self._run.signal(signal.SIGCONT)

    async def stop(self) -> None:
        """Stop the process in order; kill it after a timeout."""
        self._kept = False
        if self._again is not None and self._again.active():
            self._again.cancel()
        if self._run is None:
            return
        self._gone = Deferred()
        self._run.signal(signal.SIGTERM)
        bound = self._reactor.callLater(STOP_S_MAX, self._kill)
        await self._gone
        if bound.active():
            bound.cancel()

    def _kill(self) -> None:
        if self._run is not None:
            log.error("broker {broker} has not stopped in {s:g} s: it is killed", broker=self._number, s=STOP_S_MAX)
            self._run.signal(signal.SIGKILL)

    # --- its process -------------------------------------------------------------------------------------------------

    def _spawn(self) -> None:
        run = BrokerRun(self._relay, self._served, self._ended)
        self._serving_since_s = None
        self._reactor.spawnProcess(run, self._command[0], self._command, env=_environment(os.environ))
        self._run = run
        log.info("broker {broker} is process {process}", broker=self._number, process=run.pid)

    def _served(self, serving: Serving) -> None:
        self._serving_since_s = self._reactor.seconds()
        if self._first is not None:
            self._first.callback(serving)
        else:
            log.info("broker {broker} serves again", broker=self._number)

    def _ended(self, how: str) -> None:
        self._run = None
        if self._gone is not None:
            self._gone.callback(None)
        elif self._first is not None:
            self._first.errback(BrokerEnded(f"broker {self._number}: {how}"))
        elif self._kept:
            self._start_later(how)

    def _start_later(self, how: str) -> None:
        since_s = self._serving_since_s
        if since_s is not None and self._reactor.seconds() - since_s >= CALM_S:
            self._pause_s = PAUSE_S_MIN
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, PAUSE_S_MAX)
        log.critical("broker {broker}: {how}; it is started again in {s:g} s", broker=self._number, how=how, s=pause_s)
        self._again = self._reactor.callLater(pause_s, self._start_again)

    def _start_again(self) -> None:
        try:
            self._spawn()
        except OSError as error:
            self._start_later(f"the system starts no process: {error}")


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in ours.items() if name not in FOR_THE_PARENT}
