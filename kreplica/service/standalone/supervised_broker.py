"""Supervises a broker in a child process and restarts it after an unexpected exit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.errors import KreplicaError, reason_of
from kreplica.service.process.broker_process import BrokerAddresses
from kreplica.service.standalone.broker_run import BrokerRun

log = Logger()

PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 30.0
"""Minimum and maximum delay before a restart; the delay doubles with each exit."""

STABLE_S = 60.0
"""Time in service after which the delay is reset to its minimum."""

STOP_S_MAX = 60.0
"""Timeout of a graceful stop; after it, the process is killed, and the broker recovers its logs at the next start."""

FOR_THE_PARENT = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Environment variables of systemd that only the parent process must use."""


class BrokerEnded(KreplicaError):
    """The process exited before the broker served clients; the message gives the reason."""


class SupervisedBroker:
    """Supervises one broker process; the owner must stop it, even after a failed start.

    :param reactor: spawns processes.
    :param command: the command line of the child process.
    :param relay: receives each log line of the child process.
    """

    def __init__(self, reactor: Any, number: int, command: Sequence[str], relay: Callable[[str], None]) -> None:
        self._reactor = reactor
        self._number = number
        self._command = tuple(command)
        self._relay = relay
        self._run: BrokerRun | None = None
        self._first_serving: Deferred[BrokerAddresses] | None = None
        self._exited: Deferred[None] | None = None
        self._restart_timer: IDelayedCall | None = None
        self._is_supervised = False
        self._pause_s = PAUSE_S_MIN
        self._serving_since_s: float | None = None

    async def start(self) -> BrokerAddresses:
        """Start the process; return when the broker serves clients. Later exits cause restarts.

        :raise BrokerEnded: the process exited before the broker served clients.
        :raise OSError: the system cannot start another process.
        """
        self._first_serving = Deferred()
        try:
            self._spawn()
            serving = await self._first_serving
        finally:
            self._first_serving = None
        self._is_supervised = True
        return serving

    def resume(self) -> None:
        """Continue the process if it was suspended."""
        if self._run is not None:
            self._run.signal(signal.SIGCONT)

    async def stop(self) -> None:
        """Stop the process gracefully; kill it after a timeout."""
        self._is_supervised = False
        if self._restart_timer is not None and self._restart_timer.active():
            self._restart_timer.cancel()
        if self._run is None:
            return
        self._exited = Deferred()
        self._run.signal(signal.SIGTERM)
        bound = self._reactor.callLater(STOP_S_MAX, self._kill)
        await self._exited
        if bound.active():
            bound.cancel()

    def _kill(self) -> None:
        if self._run is not None:
            log.error("broker {broker} has not stopped in {s:g} s: killing it", broker=self._number, s=STOP_S_MAX)
            self._run.signal(signal.SIGKILL)

    # --- the process -------------------------------------------------------------------------------------------------

    def _spawn(self) -> None:
        run = BrokerRun(self._relay, self._served, self._on_end)
        self._serving_since_s = None
        self._reactor.spawnProcess(run, self._command[0], self._command, env=_environment(os.environ))
        self._run = run
        log.info("broker {broker} is process {process}", broker=self._number, process=run.pid)

    def _served(self, serving: BrokerAddresses) -> None:
        self._serving_since_s = self._reactor.seconds()
        if self._first_serving is not None:
            self._first_serving.callback(serving)
        else:
            log.info("broker {broker} is serving again", broker=self._number)

    def _on_end(self, exit_text: str) -> None:
        self._run = None
        if self._exited is not None:
            self._exited.callback(None)
        elif self._first_serving is not None:
            self._first_serving.errback(BrokerEnded(f"broker {self._number}: {exit_text}"))
        elif self._is_supervised:
            self._start_later(exit_text)

    def _start_later(self, exit_text: str) -> None:
        since_s = self._serving_since_s
        if since_s is not None and self._reactor.seconds() - since_s >= STABLE_S:
            self._pause_s = PAUSE_S_MIN
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, PAUSE_S_MAX)
        log.critical("broker {broker}: {how}; restarting it in {s:g} s", broker=self._number, how=exit_text, s=pause_s)
        self._restart_timer = self._reactor.callLater(pause_s, self._start_again)

    def _start_again(self) -> None:
        try:
            self._spawn()
        except OSError as error:
            self._start_later(f"the system cannot start a process: {reason_of(error)}")


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in ours.items() if name not in FOR_THE_PARENT}
