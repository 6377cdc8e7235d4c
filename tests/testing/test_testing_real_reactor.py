"""The helper that runs the real reactor for a test."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from tests.support.real_reactor import LeftBehind, run


def _reactor() -> IReactorTime:
    from twisted.internet import reactor

    return reactor  # type: ignore[return-value]


def test_coroutines_run_to_their_end_repeatedly() -> None:
    """One process can run the reactor, and its threads, for many tests."""

    async def answer(number: int) -> int:
        await deferLater(_reactor(), 0.001)
        return await deferToThread(lambda: number * 2)

    assert [run(answer(number)) for number in range(3)] == [0, 2, 4]


def test_an_exception_reaches_the_test() -> None:

    async def fail() -> None:
        await deferLater(_reactor(), 0)
        raise KeyError("no such thing")

    with pytest.raises(KeyError, match="no such thing"):
        run(fail())


def test_a_coroutine_that_never_ends_is_cancelled() -> None:
    """A test that hangs fails after its timeout instead of blocking the run."""
    cancelled = []

    async def hang() -> None:
        await Deferred(cancelled.append)

    with pytest.raises(TimeoutError):
        run(hang(), timeout_s=0.01)
    assert len(cancelled) == 1


def test_leaked_timers_and_sockets_fail_the_test_and_are_removed() -> None:
    """If a test leaks timers or sockets, its error names them, and they are removed before the next test."""

    async def forget() -> None:
        reactor: object = _reactor()
        reactor.callLater(60, int)  # type: ignore[attr-defined]
        reactor.listenTCP(0, Factory(), interface="127.0.0.1")  # type: ignore[attr-defined]

    with pytest.raises(LeftBehind, match=r"DelayedCall.*Factory"):
        run(forget())

    async def nothing() -> str:
        return "clean"

    assert run(nothing()) == "clean"
