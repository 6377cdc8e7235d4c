"""A broker in a child process, started again whenever it has ended by itself."""

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
"""Before a start after an end: doubled with each end, up to so much."""

CALM_S = 60.0
"""Whoever has served for so long begins with the shortest pause again."""

STOP_S_MAX = 60.0
"""An orderly stop takes so long at most; then it is killed, and repairs itself at the next start."""

FOR_THE_PARENT = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""What systemd tells the process that it has started, and nobody else."""


class BrokerEnded(KreplicaError):
    """The process ended before the broker served; the text says why."""


class KeptBroker:
    """Started once; owned by whoever stops it, also after a start that failed.

    :param reactor: Twisted's, which starts processes.
    :param command: what runs the broker, as a child of this process.
    :param relay: takes each line that it logs.
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
        """Returns when it serves; from then on it is started again whenever it ends.

        :raise BrokerEnded: it ended before.
        :raise OSError: the system starts no more processes.
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
        """Let it go on, where somebody has made it stand still."""
        if self._run is not None:
            self._run.signal(signal.SIGCONT)

    async def stop(self) -> None:
        """Stop it in order; kill it where that takes too long."""
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
