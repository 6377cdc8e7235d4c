"""Runs coroutines on the process's real reactor, one after another, in the test's own thread.

Twisted's reactor can normally run only once per process.  Like Trial, this module crashes the reactor after each run,
so that it can be started again.  A test imports ``reactor`` inside its functions and passes it on.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

T = TypeVar("T")

# Time for sockets that a test has just closed to disappear; those that remain are reported as leaked.
CLOSING_TIME_S = 0.25
CLEANUP_ROUNDS_MAX = 10


class LeftBehind(AssertionError):
    """A test ended while timers or sockets of the test were still registered in the reactor."""


def run(
    coroutine: Coroutine[Deferred[Any], Any, T] | Generator[Deferred[Any], Any, T],
    timeout_s: float = 30.0,
    *,
    check_left_behind: bool = True,
) -> T:
    """Run the real reactor until the coroutine ends, and return its result.

    :param timeout_s: number of seconds after which the coroutine is cancelled and ``TimeoutError`` is raised.
    :param check_left_behind: False to ignore timers and sockets that outlive the coroutine; they are removed in any
        case, so that the next test starts with a clean reactor.
    :raise LeftBehind: timers or sockets leaked; the message lists them.
    """
    from twisted.internet import reactor as global_reactor

    reactor: Any = global_reactor
    outcome: list[T | Failure] = []
    reactor.startRunning(installSignalHandlers=False)
    try:
        _spin(reactor, lambda: bool(reactor.running), 1.0)
        deferred = Deferred.fromCoroutine(coroutine)
        deferred.addTimeout(timeout_s, reactor, onTimeoutCancel=_timed_out)
        deferred.addBoth(outcome.append)
        while not outcome:
            reactor.runUntilCurrent()
            if outcome:
                break
            reactor.doIteration(reactor.timeout())
        _spin(reactor, lambda: not _left_behind(reactor), CLOSING_TIME_S)
    finally:
        left = _clean(reactor)
        reactor.crash()
    result = outcome[0]
    if isinstance(result, Failure):
        result.raiseException()
    if left and check_left_behind:
        raise LeftBehind("leaked in the reactor: " + "; ".join(left))
    return result


def _timed_out(result: Any, timeout_s: float) -> Any:
    if not (isinstance(result, Failure) and isinstance(result.value, CancelledError)):
        return result
    raise TimeoutError(f"the coroutine did not end within {timeout_s} s")


def _spin(reactor: Any, until: Callable[[], bool], seconds: float) -> None:
    deadline = reactor.seconds() + seconds
    while not until() and reactor.seconds() < deadline:
        reactor.runUntilCurrent()
        reactor.doIteration(0.005)


def _sockets(reactor: Any) -> list[Any]:
    descriptors = [*reactor.getReaders(), *(each for each in reactor.getWriters() if each not in reactor.getReaders())]
    return [each for each in descriptors if each not in reactor._internalReaders]


def _left_behind(reactor: Any) -> list[str]:
    timers = [str(call) for call in reactor.getDelayedCalls() if call.active()]
    return timers + [repr(each) for each in _sockets(reactor)]


def _clean(reactor: Any) -> list[str]:
    left = _left_behind(reactor)
    failure: Any = Failure  # Twisted annotates its constructor only in some versions
    for _ in range(CLEANUP_ROUNDS_MAX):
        # A closed connection may open the next one, so sockets are closed before timers, until nothing is left.
        for descriptor in _sockets(reactor):
            reactor.removeReader(descriptor)
            reactor.removeWriter(descriptor)
            descriptor.connectionLost(failure(LeftBehind(repr(descriptor))))
        for call in reactor.getDelayedCalls():
            if call.active():
                call.cancel()
        if not _left_behind(reactor):
            break
    if reactor.threadpool is not None:
        # Threads of the pool would prevent the interpreter from exiting; a later run creates a new pool.
        reactor._stopThreadPool()
    return left
