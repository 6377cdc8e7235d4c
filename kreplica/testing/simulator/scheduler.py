"""Virtual time and one event queue for all simulated hosts; events run one at a time.

Events are ordered by (time, sequence number), so a run depends only on its seed.  Every event belongs to a process;
events of a paused process wait until it resumes, events of a dead process are dropped.
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
    RUNNING = auto()
    PAUSED = auto()
    DEAD = auto()


class Process:
    """Owner of events.  The network's events belong to a process that is never paused or killed.

    :param name: ``HOST#N`` for the host's Nth process.
    :ivar held: events that came due while the process was paused.
    """

    __slots__ = ("held", "host", "name", "state")

    def __init__(self, name: str) -> None:
        self.name = name
        self.host = name.partition("#")[0]
        self.state = ProcessState.RUNNING
        self.held: list[Call] = []


@implementer(IDelayedCall)
class Call:
    """A scheduled event; implements Twisted's ``IDelayedCall``.

    :param timer: true if ``getDelayedCalls`` returns it; network deliveries are hidden from programs.
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
        self.args, self.kwargs = (), {}  # as in Twisted, release the references that the call kept alive
        self._scheduler.note_cancelled()

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
        # A later time takes effect only when the earlier one is due, so that resetting a timeout often stays cheap.
        self.time_s = max(time_s, self._scheduler.now_s)
        if self.time_s < self.queued_for_s:
            self._scheduler.requeue(self)

    def __repr__(self) -> str:
        return f"<Call of {self.process.name} at {self.time_s:.6f}: {name_of(self.function)}>"


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name without its memory address, so that traces of two runs can be compared."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__


class Scheduler:
    """Event queue, virtual clock and event loop.

    :param trace: called with one line per event, before it runs.
    """

    def __init__(self, trace: Callable[[str], None] | None = None) -> None:
        self.now_s = 0.0
        self.trace = trace
        self.after_event: Callable[[Process], None] | None = None
        """Called after each event with its process; used to check invariants."""
        self.event_count = 0
        self._first_event_of_instant = 0
        self._in_event = False
        self._follow_up: tuple[Process, Callable[..., Any], tuple[Any, ...]] | None = None
        self._queue: list[tuple[float, int, Call]] = []
        self._sequence = 0
        self._cancelled_count = 0

    def post(self, process: Process, delay_s: float, function: Callable[..., Any], *args: Any) -> Call:
        """Schedule a call that ``getDelayedCalls`` does not show."""
        return self.add(Call(self, process, self.now_s + delay_s, False, function, args, {}))

    def post_at(self, process: Process, time_s: float, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Schedule a call that is never cancelled, at an absolute time that has not passed."""
        self._sequence = sequence = self._sequence + 1
        heappush(self._queue, (time_s, sequence, Call(self, process, time_s, False, function, args, {})))

    def follow(self, process: Process, function: Callable[..., Any], *args: Any) -> None:
        """Run a call directly after the current event, without the queue.

        A simulated kernel uses it to wake a program when bytes arrive.  ``after_event`` is called once, after the
        second call.  Outside an event, or if the event already has a follow-up, this is the same as ``post``.
        """
        if self._in_event and self._follow_up is None and process.state is ProcessState.RUNNING:
            self._follow_up = process, function, args
        else:
            self.post(process, 0.0, function, *args)

    def add(self, call: Call) -> Call:
        """Queue a new event, after those of the same time."""
        self._sequence = sequence = self._sequence + 1
        heappush(self._queue, (call.time_s, sequence, call))
        return call

    def requeue(self, call: Call) -> None:
        """Queue a call for its new, earlier time; the old queue entry no longer matches and is skipped."""
        call.queued_for_s = call.time_s
        self.add(call)

    def note_cancelled(self) -> None:
        """Count a cancelled event; remove all cancelled events from the queue before they outnumber the live ones."""
        self._cancelled_count += 1
        if self._cancelled_count > CANCELLED_BEFORE_SWEEP and self._cancelled_count * 2 > len(self._queue):
            self._queue = [entry for entry in self._queue if entry[2].state == PENDING]
            heapify(self._queue)
            self._cancelled_count = 0

    def step(self, until_s: float = float("inf")) -> bool:
        """Run the next event and advance the clock to its time.

        :param until_s: events later than this stay in the queue.
        :return: false if no event was due.
        :raise Exception: raised by a timer; a real reactor would only log it.
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
                self._first_event_of_instant = self.event_count
            elif self.event_count - self._first_event_of_instant > EVENTS_AT_ONE_TIME_MAX:
                raise RuntimeError(f"endless loop at virtual time {entry_s}: {name_of(call.function)} repeats")
            call.state = CALLED
            self._run_event(process, call.function, call.args, call.kwargs)
            return True
        return False

    def _run_event(
        self, process: Process, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.event_count += 1
        if self.trace is not None:
            self.trace(f"{self.now_s:.9f} {process.name} {name_of(function)}")
        self._in_event = True
        try:
            function(*args, **kwargs)
        finally:
            self._in_event = False
            follow_up, self._follow_up = self._follow_up, None
        if follow_up is not None:
            self._run_event(*follow_up, {})
        elif self.after_event is not None:
            self.after_event(process)

    def run(self, seconds: float) -> None:
        """Run the events of the next ``seconds`` and advance the clock by exactly that time."""
        until_s = self.now_s + seconds
        while self.step(until_s):
            pass
        self.now_s = until_s

    def run_until(
        self, goal: Callable[[], bool] | Deferred[T] | Coroutine[Deferred[Any], Any, T], timeout_s: float = 60.0
    ) -> T | None:
        """Run events until the goal is reached.

        :param goal: a condition, evaluated after each event; or a Deferred or coroutine, whose result is returned.
        :raise TimeoutError: the goal was not reached within ``timeout_s`` of virtual time, or no event is left.
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

    def _run_until(self, is_reached: Callable[[], bool], timeout_s: float) -> None:
        until_s = self.now_s + timeout_s
        while not is_reached():
            if not self.step(until_s):
                calls = "\n".join(map(repr, self.pending()[:20])) or "no event is left"
                raise TimeoutError(
                    f"the goal was not reached within {timeout_s} s of virtual time, at {self.now_s:.6f}:\n{calls}"
                )

    def pending(self, process: Process | None = None) -> list[Call]:
        """Return the scheduled events in order of time; only those of one process if it is given."""
        queued = (call for entry_s, _, call in sorted(self._queue) if call.queued_for_s == entry_s)
        held_calls = process.held if process is not None else []
        calls = [call for call in dict.fromkeys([*queued, *held_calls]) if call.state == PENDING]
        return sorted(
            (call for call in calls if process is None or call.process is process), key=lambda call: call.time_s
        )

    def pause(self, process: Process) -> None:
        process.state = ProcessState.PAUSED

    def resume(self, process: Process) -> None:
        """Continue a paused process; events that became due during the pause are queued for now, in order."""
        process.state = ProcessState.RUNNING
        calls, process.held = process.held, []
        for call in calls:
            if call.state == PENDING:
                call.time_s = max(call.time_s, self.now_s)
                self.requeue(call)

    def kill(self, process: Process) -> None:
        process.state = ProcessState.DEAD
        process.held.clear()
