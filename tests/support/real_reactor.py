"""Runs one coroutine on the process's real reactor, in the test's own thread, as often as wanted.

Twisted's reactor runs once per process; what Trial does between tests is done here for pytest: the reactor is crashed
after each run and can be started again.  A test imports ``reactor`` inside its functions and passes it on.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

T = TypeVar("T")

# How long sockets that a test has just closed may take to go away before they count as left behind.
CLOSING_TIME_S = 0.25
CLEANING_ROUNDS_MAX = 10


class LeftBehind(AssertionError):
    """A test ended while timers or sockets of its own were still with the reactor."""


def run(
    coroutine: Coroutine[Deferred[Any], Any, T] | Generator[Deferred[Any], Any, T],
    timeout_s: float = 30.0,
    *,
    check_left_behind: bool = True,
) -> T:
    """Run the real reactor until the coroutine ends, and return what it returned.

    :param timeout_s: after this many seconds the coroutine is cancelled and ``TimeoutError`` raised.
    :param check_left_behind: whether timers and sockets that outlive the coroutine fail the test; they are removed
        in either case, so that the next test starts clean.
    :raise LeftBehind: naming what was left.
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
        raise LeftBehind("left with the reactor: " + "; ".join(left))
    return result


def _timed_out(result: Any, timeout_s: float) -> Any:
    if not (isinstance(result, Failure) and isinstance(result.value, CancelledError)):
        return result
    raise TimeoutError(f"the coroutine had not ended after {timeout_s} s")


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
    failure: Any = Failure  # Twisted annotates its constructor in some versions only
    for _ in range(CLEANING_ROUNDS_MAX):
        # A lost connection may start the next one, so sockets go before timers, and again until nothing is left.
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
        # Its threads would keep the interpreter from ending; a later run makes a new pool.
        reactor._stopThreadPool()
    return left
