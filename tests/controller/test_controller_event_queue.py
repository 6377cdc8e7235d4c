"""The event queue handles events one at a time, urgent ones first, and merges equal ones."""

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kreplica.controller.event_queue import EventQueue
from kreplica.controller.event_types import AssignmentChanged, BrokersChanged, DirectoriesFailed, TopicsChanged


class Handler:
    def __init__(self):
        self.handled = []
        self.failures = []
        self.wait = None
        self.error = None

    async def handle(self, event):
        self.handled.append(event)
        if self.error is not None:
            raise self.error
        if self.wait is not None:
            await self.wait

    def failed(self, event, error):
        self.failures.append((event, error))


def make():
    clock, handler = Clock(), Handler()
    return clock, handler, EventQueue(clock, handler.handle, handler.failed)


def test_one_at_a_time():
    """The next event waits until the current one has ended."""
    clock, handler, queue = make()
    handler.wait = Deferred()
    queue.put(BrokersChanged())
    queue.put(TopicsChanged())
    clock.advance(5)
    assert handler.handled == [BrokersChanged()]
    handler.wait, waited = None, handler.wait
    waited.callback(None)
    clock.advance(0)
    assert handler.handled == [BrokersChanged(), TopicsChanged()]
    assert queue.idle
    assert queue.last_event.waited_s == 5


def test_same_event_waits_once():
    """Equal waiting events are merged; an event equal to the current one is queued, because the data for that one may
    already have been read.
    """
    clock, handler, queue = make()
    handler.wait = Deferred()
    queue.put(TopicsChanged())
    for _ in range(3):
        queue.put(TopicsChanged())
        queue.put(AssignmentChanged("a"))
    assert len(queue) == 2
    handler.wait, waited = None, handler.wait
    waited.callback(None)
    for _ in range(3):
        clock.advance(0)
    assert handler.handled == [TopicsChanged(), TopicsChanged(), AssignmentChanged("a")]


def test_urgent_events_precede_others():
    """Urgent events are handled first, in their own order; they are merged with equal waiting events."""
    clock, handler, queue = make()
    handler.wait = Deferred()
    queue.put(TopicsChanged())
    assert not queue.has_urgent
    for event in (AssignmentChanged("a"), BrokersChanged(), DirectoriesFailed(), BrokersChanged(), TopicsChanged()):
        queue.put(event)
    assert queue.has_urgent
    assert len(queue) == 4
    handler.wait, waited = None, handler.wait
    waited.callback(None)
    for _ in range(4):
        clock.advance(0)
    assert handler.handled[1:] == [BrokersChanged(), DirectoriesFailed(), AssignmentChanged("a"), TopicsChanged()]
    assert not queue.has_urgent


def test_failure_does_not_stop_the_queue():
    """A handler's exception is passed on, and the next event is handled."""
    clock, handler, queue = make()
    handler.error = RuntimeError("no")
    queue.put(BrokersChanged())
    handler.error = None
    queue.put(TopicsChanged())
    clock.advance(0)
    assert [str(error) for _, error in handler.failures] == ["no"]
    assert handler.handled == [BrokersChanged(), TopicsChanged()]


def test_paused_queue_keeps_its_events():
    """A paused queue handles no event and loses none."""
    clock, handler, queue = make()
    queue.pause()
    queue.put(BrokersChanged())
    clock.advance(1)
    assert handler.handled == []
    queue.resume()
    assert handler.handled == [BrokersChanged()]


def test_stopped_queue_leaves_no_timer():
    """Stopping cancels the current event, drops the waiting ones and leaves no timer."""
    clock, handler, queue = make()
    handler.wait = Deferred()
    queue.put(BrokersChanged())
    queue.put(TopicsChanged())
    stopped = queue.stop()
    assert stopped.called
    assert handler.failures == []
    queue.put(TopicsChanged())
    assert clock.getDelayedCalls() == []
    assert handler.handled == [BrokersChanged()]
