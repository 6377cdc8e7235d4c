"""The clock of a real process."""

from __future__ import annotations

import time
from typing import Any

from twisted.internet.base import DelayedCall
from twisted.internet.task import Clock

from kreplica.runtime import monotonic_seconds, real_runtime, use_monotonic_clock


class WallClockReactor(Clock):
    """Twisted reactor whose timers use the wall clock."""

    def seconds(self) -> float:
        return 1_700_000_000.0 + super().seconds()


def test_time_never_decreases() -> None:
    """Timers are independent of the wall clock: time is measured from the machine's start."""
    first = monotonic_seconds()
    assert 0 <= monotonic_seconds() - first < 1
    assert abs(first - time.time()) > 3600, "not the wall clock"


def test_running_timers_keep_their_remaining_time() -> None:
    """A timer that runs when the clock is replaced fires after its remaining time, not in fifty years."""
    reactor: Any = WallClockReactor()
    call: DelayedCall = reactor.callLater(30, int)
    use_monotonic_clock(reactor)
    assert 29 < call.getTime() - monotonic_seconds() < 31
    use_monotonic_clock(reactor)
    assert 29 < call.getTime() - monotonic_seconds() < 31


def test_runtime_uses_the_monotonic_clock() -> None:
    """The reactor of a broker's runtime uses the monotonic clock."""
    reactor: Any = WallClockReactor()
    runtime = real_runtime(reactor)
    assert abs(runtime.reactor.seconds() - monotonic_seconds()) < 1
    runtime.offload.stop()
