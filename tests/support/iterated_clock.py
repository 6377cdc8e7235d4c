"""A clock that runs timers one iteration at a time, as an event loop does."""

from __future__ import annotations

from twisted.internet.base import DelayedCall
from twisted.internet.task import Clock


class IteratedClock(Clock):
    """``Clock`` whose ``advance`` also runs calls that due calls schedule without delay."""

    def iterate(self) -> int:
        """Run the calls that are due now, but not those that they schedule, and return their number."""
        calls: list[DelayedCall] = self.calls
        due = [call for call in calls if call.getTime() <= self.seconds()]
        count = 0
        for call in due:
            if call.active():
                self.calls.remove(call)
                call.called = 1
                call.func(*call.args, **call.kw)
                count += 1
        return count
