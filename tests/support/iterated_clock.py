"""A clock that runs timers as an event loop does: one iteration at a time."""

from __future__ import annotations

from twisted.internet.base import DelayedCall
from twisted.internet.task import Clock


class IteratedClock(Clock):
    """``Clock`` whose ``advance`` also runs calls that a due call schedules without delay."""

    def iterate(self) -> int:
        """Run the calls that are due, without calls that they add, and return their number."""
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
