"""Long work is done in slices; other events are handled in between."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from twisted.internet.defer import CancelledError, Deferred

from kreplica.runtime.slices import (
    ACTIVE_LARGE_MAX,
    PENDING,
    SLICE_S,
    SLICE_STEPS_MAX,
    SMALL_BYTES_MAX,
    Slices,
)
from tests.support.iterated_clock import IteratedClock


class Owner:
    def __init__(self, *, is_control: bool = False) -> None:
        self.is_control = is_control


class Work:
    """Counts its steps; each step advances a clock by a given time."""

    def __init__(self, clock: IteratedClock, steps: int, step_s: float = 0.0) -> None:
        self.done = 0
        self.closed = False
        self._clock, self._steps, self._step_s = clock, steps, step_s

    def run(self) -> Generator[None, None, int]:
        try:
            while self.done < self._steps:
                self.done += 1
                self._clock.rightNow += self._step_s
                yield
        finally:
            self.closed = True
        return self.done


def test_slice_ends_after_its_time() -> None:
    """One iteration of the event loop does work for at most ``SLICE_S`` and one step."""
    clock = IteratedClock()
    slices, work = Slices(clock), Work(clock, 10, SLICE_S / 3.5)
    result = slices.run(Owner(), work.run())
    assert work.done == 0
    clock.iterate()
    assert work.done == 4
    clock.iterate()
    assert work.done == 8
    clock.iterate()
    assert result.result == 10
    assert len(slices) == 0
    assert clock.getDelayedCalls() == []


def test_slice_ends_after_its_steps_without_a_clock() -> None:
    """Simulated time does not advance during work, so the number of steps is limited."""
    clock = IteratedClock()
    slices, work = Slices(clock), Work(clock, SLICE_STEPS_MAX + 1)
    slices.run(Owner(), work.run())
    clock.iterate()
    assert work.done == SLICE_STEPS_MAX


def test_short_work_is_done_immediately() -> None:
    """``begin`` returns the result of short work, and a Deferred for the rest of long work."""
    clock = IteratedClock()
    slices = Slices(clock)
    assert slices.begin(Work(clock, 3).run()) == 3
    long = Work(clock, 1000).run()
    assert slices.begin(long) is PENDING
    result = slices.run(Owner(), long)
    while clock.getDelayedCalls():
        clock.iterate()
    assert result.result == 1000


def test_new_work_does_one_step_while_other_work_is_queued() -> None:
    """New requests do not prolong an iteration that already has a slice of work."""
    clock = IteratedClock()
    slices = Slices(clock)
    slices.run(Owner(), Work(clock, 1000).run())
    work = Work(clock, 3)
    assert slices.begin(work.run()) is PENDING
    assert work.done == 1


def test_owner_with_the_least_used_time_goes_first() -> None:
    """Short work is done before longer work that was queued earlier."""
    clock = IteratedClock()
    slices = Slices(clock)
    long, short = Work(clock, 100_000), Work(clock, 10)
    slices.run(Owner(), long.run())
    clock.iterate()
    result = slices.run(Owner(), short.run())
    clock.iterate()
    assert result.result == 10
    assert long.done < 3 * SLICE_STEPS_MAX


def test_tasks_of_one_owner_keep_their_order() -> None:
    """The requests of a connection are handled one after another."""
    clock = IteratedClock()
    slices, owner = Slices(clock), Owner()
    first, second = Work(clock, 3 * SLICE_STEPS_MAX), Work(clock, 1)
    slices.run(owner, first.run())
    slices.run(owner, second.run())
    clock.iterate()
    assert second.done == 0
    while clock.getDelayedCalls():
        clock.iterate()
    assert (first.closed, second.closed) == (True, True)


def test_task_can_queue_the_next_of_its_owner() -> None:
    """A task can queue another one of its owner, as parsing a request does for handling it."""
    clock = IteratedClock()
    slices, owner = Slices(clock), Owner()
    results: list[int] = []
    parsed = slices.run(owner, Work(clock, 5).run())
    parsed.addCallback(lambda _: slices.run(owner, Work(clock, 7).run())).addCallback(results.append)
    while clock.getDelayedCalls():
        clock.iterate()
    assert results == [7]


def test_cancelled_work_ends() -> None:
    """Cancelling closes the generator and leaves nothing in the queue."""
    clock = IteratedClock()
    slices, work = Slices(clock), Work(clock, 1000)
    result = slices.run(Owner(), work.run())
    clock.iterate()
    result.cancel()
    assert work.closed
    assert isinstance(failure_of(result), CancelledError)
    clock.iterate()
    assert len(slices) == 0
    assert clock.getDelayedCalls() == []


def test_work_that_cancels_itself_ends() -> None:
    """A step may close the connection to which the work belongs."""
    clock = IteratedClock()
    slices, steps = Slices(clock), 0

    def work() -> Generator[None, None, None]:
        nonlocal steps
        while True:
            steps += 1
            if steps == 5:
                result.cancel()
            yield

    result = slices.run(Owner(), work())
    clock.iterate()
    assert isinstance(failure_of(result), CancelledError)
    clock.iterate()
    assert steps == 5
    assert len(slices) == 0


def test_error_ends_only_its_own_work() -> None:
    """The Deferred fails with the generator's exception, and other work continues."""
    clock = IteratedClock()
    slices, other = Slices(clock), Work(clock, 100)

    def failing() -> Generator[None, None, None]:
        yield
        raise ValueError("broken")

    result = slices.run(Owner(), failing())
    other_result = slices.run(Owner(), other.run())
    while clock.getDelayedCalls():
        clock.iterate()
    assert isinstance(failure_of(result), ValueError)
    assert other_result.result == 100


def test_concurrent_large_requests_are_bounded() -> None:
    """Above the limit, large requests wait, but small and control requests do not; all are handled eventually."""
    clock = IteratedClock()
    slices = Slices(clock)
    works = [Work(clock, 10 * SLICE_STEPS_MAX) for _ in range(ACTIVE_LARGE_MAX + 2)]
    for work in works:
        slices.run(Owner(), work.run(), SMALL_BYTES_MAX + 1)
    small, control = Work(clock, 1), Work(clock, 1)
    slices.run(Owner(), small.run(), 100)
    slices.run(Owner(is_control=True), control.run(), 10 * SMALL_BYTES_MAX)
    for _ in range(ACTIVE_LARGE_MAX + 2):
        clock.iterate()
    assert (small.closed, control.closed) == (True, True)
    assert [work.done > 0 for work in works] == [True] * ACTIVE_LARGE_MAX + [False] * 2
    while clock.getDelayedCalls():
        clock.iterate()
    assert all(work.closed for work in works)


def test_queued_work_can_be_cancelled() -> None:
    """Cancelled work leaves the queue without being admitted."""
    clock = IteratedClock()
    slices = Slices(clock)
    for _ in range(ACTIVE_LARGE_MAX):
        slices.run(Owner(), Work(clock, 10).run(), SMALL_BYTES_MAX + 1)
    waiting = slices.run(Owner(), Work(clock, 10).run(), SMALL_BYTES_MAX + 1)
    waiting.cancel()
    assert isinstance(failure_of(waiting), CancelledError)
    while clock.getDelayedCalls():
        clock.iterate()
    assert len(slices) == 0


def failure_of(result: Deferred[object]) -> BaseException:
    """Return the exception of a failed Deferred, and mark it as handled."""
    errors: list[BaseException] = []
    result.addErrback(lambda failure: errors.append(failure.value))
    if not errors:
        pytest.fail("the Deferred has not failed")
    return errors[0]
