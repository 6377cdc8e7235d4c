"""Machine that runs one program at a time on its own host; each start builds a new program."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.errors import KreplicaError
from kreplica.runtime import Runtime
from kreplica.runtime.disk import Disk
from kreplica.runtime.hosts.host_disk import HostDisk
from kreplica.runtime.hosts.host_offload import HostOffload
from kreplica.runtime.hosts.host_reactor import HostReactor, HostState
from kreplica.runtime.hosts.loopback import Loopback
from kreplica.runtime.offload import Offload

log = Logger()


class Program(Protocol):
    """Interface of the programs that a machine runs."""

    def start(self) -> Awaitable[None]: ...

    def stop(self) -> Awaitable[None]: ...


ProgramT = TypeVar("ProgramT", bound=Program)


class KilledWhileStarting(KreplicaError):
    """The machine was killed before its program had started."""


@dataclass(frozen=True, slots=True)
class ProgramResources:
    """Resources of a program besides its reactor.

    :param boot_id: see ``Runtime``.
    :param end: releases all resources, as the exit of a process does; its Deferred fires when they are released.
    """

    disk: Disk
    offload: Offload
    boot_id: str
    end: Callable[[], Deferred[None]]


class Machine(Generic[ProgramT]):
    """Runs, pauses and kills a program; its owner must call ``kill`` last, even after ``stop``.

    :param reactor: reactor of the process.
    :param name: name of its host in the log and on the loopback.
    :param build: creates the program from the host's runtime.
    :param create_resources: creates the resources of the program at each start.
    """

    def __init__(
        self,
        reactor: Any,
        name: str,
        loopback: Loopback,
        build: Callable[[Runtime], ProgramT],
        create_resources: Callable[[HostReactor], ProgramResources],
    ) -> None:
        self.name = name
        self._real_reactor = reactor
        self._loopback = loopback
        self._build = build
        self._create_resources = create_resources
        self._reactor: HostReactor | None = None
        self._resources: ProgramResources | None = None
        self._program: ProgramT | None = None
        self._starting: Deferred[None] | None = None
        self._is_ending = False
        self._end_waiters: list[Deferred[None]] = []

    @property
    def running(self) -> bool:
        """True from the start of the program until it is stopped or killed, even while it is paused."""
        return self._program is not None

    @property
    def starting(self) -> bool:
        """True while a start is in progress."""
        return self._starting is not None

    @property
    def paused(self) -> bool:
        return self._reactor is not None and self._reactor.state is HostState.PAUSED

    @property
    def program(self) -> ProgramT:
        """The running program."""
        assert self._program is not None, f"{self.name} runs no program"
        return self._program

    async def start(self) -> None:
        """Start the program after the previous one has released its resources; returns when it has started.

        If this fails or is cancelled, the caller must stop or kill the machine.

        :raise KilledWhileStarting: the machine was killed during the start.
        """
        assert self._program is None, f"{self.name} is already running"
        assert self._starting is None, f"{self.name} is already starting"
        starting = self._starting = Deferred(lambda _: started.cancel())
        started = Deferred.fromCoroutine(self._start_program())
        # A killed program may never finish its start, and the result is ignored if it does.
        started.addBoth(lambda outcome: None if starting.called else starting.callback(outcome))
        try:
            await starting
        finally:
            if self._starting is starting:
                self._starting = None

    async def _start_program(self) -> None:
        await self.when_released()
        reactor = self._reactor = HostReactor(self._real_reactor, self.name, self._loopback)
        resources = self._resources = self._create_resources(reactor)
        runtime = Runtime(
            reactor=reactor,
            disk=resources.disk,
            offload=resources.offload,
            random=random.Random(random.SystemRandom().getrandbits(128)),
            wall_clock_ms=wall_clock_ms,
            boot_id=resources.boot_id,
        )
        program = self._program = self._build(runtime)
        # Start from an event of the host, so that the first log lines have the name of the host.
        event: Deferred[None] = Deferred()
        reactor.callLater(0, event.callback, None)
        await event
        await program.start()

    async def stop(self) -> None:
        """Stop the program cleanly, even during its start; returns when its resources are released."""
        if self._starting is not None:
            self._starting.cancel()
        program = self._program
        if program is not None:
            await program.stop()
        self.kill()
        await self.when_released()

    def kill(self) -> None:
        """Kill the program as ``kill -9`` does; written bytes are kept. Idempotent."""
        self._program = None
        reactor, self._reactor = self._reactor, None
        resources, self._resources = self._resources, None
        starting, self._starting = self._starting, None
        if reactor is not None:
            reactor.kill()
        if resources is not None:
            self._is_ending = True
            resources.end().addBoth(self._on_end)
        if starting is not None and not starting.called:
            starting.errback(KilledWhileStarting(f"{self.name} was killed while it was starting"))

    def _on_end(self, outcome: object) -> None:
        self._is_ending = False
        waiting, self._end_waiters = self._end_waiters, []
        if isinstance(outcome, Failure):
            log.failure("releasing the resources of {name} failed", outcome, name=self.name)
        for waiter in waiting:
            waiter.callback(None)

    def when_released(self) -> Deferred[None]:
        """Return a Deferred that fires when a killed program has released its resources."""
        if not self._is_ending:
            return succeed(None)
        waiter: Deferred[None] = Deferred()
        self._end_waiters.append(waiter)
        return waiter

    def call(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function as an event of the host: after ``resume`` if it is paused, never if it is killed."""
        if self._reactor is not None:
            self._reactor.callLater(0, function, *args)

    def pause(self) -> None:
        """Pause the host, as SIGSTOP does."""
        if self._reactor is not None:
            self._reactor.pause()

    def resume(self) -> None:
        """Resume the host, as SIGCONT does."""
        if self._reactor is not None:
            self._reactor.resume()


def real_resources(reactor: HostReactor, real_reactor: Any, boot_id: str) -> ProgramResources:
    """Return the files and threads of the operating system for one of several programs in the process."""
    disk = HostDisk()
    offload = HostOffload(reactor, real_reactor)

    def end() -> Deferred[None]:
        disk.kill()
        return offload.kill().addCallback(lambda _: disk.release())

    return ProgramResources(disk, offload, boot_id, end)


def wall_clock_ms() -> int:
    """Return the wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
