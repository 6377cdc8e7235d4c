"""Runs a command's work on the process's reactor, once, and lets Ctrl-C end it in order."""

from __future__ import annotations

import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

T = TypeVar("T")

Work = Callable[[Any], Coroutine[Any, Any, T]]
"""Gets the reactor."""


class Runner(Protocol):
    """Runs work to its end; ``run`` is the one of a process."""

    def __call__(self, work: Work[T]) -> T:
        """:raise KeyboardInterrupt: it was interrupted, and let itself be ended by that."""


def run(work: Work[T]) -> T:
    """Run the reactor until the work ends, and give or raise what it ends with.

    An interrupt (Ctrl-C) cancels the work: what it waits for raises ``CancelledError``.
    """
    from twisted.internet import reactor as global_reactor

    reactor: Any = global_reactor
    outcome: list[T | Failure] = []

    def start() -> None:
        running = Deferred.fromCoroutine(work(reactor))
        signal.signal(signal.SIGINT, lambda number, frame: reactor.callFromThread(running.cancel))
        running.addBoth(outcome.append)
        running.addBoth(lambda _: reactor.stop())

    before = signal.getsignal(signal.SIGINT)
    reactor.callWhenRunning(start)
    try:
        # Without its own handlers: it would stop at once, and leave the work hanging.
        reactor.run(installSignalHandlers=False)
    finally:
        signal.signal(signal.SIGINT, before)
    result = outcome[0]
    if isinstance(result, Failure):
        if result.check(CancelledError):
            raise KeyboardInterrupt
        result.raiseException()
    return result


@contextmanager
def interrupted_at_once() -> Iterator[None]:
    """While somebody is asked a question, Ctrl-C is the answer: the reactor stands still, and could not take it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
