"""One queue, one event at a time: the only place from which the controller's state changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.controller.event_types import Event
from kreplica.controller.history.observer import Diary
from kreplica.controller.history.step_metrics import Cost, EventFigures, EventTotals, difference
from kreplica.controller.history.step_timeline import Timeline
from kreplica.runtime import Reactor

log = Logger()


class EventQueue:
    """Feeds events to one coroutine at a time, in order.

    Owned by the controller.  An event that waits already is not queued again (events say that something changed, and
    their handlers read what it is now), so the queue is bounded by the number of things that can change.

    :param handle: handles one event; whatever it raises is passed to ``failed`` and the next event follows.
    :param failed: decides what a failure means (for example, resign).
    :param cost: of everything that was handled so far.
    :param timeline: is told when an event's handling begins and ends, and has the time.
    :param diary: is told what is queued, handled, and how that ended.
    :ivar last_event: what became of the event that was handled last.
    :ivar totals: of all that were handled.
    """

    def __init__(
        self,
        reactor: Reactor,
        handle: Callable[[Event], Awaitable[None]],
        failed: Callable[[Event, BaseException], None],
        cost: Callable[[], Cost] = Cost,
        timeline: Timeline | None = None,
        diary: Diary | None = None,
    ) -> None:
        self._reactor = reactor
        self._handle = handle
        self._failed = failed
        self._waiting: deque[tuple[float, Event]] = deque()
        self._queued: set[Event] = set()
        self._running: Deferred[None] | None = None
        self._turn: IDelayedCall | None = None
        self._paused = False
        self._stopped = False
        self._cost = cost
        self._timeline = timeline or Timeline(reactor.seconds)
        self._diary = diary or Diary()
        self.events_handled = 0
        self.last_event: EventFigures | None = None
        self.totals = EventTotals()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is being handled."""
        return self._running is None and not self._waiting

    @property
    def at_rest(self) -> bool:
        """Whether it is idle, and was before this turn of the reactor."""
        return self.idle and (self._turn is None or not self._turn.active())

    def put(self, event: Event) -> None:
        """Queue an event; the same event waiting already stands for both."""
        if self._stopped:
            event.dropped()
            return
        if event in self._queued:
            return
        self._queued.add(event)
        self._waiting.append((self._timeline.seconds(), event))
        self._diary.queued(event)
        self._next()

    def pause(self) -> None:
        """Handle no further event until ``resume`` (the connection to ZooKeeper is lost; its outcome is unknown)."""
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._next()

    def discard(self) -> None:
        """Forget what waits (the session expired: everything will be read anew)."""
        waiting = [event for _, event in self._waiting]
        self._waiting.clear()
        self._queued.clear()
        for event in waiting:
            event.dropped()

    def stop(self) -> Deferred[None]:
        """Take no more events; fires when the one being handled is done or cancelled."""
        self._stopped = True
        self.discard()
        if self._turn is not None and self._turn.active():
            self._turn.cancel()
        done: Deferred[None] = Deferred()
        if self._running is None:
            done.callback(None)
        else:
            self._running.addBoth(lambda _: done.callback(None))
            self._running.cancel()
        return done

    def _next(self) -> None:
        if self._running is not None or self._paused or not self._waiting:
            return
        queued_at, event = self._waiting.popleft()
        self._queued.discard(event)
        # Set before the coroutine runs: it may put events, or finish, before fromCoroutine returns.
        self._running = placeholder = Deferred[None]()
        running = Deferred.fromCoroutine(self._run(event, queued_at))
        if self._running is placeholder:
            self._running = running
        running.addErrback(lambda failure: log.failure("controller event queue", failure))

    async def _run(self, event: Event, queued_at: float) -> None:
        started, before = self._timeline.seconds(), self._cost()
        self._timeline.began(event, queued_at)
        self._diary.began(event)
        try:
            await self._handle(event)
        except CancelledError:
            event.dropped()
        except Exception as error:
            event.dropped()
            self._diary.failed(event, error)
            self._failed(event, error)
        self._diary.ended(event)
        self.events_handled += 1
        handled_s = self._timeline.seconds() - started
        self.last_event = EventFigures(event, started - queued_at, handled_s, difference(self._cost(), before))
        self.totals.note(self.last_event)
        self._timeline.ended(self.last_event.cost)
        self._running = None
        if not self._stopped:
            # A fresh turn of the loop, so that a long queue neither recurses nor starves the brokers' requests.
            self._turn = self._reactor.callLater(0, self._next)
