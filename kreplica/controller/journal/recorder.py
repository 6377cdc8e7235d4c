"""Records all inputs and outputs of a controller in order, so that its run can be inspected and replayed.

A controller is a deterministic function of its inputs.  Entries with ``in`` are inputs: calls, responses, timers and
watch events.  Entries with ``read`` are values that the controller read (time, random numbers, configurations).
Entries with ``out`` follow from those: ZooKeeper operations, commands to brokers, timers and the handling of events.
If a controller of the same program version receives the same inputs and values in the same order, it produces the same
outputs; a difference means that the program has changed (``kreplica.testing.replay.replay``).

The recording is transparent to the controller: its dependencies are wrapped (``recording_proxies``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from kreplica.controller.event_types import ControllerRequest, Event, recorded_name
from kreplica.controller.history.observer import ControllerObserver
from kreplica.controller.journal.value_json import DeferredJson, encode_error, encode_event, encode_response, plain
from kreplica.zookeeper import WatchEvent

T = TypeVar("T")

Entry = dict[str, Any]
"""JSON object; values may be wrapped in ``DeferredJson``."""

FIRST_SWEEP_TIMERS = 64
"""Number of recorded timers at which inactive ones are removed for the first time."""


class EntrySink(Protocol):
    """Destination of entries."""

    def note(self, entry: Entry, weight: int = 1) -> None:
        """Add an entry.

        :param weight: approximate number of znodes or partitions in the entry.
        """


class Journal(ControllerObserver):
    """Recorder of one controller, from its start.

    :param now_s: the reactor's clock.
    :ivar on_idle: called after all immediate effects of an input.
    :ivar numbers: last assigned number of each kind.
    :ivar outstanding: number of ZooKeeper operations without a response.
    :ivar watches: watches by the operation that set them.
    :ivar timers: timers by number.
    """

    def __init__(self, sink: EntrySink, now_s: Callable[[], float]) -> None:
        self.note = sink.note
        self._now_s = now_s
        self._depth = 0
        self.on_idle: Callable[[], None] = lambda: None
        self.numbers: dict[str, int] = {}
        self.outstanding = 0
        self.watches: dict[int, Callable[[WatchEvent], None]] = {}
        self.timers: dict[int, IDelayedCall] = {}
        self._sweep_at = FIRST_SWEEP_TIMERS
        self._questions: dict[ControllerRequest, int] = {}
        self._known: dict[object, object] = {}

    def next_number(self, kind: str) -> int:
        number = self.numbers[kind] = self.numbers.get(kind, 0) + 1
        return number

    # --- inputs ------------------------------------------------------------------------------------------------------

    @contextmanager
    def received(self, kind: str, weight: int = 1, **fields: object) -> Iterator[None]:
        """Record an input; the ``with`` block contains its immediate effects."""
        entry: Entry = {"in": kind, "s": round(self._now_s(), 6)}
        if self._depth:
            entry["nested"] = True  # an immediate effect of an output
        self._depth += 1
        self.note(entry | fields, weight)
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.on_idle()

    def operation(self, name: str, call: Callable[[], Deferred[T]], weight: int = 1, **fields: object) -> Deferred[T]:
        """Record an asynchronous operation and its response.

        :param call: starts the operation; if it raises, no response is expected.
        :param fields: parameters of the operation.
        """
        number = self.next_number("op")
        self.note({"out": name, "op": number} | fields, weight)
        outer: Deferred[T] = Deferred(lambda _: inner.cancel())

        def answered(result: T | Failure) -> None:
            self.outstanding -= 1
            if isinstance(result, Failure):
                self.watches.pop(number, None)
                with self.received("answer", op=number, of=name, error=encode_error(cast(BaseException, result.value))):
                    outer.errback(result)
            else:
                answer = DeferredJson(lambda value: encode_response(name, value), result)
                with self.received("answer", weight, op=number, of=name, value=answer):
                    outer.callback(result)

        try:
            inner = call()
        except BaseException:
            self.watches.pop(number, None)
            raise
        self.outstanding += 1
        inner.addBoth(answered)
        return outer

    def read(self, name: str, value: T, of: str | None = None) -> T:
        """Record and return a value that the controller read and that may differ between runs."""
        self.note({"read": name, "value": value} if of is None else {"read": name, "of": of, "value": value})
        return value

    def read_known(self, name: str, value: T, of: str | None = None) -> T:
        """Return a value that rarely changes; record it only if it differs from the last recorded one."""
        if self._known.get((name, of), self) != value:
            self._known[name, of] = value
            self.read(name, value, of)
        return value

    def forget_known(self) -> None:
        """Forget the values of ``read_known``, so that each is recorded again at its next read."""
        self._known.clear()

    # --- timers ------------------------------------------------------------------------------------------------------

    def timer_set(self, number: int, timer: IDelayedCall) -> None:
        if len(self.timers) >= self._sweep_at:
            self.timers = {each: timer for each, timer in self.timers.items() if timer.active()}
            self._sweep_at = max(2 * len(self.timers), FIRST_SWEEP_TIMERS)
        self.timers[number] = timer

    # --- notifications of the controller -----------------------------------------------------------------------------

    def called(self, method: str) -> AbstractContextManager[None]:
        return self.received("call", method=method)

    def request_received(self, request: ControllerRequest) -> AbstractContextManager[None]:
        number = self._questions[request] = self.next_number("question")

        def settled(answer: T | Failure) -> T | Failure:
            del self._questions[request]
            if isinstance(answer, Failure) and answer.check(CancelledError):
                with self.received("withdrawn", question=number):
                    pass
            else:
                outcome = answer.value if isinstance(answer, Failure) else answer
                self.note({"out": "settled", "question": number, "answer": DeferredJson(plain, outcome)})
            return answer

        request.response.addBoth(settled)
        return self.received("asked", question=number, event=DeferredJson(encode_event, request))

    def queued(self, event: Event) -> None:
        self.note({"out": "queued", "event": self._name(event)})

    def began(self, event: Event) -> None:
        self.note({"out": "event", "event": self._name(event), "number": self.next_number("event")})

    def failed(self, event: Event, error: BaseException) -> None:
        self.note({"out": "failed", "error": DeferredJson(encode_error, error)})

    def ended(self, event: Event) -> None:
        self.note({"out": "ended", "number": self.numbers["event"]})

    def term_started(self, controller_epoch: int) -> None:
        self.note({"out": "took_office", "controller_epoch": controller_epoch})

    def term_ended(self) -> None:
        self.note({"out": "resigned"})

    def _name(self, event: Event) -> object:
        if isinstance(event, ControllerRequest):
            return [recorded_name(event), {"question": self._questions.get(event)}]
        return DeferredJson(encode_event, event)
