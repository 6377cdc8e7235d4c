"""Long loops yield to the reactor."""

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kreplica.runtime.time_slice import SLICE_SECONDS_MAX, TimeSlice


def test_loop_yields_after_its_time():
    """Pending events are handled, then the loop continues for the same time again."""
    clock = Clock()
    story: list[object] = []

    async def work() -> None:
        time_slice = TimeSlice(clock)
        for number in range(5):
            clock.rightNow += SLICE_SECONDS_MAX * 0.6
            story.append(number)
            if time_slice.is_over:
                await time_slice.next()

    def another() -> None:
        story.append("another")
        clock.callLater(0, story.append, "yet another")

    clock.callLater(0, another)
    done = Deferred.fromCoroutine(work())
    assert story == [0, 1]
    clock.advance(0)
    assert story == [0, 1, "another", 2, 3, "yet another", 4]
    assert done.called
    assert clock.getDelayedCalls() == []
