"""Virtual time: one queue of events for a whole simulated world, handled one at a time.

Events are ordered by (time, sequence number), so a run depends on nothing but its seed.  Every event belongs to a
process; those of a paused process wait until it goes on, those of a dead one never happen.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.error import AlreadyCalled, AlreadyCancelled
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure
from zope.interface import implementer

T = TypeVar("T")

PENDING, CALLED, CANCELLED = range(3)
CANCELLED_BEFORE_SWEEP = 256
EVENTS_AT_ONE_TIME_MAX = 1_000_000


class ProcessState(Enum):
    """Whether events of a process happen."""

    RUNNING = auto()
    PAUSED = auto()
    DEAD = auto()


class Process:
    """Whose events they are; the network's own belong to a process that is never paused nor killed.

    :param name: ``HOST#N`` for the host's Nth process.
    """

    __slots__ = ("held", "host", "name", "state")

    def __init__(self, name: str) -> None:
        self.name = name
        self.host = name.partition("#")[0]
        self.state = ProcessState.RUNNING
        self.held: list[Call] = []


@implementer(IDelayedCall)
class Call:
    """One event to come: Twisted's ``IDelayedCall``.

    :param timer: whether ``getDelayedCalls`` shows it; deliveries and the like are not for programs to see.
    """

    __slots__ = ("_scheduler", "args", "function", "kwargs", "process", "queued_for_s", "state", "time_s", "timer")

    def __init__(
        self,
        scheduler: Scheduler,
        process: Process,
        time_s: float,
        timer: bool,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._scheduler = scheduler
        self.process = process
        self.time_s = time_s
        self.queued_for_s = time_s
        self.timer = timer
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.state = PENDING

    def getTime(self) -> float:
        return self.time_s

    def active(self) -> bool:
        return self.state == PENDING

    def cancel(self) -> None:
        self._check_pending()
        self.state = CANCELLED
        self.args, self.kwargs = (), {}  # as Twisted does, let go of what the call would have kept alive
        self._scheduler.cancelled()

    def reset(self, secondsFromNow: float) -> None:
        self._check_pending()
        self._move(self._scheduler.now_s + secondsFromNow)

    def delay(self, secondsLater: float) -> None:
        self._check_pending()
        self._move(self.time_s + secondsLater)

    def _check_pending(self) -> None:
        if self.state == CANCELLED:
            raise AlreadyCancelled
        if self.state == CALLED:
            raise AlreadyCalled

    def _move(self, time_s: float) -> None:
        # A later time is looked at only when the earlier one has come: timeouts that are put off for ever stay cheap.
        self.time_s = max(time_s, self._scheduler.now_s)
        if self.time_s < self.queued_for_s:
            self._scheduler.requeue(self)

    def __repr__(self) -> str:
        return f"<Call of {self.process.name} at {self.time_s:.6f}: {name_of(self.function)}>"


def name_of(function: Callable[..., Any]) -> str:
    """A function's name without any address, so that traces of two runs can be compared."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__


class Scheduler:
    """The queue of events, the virtual clock, and the loop over them.

    :param trace: called with one line per event, before it happens.
    """

    def __init__(self, trace: Callable[[str], None] | None = None) -> None:
        self.now_s = 0.0
        self.trace = trace
        self.after_event: Callable[[Process], None] | None = None
        """Called when an event is over, with the process that it happened to: for checks of what must always hold."""
        self.events_count = 0
        self._instant_began_at = 0
        # What the event under way has asked to follow it at once.
        self._is_under_way = False
        self._following: tuple[Process, Callable[..., Any], tuple[Any, ...]] | None = None
        self._queue: list[tuple[float, int, Call]] = []
        self._sequence = 0
        self._cancelled_count = 0

    def post(self, process: Process, delay_s: float, function: Callable[..., Any], *args: Any) -> Call:
        """Let something happen that programs do not see as a timer."""
        return self.add(Call(self, process, self.now_s + delay_s, False, function, args, {}))

    def post_at(self, process: Process, time_s: float, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """``post`` for what is never taken back, at a time that is not over."""
        self._sequence = sequence = self._sequence + 1
        heappush(self._queue, (time_s, sequence, Call(self, process, time_s, False, function, args, {})))

    def follow(self, process: Process, function: Callable[..., Any], *args: Any) -> None:
        """Let something happen right behind the event under way, as its second half.

        For kernels: bytes that arrive and the program that they wake are two events, with nothing between them that
        matters.  This spares the queue, and ``after_event``, to which no kernel matters, is told of the program alone.
        Outside of an event, or where one follows already, it is a ``post``.
        """
        if self._is_under_way and self._following is None and process.state is ProcessState.RUNNING:
            self._following = process, function, args
        else:
            self.post(process, 0.0, function, *args)

    def add(self, call: Call) -> Call:
        """Queue a new event, behind those of the same time."""
        self._sequence = sequence = self._sequence + 1
        heappush(self._queue, (call.time_s, sequence, call))
        return call

    def requeue(self, call: Call) -> None:
        """Queue it for its new, earlier time; the old entry no longer matches and is passed over."""
        call.queued_for_s = call.time_s
        self.add(call)

    def cancelled(self) -> None:
        """Sweep out cancelled events before they outnumber the live ones."""
        self._cancelled_count += 1
        if self._cancelled_count > CANCELLED_BEFORE_SWEEP and self._cancelled_count * 2 > len(self._queue):
            self._queue = [entry for entry in self._queue if entry[2].state == PENDING]
            heapify(self._queue)
            self._cancelled_count = 0

    def step(self, until_s: float = float("inf")) -> bool:
        """Let the next event happen, however far ahead it is.

        :param until_s: events later than this stay where they are.
        :return: whether there was one.
        :raise Exception: whatever a timer raises; a real reactor would only log it.
        """
        queue = self._queue
        while queue:
            entry_s, _, call = queue[0]
            if entry_s > until_s:
                return False
            heappop(queue)
            if call.state != PENDING:
                self._cancelled_count -= 1 if call.state == CANCELLED and self._cancelled_count else 0
                continue
            if call.queued_for_s != entry_s:
                continue
            if call.time_s > entry_s:
                self.requeue(call)
                continue
            process = call.process
            if process.state is not ProcessState.RUNNING:
                if process.state is ProcessState.PAUSED:
                    process.held.append(call)
                continue
            if entry_s > self.now_s:
                self.now_s = entry_s
                self._instant_began_at = self.events_count
            elif self.events_count - self._instant_began_at > EVENTS_AT_ONE_TIME_MAX:
                raise RuntimeError(f"time stands still at {entry_s}: {name_of(call.function)} goes round for ever")
            call.state = CALLED
            self._happen(process, call.function, call.args, call.kwargs)
            return True
        return False

    def _happen(
        self, process: Process, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Let an event happen, and what follows it."""
        self.events_count += 1
        if self.trace is not None:
            self.trace(f"{self.now_s:.9f} {process.name} {name_of(function)}")
        self._is_under_way = True
        try:
            function(*args, **kwargs)
        finally:
            self._is_under_way = False
            following, self._following = self._following, None
        if following is not None:
            self._happen(*following, {})
        elif self.after_event is not None:
            self.after_event(process)

    def run(self, seconds: float) -> None:
        """Let all happen that happens within so many seconds; then the clock stands at their end."""
        until_s = self.now_s + seconds
        while self.step(until_s):
            pass
        self.now_s = until_s

    def run_until(
        self, goal: Callable[[], bool] | Deferred[T] | Coroutine[Deferred[Any], Any, T], timeout_s: float = 60.0
    ) -> T | None:
        """Let events happen until the goal is reached.

        :param goal: a condition, looked at after each event; or a Deferred or coroutine, whose result is returned.
        :raise TimeoutError: where it is not reached in so much virtual time, or nothing is left that could happen.
        """
        if isinstance(goal, Coroutine):
            goal = Deferred.fromCoroutine(goal)
        if not isinstance(goal, Deferred):
            self._run_until(goal, timeout_s)
            return None
        outcome: list[T | Failure] = []
        goal.addBoth(outcome.append)
        self._run_until(lambda: bool(outcome), timeout_s)
        result = outcome[0]
        if isinstance(result, Failure):
            result.raiseException()
        return result

    def _run_until(self, reached: Callable[[], bool], timeout_s: float) -> None:
        until_s = self.now_s + timeout_s
        while not reached():
            if not self.step(until_s):
                left = "\n".join(map(repr, self.pending()[:20])) or "nothing is left to happen"
                raise TimeoutError(f"not reached within {timeout_s} s of virtual time, at {self.now_s:.6f}:\n{left}")

    def pending(self, process: Process | None = None) -> list[Call]:
        """The events to come, in order.

        :param process: only those of this one.
        """
        queued = (call for at, _, call in sorted(self._queue) if call.queued_for_s == at)
        held = process.held if process is not None else []
        calls = [call for call in dict.fromkeys([*queued, *held]) if call.state == PENDING]
        return sorted(
            (call for call in calls if process is None or call.process is process), key=lambda call: call.time_s
        )

    def pause(self, process: Process) -> None:
        """Let nothing of it happen until ``resume``."""
        process.state = ProcessState.PAUSED

    def resume(self, process: Process) -> None:
        """Go on: what was due meanwhile happens now, in its old order."""
        process.state = ProcessState.RUNNING
        held, process.held = process.held, []
        for call in held:
            if call.state == PENDING:
                call.time_s = max(call.time_s, self.now_s)
                self.requeue(call)

    def kill(self, process: Process) -> None:
        """Let nothing of it happen ever again."""
        process.state = ProcessState.DEAD
        process.held.clear()
