"""Notes all that a controller is told and does, in order, so that its run can be read, and repeated.

A controller is a function of what reaches it.  That is what an entry with ``in`` says: a call, an answer, a timer, a
change that a watch saw; ``read`` is a value that it asked for and got at once (the time, a random number, a setting).
All else (``out``) follows from those before: operations on ZooKeeper, commands to brokers, timers, what becomes of
events.  So whoever gives another controller of the same program the same ``in`` and ``read``, in their order, gets the
same ``out``; where not, that is another program (``kreplica.testing.replay.replay``).

The controller sees none of this: the journal stands in its surroundings (``journal_seams``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from kreplica.controller.event_types import Event, Question
from kreplica.controller.history.observer import Diary
from kreplica.controller.journal.value_json import Later, encode_answer, encode_error, encode_event, plain
from kreplica.zookeeper import WatchEvent

T = TypeVar("T")

Entry = dict[str, Any]
"""JSON, but for values that are ``Later``."""

TIMERS_SWEPT = 64
"""So many timers are remembered before those that were cancelled are forgotten."""


class Keeper(Protocol):
    """Where entries go."""

    def note(self, entry: Entry, weight: int = 1) -> None:
        """:param weight: how many znodes or partitions it speaks of, about."""


class Journal(Diary):
    """Of one controller, from its start on.

    :param now_s: the reactor's clock.
    :ivar rested: called whenever the controller has come to the end of what followed from the last ``in``.
    :ivar numbers: by kind, the last number that was given.
    :ivar outstanding: operations that ZooKeeper has not answered.
    :ivar watches: by operation, the listeners that it left.
    :ivar timers: by number.
    """

    def __init__(self, keeper: Keeper, now_s: Callable[[], float]) -> None:
        self.note = keeper.note
        self._now_s = now_s
        self._depth = 0
        self.rested: Callable[[], None] = lambda: None
        self.numbers: dict[str, int] = {}
        self.outstanding = 0
        self.watches: dict[int, Callable[[WatchEvent], None]] = {}
        self.timers: dict[int, IDelayedCall] = {}
        self._sweep_at = TIMERS_SWEPT
        self._questions: dict[Question, int] = {}
        self._known: dict[object, object] = {}

    def next_number(self, kind: str) -> int:
        number = self.numbers[kind] = self.numbers.get(kind, 0) + 1
        return number

    # --- what reaches the controller ---------------------------------------------------------------------------------

    @contextmanager
    def heard(self, kind: str, weight: int = 1, **what: object) -> Iterator[None]:
        """Something reaches the controller; within this is all that follows from it at once."""
        entry: Entry = {"in": kind, "s": round(self._now_s(), 6)}
        if self._depth:
            entry["nested"] = True  # it follows at once from what the controller just did
        self._depth += 1
        self.note(entry | what, weight)
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.rested()

    def operation(self, name: str, call: Callable[[], Deferred[T]], weight: int = 1, **what: object) -> Deferred[T]:
        """Something that will be answered.

        :param call: begins it; where that raises nothing was begun, and nobody waits for an answer.
        :param what: what it asks for.
        """
        number = self.next_number("op")
        self.note({"out": name, "op": number} | what, weight)
        outer: Deferred[T] = Deferred(lambda _: inner.cancel())

        def answered(result: T | Failure) -> None:
            self.outstanding -= 1
            if isinstance(result, Failure):
                self.watches.pop(number, None)
                with self.heard("answer", op=number, of=name, error=encode_error(cast(BaseException, result.value))):
                    outer.errback(result)
            else:
                answer = Later(lambda value: encode_answer(name, value), result)
                with self.heard("answer", weight, op=number, of=name, value=answer):
                    outer.callback(result)

        try:
            inner = call()
        except BaseException:
            self.watches.pop(number, None)
            raise
        self.outstanding += 1
        inner.addBoth(answered)
        return outer

    def read(self, what: str, value: T, of: str | None = None) -> T:
        """The controller asks for a value; noted where it may be another each time."""
        self.note({"read": what, "value": value} if of is None else {"read": what, "of": of, "value": value})
        return value

    def read_known(self, what: str, value: T, of: str | None = None) -> T:
        """The same for a value that is seldom another: noted where it is not what it was."""
        if self._known.get((what, of), self) != value:
            self._known[what, of] = value
            self.read(what, value, of)
        return value

    def forget_known(self) -> None:
        """Note what is known again when it is next read."""
        self._known.clear()

    # --- timers ------------------------------------------------------------------------------------------------------

    def timer_set(self, number: int, timer: IDelayedCall) -> None:
        if len(self.timers) >= self._sweep_at:
            self.timers = {each: timer for each, timer in self.timers.items() if timer.active()}
            self._sweep_at = max(2 * len(self.timers), TIMERS_SWEPT)
        self.timers[number] = timer

    # --- what the controller tells of itself -------------------------------------------------------------------------

    def called(self, method: str) -> AbstractContextManager[None]:
        return self.heard("call", method=method)

    def asked(self, question: Question) -> AbstractContextManager[None]:
        number = self._questions[question] = self.next_number("question")

        def settled(answer: T | Failure) -> T | Failure:
            del self._questions[question]
            if isinstance(answer, Failure) and answer.check(CancelledError):
                with self.heard("withdrawn", question=number):
                    pass
            else:
                outcome = answer.value if isinstance(answer, Failure) else answer
                self.note({"out": "settled", "question": number, "answer": Later(plain, outcome)})
            return answer

        question.answer.addBoth(settled)
        return self.heard("asked", question=number, event=Later(encode_event, question))

    def queued(self, event: Event) -> None:
        self.note({"out": "queued", "event": self._name(event)})

    def began(self, event: Event) -> None:
        self.note({"out": "event", "event": self._name(event), "number": self.next_number("event")})

    def failed(self, event: Event, error: BaseException) -> None:
        self.note({"out": "failed", "error": Later(encode_error, error)})

    def ended(self, event: Event) -> None:
        self.note({"out": "ended", "number": self.numbers["event"]})

    def took_office(self, controller_epoch: int) -> None:
        self.note({"out": "took_office", "controller_epoch": controller_epoch})

    def resigned(self) -> None:
        self.note({"out": "resigned"})

    def _name(self, event: Event) -> object:
        if isinstance(event, Question):
            return [type(event).__name__, {"question": self._questions.get(event)}]
        return Later(encode_event, event)
