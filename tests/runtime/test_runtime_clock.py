"""The time that a real process lives by."""

from __future__ import annotations

import time
from typing import Any

from twisted.internet.base import DelayedCall
from twisted.internet.task import Clock

from kreplica.runtime import count_true_seconds, real_runtime, true_seconds


class WallClockReactor(Clock):
    """A reactor of Twisted's, whose timers take the wall clock."""

    def seconds(self) -> float:
        return 1_700_000_000.0 + super().seconds()


def test_time_never_goes_back() -> None:
    """Whoever sets the machine's clock changes no timer: time is counted from the machine's start."""
    first = true_seconds()
    assert 0 <= true_seconds() - first < 1
    assert abs(first - time.time()) > 3600, "not the wall clock"


def test_timers_that_run_already_keep_what_is_left() -> None:
    """A timer that was set before the change is due after the rest of its time, not in fifty years."""
    reactor: Any = WallClockReactor()
    call: DelayedCall = reactor.callLater(30, int)
    count_true_seconds(reactor)
    assert 29 < call.getTime() - true_seconds() < 31
    count_true_seconds(reactor)
    assert 29 < call.getTime() - true_seconds() < 31


def test_a_runtime_counts_true_seconds() -> None:
    """What a broker calls its reactor's time is that."""
    reactor: Any = WallClockReactor()
    runtime = real_runtime(reactor)
    assert abs(runtime.reactor.seconds() - true_seconds()) < 1
    runtime.offload.stop()
