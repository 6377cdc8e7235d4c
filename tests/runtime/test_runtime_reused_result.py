"""Results that are reused for some time."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kreplica.runtime.reused_result import ReusedResult

REUSE_S = 2.0


class Scene:
    """A result whose computations the test ends."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.result: ReusedResult[str] = ReusedResult(self.clock, REUSE_S)
        self.computing: list[Deferred[str]] = []

    async def compute(self) -> str:
        self.computing.append(Deferred())
        return await self.computing[-1]

    def current(self) -> Deferred[str]:
        return Deferred.fromCoroutine(self.result.current(self.compute))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_concurrent_callers_share_a_computation_and_later_ones_its_result(scene: Scene) -> None:
    """The time begins at the start of the computation, when its input was read."""
    callers = [scene.current(), scene.current()]
    scene.clock.advance(REUSE_S / 2)
    scene.computing[0].callback("first")
    assert [caller.result for caller in callers] == ["first", "first"]
    assert scene.current().result == "first"
    scene.clock.advance(REUSE_S / 2)
    later = scene.current()
    scene.computing[1].callback("second")
    assert later.result == "second"
    assert len(scene.computing) == 2


def test_error_is_not_reused(scene: Scene) -> None:
    failed = scene.current()
    failures: list[object] = []
    failed.addErrback(failures.append)
    scene.computing[0].errback(OSError("broken"))
    assert len(failures) == 1
    again = scene.current()
    scene.computing[1].callback("repaired")
    assert again.result == "repaired"


def test_cancelled_caller_does_not_cancel_the_others(scene: Scene) -> None:
    cancelled, other = scene.current(), scene.current()
    cancelled.addErrback(lambda _: None)
    cancelled.cancel()
    scene.computing[0].callback("result")
    assert other.result == "result"
