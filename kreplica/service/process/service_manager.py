"""Sends state changes to systemd (sd_notify): ready, stopping, watchdog; does nothing without systemd.

A ``Type=notify`` unit is considered started once the broker serves clients. With ``WatchdogSec``, systemd ends a
process whose reactor is blocked.
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
"""Extension of the start timeout in seconds, because log recovery may take a long time."""


class ServiceManager:
    """Notifies systemd.

    :param send: sends one message; None without systemd.
    :param watchdog_s: the watchdog timeout in seconds; None if disabled.
    """

    def __init__(self, reactor: Reactor, send: Send | None, watchdog_s: float | None = None) -> None:
        self._reactor = reactor
        self._send = send
        self._watchdog_s = watchdog_s
        self._timer: IDelayedCall | None = None

    def starting(self) -> None:
        """Extend the start timeout regularly until ``ready`` or ``stopping`` is called."""
        if self._send is not None:
            self._notify(f"STATUS=starting\nEXTEND_TIMEOUT_USEC={STARTING_GRANTED_S * 1_000_000}")
            self._timer = self._reactor.callLater(STARTING_EVERY_S, self.starting)

    def ready(self) -> None:
        """Report that the start is complete."""
        self._cancel()
        self._notify("READY=1\nSTATUS=serving")
        if self._send is not None and self._watchdog_s is not None:
            self._alive()

    def stopping(self) -> None:
        """Report that a graceful stop has begun."""
        self._cancel()
        self._notify("STOPPING=1\nSTATUS=stopping")
        if self._send is not None and self._watchdog_s is not None:
            self._alive()

    def stopped(self) -> None:
        """Cancel the timers."""
        self._cancel()

    def _alive(self) -> None:
        assert self._watchdog_s is not None
        self._notify("WATCHDOG=1")
        self._timer = self._reactor.callLater(self._watchdog_s / 3, self._alive)

    def _cancel(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _notify(self, message: str) -> None:
        if self._send is None:
            return
        try:
            self._send(message)
        except OSError as error:
            log.warn("cannot notify systemd of {message!r}: {error}", message=message, error=str(error))


def service_manager(reactor: Reactor, environment: Mapping[str, str], process_id: int) -> ServiceManager:
    """Return the service manager that the environment describes.

    :param process_id: the ID of this process; variables for another process are ignored.
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
    """Return the service manager that the current process's environment describes."""
    return service_manager(reactor, os.environ, os.getpid())
