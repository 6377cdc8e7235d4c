"""Long work in short slices: one slice per iteration of the event loop, so that a large request does not delay others.

Work is a generator that yields about every tenth of a millisecond and returns its result. Threads would not help: pure
Python holds the interpreter lock, and the event loop would wait for it at every system call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, Generic, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from kreplica.runtime import Reactor

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that yields between its steps and returns a result."""

SLICE_S = 0.003
"""Maximum duration of a slice in seconds; a single step may exceed it."""

SLICE_STEPS_MAX = 64
"""Maximum number of steps in a slice, so that slices also end with a simulated clock, which does not advance."""

INLINE_S = 0.001
"""Maximum duration in seconds of the first part, which runs immediately; the remaining work is queued."""

INLINE_STEPS_MAX = 8

STEP_ROWS = 100
"""Number of rows that a handler processes between two yields, if each takes about a microsecond."""

SMALL_BYTES_MAX = 256 * 1024
"""An owner is small if its request has at most this size; small and large owners have separate limits."""

ACTIVE_BYTES_MAX = 16 * 1024 * 1024
"""Maximum total request size of the admitted owners of a size class.

An owner that exceeds it is admitted only if no other owner of its class is.
"""

LONG_S = 0.02
"""A step that overruns its slice by this time is reported to ``Slices.on_long``."""

ACTIVE_SMALL_MAX, ACTIVE_LARGE_MAX = 64, 4
"""Maximum number of small and of large owners that are admitted at the same time."""


class Pending:
    """Type of ``PENDING``."""


PENDING: Final = Pending()
"""Returned if the result is not available yet."""


class Owner(Protocol):
    """A source of work, such as a connection. Its tasks run in order."""

    @property
    def is_control(self) -> bool:
        """True if its work has priority over other owners and needs no admission."""


class _Task(Generic[T]):
    __slots__ = ("is_cancelled", "is_running", "result", "steps")

    def __init__(self, steps: Steps[T]) -> None:
        self.steps = steps
        self.is_running = self.is_cancelled = False
        self.result: Deferred[T] = Deferred(self._cancel)

    def _cancel(self, _: Deferred[T]) -> None:
        self.is_cancelled = True
        if not self.is_running:
            self.steps.close()


class _Backlog:
    """Tasks of one owner.

    :ivar size: size of the request in bytes.
    :ivar steps: number of steps run since the owner was last idle.
    """

    __slots__ = ("is_control", "size", "steps", "tasks")

    def __init__(self, owner: Owner, size: int) -> None:
        self.is_control = owner.is_control
        self.size = size
        self.steps = 0
        self.tasks: deque[_Task[Any]] = deque()

    @property
    def is_small(self) -> bool:
        return self.size <= SMALL_BYTES_MAX


class Slices:
    """Scheduler of the long computations of one broker.

    The owner with the fewest steps so far runs first, so short work overtakes long work. Only a limited number
    of owners is admitted at the same time, because they use memory; small and large requests wait separately.

    :ivar steps: number of steps of queued tasks since the start.
    :ivar on_long: called with a description of work that blocked the event loop for long, and its duration in seconds.
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._active: dict[Owner, _Backlog] = {}
        self._waiting: dict[Owner, _Backlog] = {}
        self._call: IDelayedCall | None = None
        self.steps = 0
        self.on_long: Callable[[str, float], None] = lambda cause, seconds: None

    def __len__(self) -> int:
        """Number of owners with queued work."""
        return len(self._active) + len(self._waiting)

    def begin(self, steps: Steps[T]) -> T | Pending:
        """Run the first steps immediately, because most work is short.

        :return: the result, or ``PENDING`` if the caller must pass the generator to ``run``.
        """
        count, until_s = 1, 0.0
        try:
            next(steps)
            if self._active:
                return PENDING
            until_s = self._reactor.seconds() + INLINE_S
            while count < INLINE_STEPS_MAX and self._reactor.seconds() < until_s:
                next(steps)
                count += 1
        except StopIteration as done:
            result: T = done.value
            return result
        return PENDING

    def run(self, owner: Owner, steps: Steps[T], size: int = 0) -> Deferred[T]:
        """Queue work, behind the other tasks of its owner.

        :param size: size of the request in bytes, to which its memory is proportional.
        :return: a Deferred with the result or exception of the generator; cancelling it closes the generator.
        """
        task = _Task(steps)
        backlog = self._active.get(owner) or self._waiting.get(owner)
        if backlog is None:
            backlog = _Backlog(owner, size)
            waits = not backlog.is_control and not self._fits(backlog)
            (self._waiting if waits else self._active)[owner] = backlog
        backlog.tasks.append(task)
        self._schedule()
        return task.result

    def _fits(self, backlog: _Backlog) -> bool:
        same = [other.size for other in self._active.values() if other.is_small == backlog.is_small]
        count_max = ACTIVE_SMALL_MAX if backlog.is_small else ACTIVE_LARGE_MAX
        return not same or (len(same) < count_max and sum(same) + backlog.size <= ACTIVE_BYTES_MAX)

    def _schedule(self) -> None:
        if self._call is None and self._active:
            self._call = self._reactor.callLater(0, self._run_slice)

    def _run_slice(self) -> None:
        self._call = None
        seconds = self._reactor.seconds
        until_s = seconds() + SLICE_S
        steps_left = SLICE_STEPS_MAX
        while self._active and steps_left > 0:
            owner, backlog = min(self._active.items(), key=_precedence)
            before = steps_left
            steps_left = self._advance(backlog, steps_left, until_s, seconds)
            backlog.steps += before - steps_left
            self.steps += before - steps_left
            if not backlog.tasks:
                del self._active[owner]
                self._admit()
            now_s = seconds()
            if now_s >= until_s + LONG_S:
                self.on_long(f"one step for {owner!r}", now_s - until_s)
            if now_s >= until_s:
                break
        self._schedule()

    def _advance(self, backlog: _Backlog, steps_left: int, until_s: float, seconds: Callable[[], float]) -> int:
        """Run steps of an owner's first task.

        :return: number of steps left in this slice.
        """
        task = backlog.tasks[0]
        task.is_running = True
        try:
            while not task.is_cancelled:
                steps_left -= 1
                next(task.steps)
                if steps_left <= 0 or seconds() >= until_s:
                    break
        except StopIteration as done:
            self._finish(backlog, task, done.value)
        except BaseException:
            self._finish(backlog, task, Failure())
        task.is_running = False
        if task.is_cancelled and backlog.tasks and backlog.tasks[0] is task:
            task.steps.close()
            backlog.tasks.popleft()
        return steps_left

    @staticmethod
    def _finish(backlog: _Backlog, task: _Task[Any], result: object) -> None:
        # Remove the task only after the callback, which may queue the owner's next task.
        task.is_running = False
        if not task.is_cancelled:
            if isinstance(result, Failure):
                task.result.errback(result)
            else:
                task.result.callback(result)
        backlog.tasks.popleft()

    def _admit(self) -> None:
        for owner, backlog in list(self._waiting.items()):
            while backlog.tasks and backlog.tasks[0].is_cancelled:
                backlog.tasks.popleft()
            if not backlog.tasks:
                del self._waiting[owner]
            elif self._fits(backlog):
                del self._waiting[owner]
                self._active[owner] = backlog


def _precedence(item: tuple[Owner, _Backlog]) -> tuple[bool, int]:
    backlog = item[1]
    return not backlog.is_control, backlog.steps


async def sliced(slices: Slices, owner: Owner, steps: Steps[T], size: int = 0) -> T:
    """Run work in slices from a coroutine.

    :raise CancelledError: the coroutine was cancelled.
    """
    result = slices.begin(steps)
    return await slices.run(owner, steps, size) if isinstance(result, Pending) else result

