"""Runs a coroutine on the reactor of the process; Ctrl-C cancels the coroutine."""

from __future__ import annotations

import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

T = TypeVar("T")

Work = Callable[[Any], Coroutine[Any, Any, T]]
"""Coroutine function that receives the reactor."""


class Runner(Protocol):
    """Type of ``run`` and of its replacement in tests."""

    def __call__(self, work: Work[T]) -> T:
        """Return the result of the work.

        :raise KeyboardInterrupt: the work was cancelled by Ctrl-C.
        """


def run(work: Work[T]) -> T:
    """Run the reactor until the work ends, and return its result or raise its error.

    Ctrl-C cancels the work: its current ``await`` raises ``CancelledError``.

    :raise KeyboardInterrupt: the work ended with ``CancelledError``.
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
        # The reactor's own signal handlers would stop it before the cancelled work has ended.
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
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise ``KeyboardInterrupt`` in a block that asks the user a question, which blocks the reactor."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
