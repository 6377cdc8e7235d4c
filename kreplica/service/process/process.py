"""Runs a process as Twisted services that ``twistd`` starts and stops."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import ILogObserver, Logger
from twisted.python.components import Componentized

from kreplica.errors import KreplicaError, reason_of
from kreplica.service.process.heap import HeapTrimmer
from kreplica.service.process.interrupts import reactor_handles_interrupts
from kreplica.service.process.open_files import raise_open_files_limit
from kreplica.service.process.private_files import keep_files_private
from kreplica.service.process.service_manager import ServiceManager, of_this_process

log = Logger()

COLLECTION_THRESHOLDS = (10_000, 1, 200)
"""Arguments of ``gc.set_threshold``: small young generations, because each collection stops the reactor.

A collection takes up to 0.5 µs per live object: at most 5 ms for 10,000 new objects, and 15 ms together with the next
generation. The oldest generation, which can contain millions of objects, is collected only after four million more
objects; brokers create few reference cycles.
"""

EXIT_REASON_PREFIX = "kreplica: "
"""Prefix of the line that states the reason for an unexpected end."""


class Startable(Protocol):
    """A program that ``ProcessService`` runs."""

    async def start(self) -> None:
        """Start the program.

        :raise KreplicaError: a one-line reason for the user who started the process.
        """

    async def stop(self) -> None:
        """Stop gracefully, even after a failed start."""


class ProcessService(Service):
    """Starts a program with the process and stops it gracefully on SIGTERM or SIGINT.

    If the start fails, prints the reason as one line and ends the process with exit status 1.

    :param build: creates the program from the reactor and a callback for a one-line failure reason.
    """

    def __init__(self, build: Callable[[Any, Callable[[str], None]], Startable], observer: ILogObserver) -> None:
        self._build = build
        self._observer = observer
        self._program: Startable | None = None
        self._manager: ServiceManager | None = None
        self._starting: Deferred[None] | None = None
        self._heap: HeapTrimmer | None = None

    def setServiceParent(self, parent: Any) -> None:
        # twistd reads the application's log observer right after this call.
        if isinstance(parent, Componentized):
            keep_files_private()  # before twistd opens its log file
            parent.setComponent(ILogObserver, self._observer)
        super().setServiceParent(parent)  # type: ignore[no-untyped-call]

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        from twisted.internet import reactor

        # Wait until the reactor handles signals, so that a signal stops even a partial start gracefully.
        reactor.callWhenRunning(self._begin, reactor)

    def _begin(self, reactor: Any) -> None:
        reactor_handles_interrupts(reactor)
        if self.running:
            self._starting = Deferred.fromCoroutine(self._start(reactor))

    def stopService(self) -> Deferred[None]:
        super().stopService()  # type: ignore[no-untyped-call]
        if self._starting is not None:
            self._starting.cancel()
        return Deferred.fromCoroutine(self._stop())

    async def _start(self, reactor: Any) -> None:
        manager = self._manager = of_this_process(reactor)
        manager.starting()
        try:
            raise_open_files_limit()
            # Most objects created during the start live as long as the process; freezing exempts them from collection.
            gc.freeze()
            gc.set_threshold(*COLLECTION_THRESHOLDS)
            self._program = self._build(reactor, partial(self._give_up, reactor))
            await self._program.start()
            gc.freeze()
            self._heap = HeapTrimmer(reactor)
            self._heap.start()
            manager.ready()
        except CancelledError:
            pass
        except (KreplicaError, OSError) as error:
            # The cause is outside the process, and the message explains it; a traceback would bury the message.
            self._give_up(reactor, reason_of(error, with_path=True))
        except Exception as error:
            log.failure("starting failed")
            self._give_up(reactor, f"starting failed: {error!r}")
        finally:
            self._starting = None

    def _give_up(self, reactor: Any, message: str) -> None:
        print(f"{EXIT_REASON_PREFIX}{message}", file=sys.__stderr__, flush=True)
        reactor.callWhenRunning(_stop_with_status, reactor, 1)

    async def _stop(self) -> None:
        if self._heap is not None:
            self._heap.stop()
        program, self._program = self._program, None
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.stopping()
        if program is not None:
            try:
                await program.stop()
            except Exception:
                log.failure("stopping failed")
        if manager is not None:
            manager.stopped()


def _stop_with_status(reactor: Any, status: int) -> None:
    # twistd always exits with status 0; the exit handler runs after twistd removed its PID file and flushed its output.
    atexit.register(os._exit, status)
    reactor.stop()
