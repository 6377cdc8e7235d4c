"""The seams: whatever is not deterministic enters a broker through one ``Runtime``.

* ``disk`` files: the real ones here, the simulator's in ``kreplica.testing.simulator.disk``
* ``offload`` work that blocks
* ``pause`` waiting a while; ``turns`` long loops that let others have theirs; ``together`` several coroutines as one
* ``pacing`` connections within the machine are sent to at once
* ``distribution`` how values are spread; ``process_figures`` what the process uses
* ``parent`` the end of the process that started this one
* ``stalls`` how long the reactor was kept from its work
* ``hosts/`` several programs in one process, each of which can be killed, paused and cut off
* this file: the reactor (monotonic time, TCP), the wall clock, randomness

Nothing below ``service`` imports Twisted's global reactor, reads a clock, or draws a random number of its own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from twisted.internet.interfaces import IDelayedCall

from kreplica.runtime.disk import Disk, OsDisk
from kreplica.runtime.offload import Offload, ThreadOffload


class Reactor(Protocol):
    """The part of Twisted's reactor that a broker uses; the simulator's reactor has the same."""

    def seconds(self) -> float:
        """Monotonic time, in seconds; only differences mean anything."""

    def callLater(
        self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object
    ) -> IDelayedCall: ...

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None: ...

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any: ...

    def connectTCP(
        self, host: str, port: int, factory: Any, timeout: float = 30, bindAddress: tuple[str, int] | None = None
    ) -> Any: ...


@dataclass(frozen=True, slots=True)
class Runtime:
    """Everything a broker may not make for itself.

    :param wall_clock_ms: milliseconds since 1970; may jump, so it stamps records and names times but measures nothing.
    :param random: the one source of randomness (ids, jitter, placement).
    :param boot_id: another after each start of the machine: while it is the same, everything that was ever written to
        a file is still there, synced or not; empty where nobody can tell.
    :param is_simulated: the reactor's time does not pass while code runs, so the event loop is never blocked.
    """

    reactor: Reactor
    disk: Disk
    offload: Offload
    random: random.Random
    wall_clock_ms: Callable[[], int]
    boot_id: str = ""
    is_simulated: bool = False


def real_runtime(reactor: Any) -> Runtime:
    """The runtime of a real process: the operating system's disk, threads, clock and entropy."""
    count_true_seconds(reactor)
    return Runtime(
        reactor=reactor,
        disk=OsDisk(),
        offload=ThreadOffload(reactor),
        random=random.Random(random.SystemRandom().getrandbits(128)),
        wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        boot_id=_boot_id(),
    )


def count_true_seconds(reactor: Any) -> None:
    """Make a reactor's time one that nobody sets; timers that run already keep what is left of them.

    Twisted takes the wall clock.  A step back of that would stop every timer for as long, and would let a broker
    believe in a session that has ended.  The clock that is taken goes on while the machine sleeps, as sessions do.
    """
    if reactor.seconds is true_seconds:
        return
    remaining = [(call, call.getTime() - reactor.seconds()) for call in reactor.getDelayedCalls()]
    reactor.seconds = true_seconds
    for call, left_s in remaining:
        call.seconds = true_seconds
        call.reset(max(left_s, 0.0))


def true_seconds() -> float:
    """Seconds since the machine was started, sleep included where the system can tell."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
