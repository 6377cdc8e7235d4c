"""Handles the output and the exit of one child process that runs a broker."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from kreplica.service.process.broker_process import BrokerAddresses
from kreplica.service.process.process import EXIT_REASON_PREFIX

LINE_SIZE_MAX = 1 << 16
STDOUT = 1


class BrokerRun(ProcessProtocol):
    """Protocol of one child process; not reused after a restart.

    :param relay: receives each log line of the process.
    :param on_serving: called when the broker serves clients.
    :param on_exit: called when the process has exited, with the reason.
    """

    def __init__(
        self,
        relay: Callable[[str], None],
        on_serving: Callable[[BrokerAddresses], None],
        on_exit: Callable[[str], None],
    ) -> None:
        self._relay = relay
        self._on_serving = on_serving
        self._on_exit = on_exit
        self._exit_reason = ""
        self._unfinished = {STDOUT: b"", STDOUT + 1: b""}

    @property
    def pid(self) -> int:
        process: Any = self.transport
        return int(process.pid)

    def signal(self, number: int) -> None:
        """Send a signal if the process still exists."""
        process: Any = self.transport
        try:
            process.signalProcess(number)
        except ProcessExitedAlready:
            pass

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        *lines, unfinished = (self._unfinished[childFD] + data).split(b"\n")
        if len(unfinished) > LINE_SIZE_MAX:
            lines, unfinished = [*lines, unfinished], b""
        self._unfinished[childFD] = unfinished
        for line in lines:
            self._handle_line(childFD, line.decode(errors="replace"))

    def _handle_line(self, descriptor: int, line: str) -> None:
        serving = BrokerAddresses.from_line(line) if descriptor == STDOUT else None
        if serving is not None:
            self._on_serving(serving)
        elif line.startswith(EXIT_REASON_PREFIX):
            self._exit_reason = line.removeprefix(EXIT_REASON_PREFIX)
        else:
            self._relay(line)

    def processEnded(self, reason: Failure) -> None:
        for descriptor, unfinished in self._unfinished.items():
            if unfinished:
                self._handle_line(descriptor, unfinished.decode(errors="replace"))
        self._on_exit(self._exit_reason or _exit_text(reason.value))


def _exit_text(end: Any) -> str:
    """Describe how a process ended.

    :param end: ``ProcessDone`` or ``ProcessTerminated``.
    """
    if end.signal is not None:
        return f"ended by signal {end.signal} ({signal.strsignal(end.signal)})"
    return f"ended with status {end.exitCode}"
