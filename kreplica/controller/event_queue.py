"""The event queue: runs one handler at a time, so that only one piece of code changes the controller's state."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.controller.event_types import Event
from kreplica.controller.history.observer import ControllerObserver
from kreplica.controller.history.step_metrics import Cost, EventMetrics, EventTotals, difference
from kreplica.controller.history.step_timeline import Timeline
from kreplica.runtime import Reactor

log = Logger()


class EventQueue:
    """Passes events to a coroutine that handles them one at a time: urgent ones first, otherwise in order.

    Owned by the controller.  An event that is already waiting is not queued again, because handlers read the current
    state.  The queue is thus bounded by the number of different events and by the controller's limit on requests.

    :param handle: handles one event; its exceptions are passed to ``failed``, and the next event follows.
    :param failed: reacts to a failed event (for example by resigning).
    :param cost: returns the total cost of all work so far.
    :param timeline: records the start and end of each event and provides the clock.
    :param observer: notified when events are queued, started, failed and ended.
    :ivar last_event: metrics of the event that was handled last.
    :ivar totals: metrics of all handled events.
    """

    def __init__(
        self,
        reactor: Reactor,
        handle: Callable[[Event], Awaitable[None]],
        failed: Callable[[Event, BaseException], None],
        cost: Callable[[], Cost] = Cost,
        timeline: Timeline | None = None,
        observer: ControllerObserver | None = None,
    ) -> None:
        self._reactor = reactor
        self._handle = handle
        self._failed = failed
        self._urgent: deque[tuple[float, Event]] = deque()
        self._normal: deque[tuple[float, Event]] = deque()
        self._queued: set[Event] = set()
        self._running: Deferred[None] | None = None
        self._next_call: IDelayedCall | None = None
        self._paused = False
        self._stopped = False
        self._cost = cost
        self._timeline = timeline or Timeline(reactor.seconds)
        self._observer = observer or ControllerObserver()
        self.events_handled = 0
        self.last_event: EventMetrics | None = None
        self.totals = EventTotals()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._normal)

    @property
    def idle(self) -> bool:
        """True if no event is waiting or being handled."""
        return self._running is None and not len(self)

    @property
    def has_urgent(self) -> bool:
        """True if an urgent event is waiting."""
        return bool(self._urgent)

    @property
    def idle_for_an_iteration(self) -> bool:
        """True if the queue is idle and the last event ended in an earlier reactor iteration."""
        return self.idle and (self._next_call is None or not self._next_call.active())

    def put(self, event: Event) -> None:
        """Queue an event unless an equal one is waiting; drop it after ``stop``."""
        if self._stopped:
            event.dropped()
            return
        if event in self._queued:
            return
        self._queued.add(event)
        (self._urgent if event.urgent else self._normal).append((self._timeline.seconds(), event))
        self._observer.queued(event)
        self._next()

    def pause(self) -> None:
        """Start no other event until ``resume``; called when the ZooKeeper connection is lost."""
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._next()

    def discard(self) -> None:
        """Drop the waiting events, because the session expired or the broker is stopping."""
        waiting = [event for _, event in (*self._urgent, *self._normal)]
        self._urgent.clear()
        self._normal.clear()
        self._queued.clear()
        for event in waiting:
            event.dropped()

    def stop(self) -> Deferred[None]:
        """Stop accepting events; fires when the current one has ended or was cancelled."""
        self._stopped = True
        self.discard()
        if self._next_call is not None and self._next_call.active():
            self._next_call.cancel()
        done: Deferred[None] = Deferred()
        if self._running is None:
            done.callback(None)
        else:
            self._running.addBoth(lambda _: done.callback(None))
            self._running.cancel()
        return done

    def _next(self) -> None:
        if self._running is not None or self._paused or not len(self):
            return
        queued_at, event = (self._urgent or self._normal).popleft()
        self._queued.discard(event)
        # Set before the coroutine runs, since the coroutine may queue events or finish before fromCoroutine returns.
        self._running = placeholder = Deferred[None]()
        running = Deferred.fromCoroutine(self._run(event, queued_at))
        if self._running is placeholder:
            self._running = running
        running.addErrback(lambda failure: log.failure("controller event queue", failure))

    async def _run(self, event: Event, queued_at: float) -> None:
        started, before = self._timeline.seconds(), self._cost()
        self._timeline.began(event, queued_at)
        self._observer.began(event)
        try:
            await self._handle(event)
        except CancelledError:
            event.dropped()
        except Exception as error:
            event.dropped()
            self._observer.failed(event, error)
            self._failed(event, error)
        self._observer.ended(event)
        self.events_handled += 1
        handled_s = self._timeline.seconds() - started
        self.last_event = EventMetrics(event, started - queued_at, handled_s, difference(self._cost(), before))
        self.totals.note(self.last_event)
        self._timeline.ended(self.last_event.cost)
        self._running = None
        if not self._stopped:
            # In a new reactor iteration, so that a long queue neither recurses nor starves other requests.
            self._next_call = self._reactor.callLater(0, self._next)
