"""What the process tells systemd (sd_notify): ready, stopping, alive.  Without systemd it tells nobody.

A unit with ``Type=notify`` is started when the broker serves clients, so that what is ordered after it finds it; with
``WatchdogSec`` the manager ends a process whose reactor does not turn any more.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.runtime import Reactor

log = Logger()

Send = Callable[[str], None]

STARTING_EVERY_S = 10.0
STARTING_GRANTED_S = 60
"""A start takes as long as its logs take to be recovered: while the reactor turns it may go on."""


class ServiceManager:
    """:param send: tells one message; None where nobody listens.

    :param watchdog_s: after so long without a sign of life the manager ends the process; None where it does not look.
    """

    def __init__(self, reactor: Reactor, send: Send | None, watchdog_s: float | None = None) -> None:
        self._reactor = reactor
        self._send = send
        self._watchdog_s = watchdog_s
        self._timer: IDelayedCall | None = None

    def starting(self) -> None:
        """It takes a while: until ``ready`` or ``stopping`` the manager is asked for patience."""
        if self._send is not None:
            self._tell(f"STATUS=starting\nEXTEND_TIMEOUT_USEC={STARTING_GRANTED_S * 1_000_000}")
            self._timer = self._reactor.callLater(STARTING_EVERY_S, self.starting)

    def ready(self) -> None:
        """Clients are served."""
        self._cancel()
        self._tell("READY=1\nSTATUS=serving")
        if self._send is not None and self._watchdog_s is not None:
            self._alive()

    def stopping(self) -> None:
        """It ends in order, which takes a while; the watchdog has time to see it."""
        self._cancel()
        self._tell("STOPPING=1\nSTATUS=stopping")
        if self._send is not None and self._watchdog_s is not None:
            self._alive()

    def stopped(self) -> None:
        """Leave no timer."""
        self._cancel()

    def _alive(self) -> None:
        assert self._watchdog_s is not None
        self._tell("WATCHDOG=1")
        self._timer = self._reactor.callLater(self._watchdog_s / 3, self._alive)

    def _cancel(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _tell(self, message: str) -> None:
        if self._send is None:
            return
        try:
            self._send(message)
        except OSError as error:
            log.warn("systemd could not be told {message!r}: {error}", message=message, error=str(error))


def service_manager(reactor: Reactor, environment: Mapping[str, str], process_id: int) -> ServiceManager:
    """The one that started this process, as its environment says.

    :param process_id: this process's own: what is meant for another is not for us.
    """
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return ServiceManager(reactor, None)
    return ServiceManager(reactor, _sender(address), _watchdog_s(environment, process_id))


def _watchdog_s(environment: Mapping[str, str], process_id: int) -> float | None:
    text = environment.get("WATCHDOG_USEC", "")
    if not text.isdigit() or int(text) == 0 or environment.get("WATCHDOG_PID", str(process_id)) != str(process_id):
        return None
    return int(text) / 1e6


def _sender(address: str) -> Send:
    path = "\0" + address[1:] if address.startswith("@") else address

    def send(message: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
            notify.setblocking(False)
            notify.sendto(message.encode(), path)

    return send


def of_this_process(reactor: Reactor) -> ServiceManager:
    """That of the environment that the process was started with."""
    return service_manager(reactor, os.environ, os.getpid())
