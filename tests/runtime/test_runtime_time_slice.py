"""Long loops yield to the reactor."""

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kreplica.runtime.time_slice import SLICE_SECONDS_MAX, TimeSlice


def test_loop_yields_after_its_time():
    """After a time slice, pending events are handled; then the loop continues for another time slice."""
    clock = Clock()
    events: list[object] = []

    async def work() -> None:
        time_slice = TimeSlice(clock)
        for number in range(5):
            clock.rightNow += SLICE_SECONDS_MAX * 0.6
            events.append(number)
            if time_slice.is_over:
                await time_slice.next()

    def other_event() -> None:
        events.append("event")
        clock.callLater(0, events.append, "next event")

    clock.callLater(0, other_event)
    done = Deferred.fromCoroutine(work())
    assert events == [0, 1]
    clock.advance(0)
    assert events == [0, 1, "event", 2, 3, "next event", 4]
    assert done.called
    assert clock.getDelayedCalls() == []
