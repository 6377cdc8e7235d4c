"""Runtime of a broker: the only source of time, randomness, files, threads and network connections.

* ``disk``: interface to files; ``os_disk`` implements it; the simulated disk is in ``kreplica.testing.simulator.disk``
* ``offload``: runs blocking functions in threads; ``slices``: runs long computations in short steps on the reactor
* ``pause``: asynchronous sleep; ``time_slice``: lets long loops yield to the reactor; ``gather``: concurrent coroutines
* ``pacing``: disables TCP pacing on local connections; ``lean_polling``: a faster epoll loop
* ``distribution``: histogram of values; ``process_usage``: resource usage of the process
* ``interpreter``: version of Python, and how it was compiled
* ``shared_coroutine``: one coroutine with several waiters; ``parent_process``: ends a process when its parent exits
* ``stalls``: measures how long the reactor was blocked
* ``hosts/``: several programs in one process, which can be killed, paused and isolated separately
* this file: the reactor (monotonic time, TCP), the wall clock, randomness

The packages that ``service`` imports do not import Twisted's global reactor, read a clock or create random generators.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random, SystemRandom
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

from kreplica.runtime.disk import Disk
from kreplica.runtime.offload import Offload, ThreadOffload
from kreplica.runtime.os_disk import OsDisk


class Reactor(Protocol):
    """The part of Twisted's reactor that a broker uses; the simulated reactor also implements it."""

    def seconds(self) -> float:
        """Return monotonic time in seconds from an arbitrary start."""

    def callLater(
        self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object
    ) -> IDelayedCall: ...

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None: ...

    def resolve(self, name: str) -> Deferred[str]:
        """Look up the IP address of a host."""

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any: ...

    def connectTCP(
        self, host: str, port: int, factory: Any, timeout: float = 30, bindAddress: tuple[str, int] | None = None
    ) -> Any: ...


@dataclass(frozen=True, slots=True)
class Runtime:
    """External dependencies of a broker.

    :param wall_clock_ms: milliseconds since 1970; it may jump, so use it for timestamps and never for durations.
    :param random: source of randomness for IDs, jitter and placement; not cryptographically secure.
    :param boot_id: changes with each boot of the machine. While it is the same, the page cache is intact, so even
        unsynced writes are not lost. Empty if unknown.
    :param open_files_max: limit of open files of the process if no other program shares it; 0 otherwise.
    :param is_simulated: True if the reactor's time does not advance while code runs, so that stalls cannot be measured.
    """

    reactor: Reactor
    disk: Disk
    offload: Offload
    random: Random
    wall_clock_ms: Callable[[], int]
    boot_id: str = ""
    open_files_max: int = 0
    is_simulated: bool = False

    @property
    def secret_random(self) -> Random:
        """Source of secrets and of values that clients must not predict."""
        return self.random if self.is_simulated else SystemRandom()


def real_runtime(reactor: Any) -> Runtime:
    """Return the runtime of a real process."""
    use_monotonic_clock(reactor)
    return Runtime(
        reactor=reactor,
        disk=OsDisk(),
        offload=ThreadOffload(reactor),
        random=Random(SystemRandom().getrandbits(128)),
        wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        boot_id=_boot_id(),
        open_files_max=_open_files_max(),
    )


def use_monotonic_clock(reactor: Any) -> None:
    """Replace the wall clock of a reactor with a monotonic clock; running timers keep their remaining time.

    With the wall clock, Twisted's default, a step backwards would delay every timer and let a broker trust an expired
    session. The new clock also advances while the machine is suspended, because ZooKeeper sessions can expire during
    that time.
    """
    if reactor.seconds is monotonic_seconds:
        return
    remaining = [(call, call.getTime() - reactor.seconds()) for call in reactor.getDelayedCalls()]
    reactor.seconds = monotonic_seconds
    for call, left_s in remaining:
        call.seconds = monotonic_seconds
        call.reset(max(left_s, 0.0))


def monotonic_seconds() -> float:
    """Return the seconds since boot, including suspended time if the system reports it."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _open_files_max() -> int:
    try:
        import resource as limits
    except ImportError:  # not a POSIX system
        return 0
    soft, _ = limits.getrlimit(limits.RLIMIT_NOFILE)
    return sys.maxsize if soft == limits.RLIM_INFINITY else soft


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
