"""A whole process as Twisted services: what ``twistd`` starts and stops."""

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

from kreplica.errors import KreplicaError
from kreplica.service.process.interrupts import reactor_handles_interrupts
from kreplica.service.process.open_files import raise_open_files_limit
from kreplica.service.process.private_files import keep_files_private
from kreplica.service.process.service_manager import ServiceManager, of_this_process

log = Logger()

GENERATION_0_THRESHOLD = 200_000
"""Objects made and not freed between two collections of young ones.

Brokers make few cycles, and a collection costs latency: a command of the controller for 10,000 partitions is 60,000
objects for a moment, which a collection would look at for 40 ms and find alive.
"""


LAST_WORDS = "kreplica: "
"""Begins the one line that says why a process ends by itself."""


class Startable(Protocol):
    """What ``ProcessService`` runs."""

    async def start(self) -> None:
        """:raise KreplicaError: with one line for whoever started the process."""

    async def stop(self) -> None:
        """Stop in order; also after a start that failed half-way."""


class ProcessService(Service):
    """Starts one thing with the process, and stops it in order on SIGTERM or SIGINT.

    A start that fails prints one line that says what is wrong, and ends the process with exit status 1.

    :param build: makes the thing, given the reactor and what to call, with one line, when it cannot go on.
    """

    def __init__(self, build: Callable[[Any, Callable[[str], None]], Startable], observer: ILogObserver) -> None:
        self._build = build
        self._observer = observer
        self._thing: Startable | None = None
        self._manager: ServiceManager | None = None
        self._starting: Deferred[None] | None = None

    def setServiceParent(self, parent: Any) -> None:
        # twistd asks the application for its observer right after this: the only place to say which one.
        if isinstance(parent, Componentized):
            keep_files_private()  # before twistd opens its log
            parent.setComponent(ILogObserver, self._observer)
        super().setServiceParent(parent)  # type: ignore[no-untyped-call]

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        from twisted.internet import reactor

        # Not before the reactor handles signals: it then stops what was begun.
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
            # Most of what a start makes stays, and need not be looked at: now, and again and again meanwhile.
            gc.freeze()
            gc.set_threshold(GENERATION_0_THRESHOLD, 20, 100)
            self._thing = self._build(reactor, partial(self._give_up, reactor))
            await self._thing.start()
            gc.freeze()
            manager.ready()
        except CancelledError:
            pass
        except (KreplicaError, OSError) as error:
            # Something outside is wrong, and the text says what: a traceback would only hide it.
            self._give_up(reactor, str(error))
        except Exception as error:
            log.failure("starting failed")
            self._give_up(reactor, f"starting failed: {error!r}")
        finally:
            self._starting = None

    def _give_up(self, reactor: Any, message: str) -> None:
        print(f"{LAST_WORDS}{message}", file=sys.__stderr__, flush=True)
        reactor.callWhenRunning(_stop_with_status, reactor, 1)

    async def _stop(self) -> None:
        thing, self._thing = self._thing, None
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.stopping()
        if thing is not None:
            try:
                await thing.stop()
            except Exception:
                log.failure("stopping failed")
        if manager is not None:
            manager.stopped()


def _stop_with_status(reactor: Any, status: int) -> None:
    # twistd knows no exit status but its own 0; at exit it has removed its pid file and flushed what there is.
    atexit.register(os._exit, status)
    reactor.stop()
