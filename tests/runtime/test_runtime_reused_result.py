"""Results that are reused for some time."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kreplica.runtime.reused_result import ReusedResult

REUSE_S = 2.0


class Scene:
    """A reused result whose computations are completed by the test."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.result: ReusedResult[str] = ReusedResult(self.clock, REUSE_S)
        self.computations: list[Deferred[str]] = []

    async def compute(self) -> str:
        self.computations.append(Deferred())
        return await self.computations[-1]

    def current(self) -> Deferred[str]:
        return Deferred.fromCoroutine(self.result.current(self.compute))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_concurrent_callers_share_a_computation_and_later_ones_its_result(scene: Scene) -> None:
    """A result is reused until a fixed time after the start of its computation, when its input was read."""
    callers = [scene.current(), scene.current()]
    scene.clock.advance(REUSE_S / 2)
    scene.computations[0].callback("first")
    assert [caller.result for caller in callers] == ["first", "first"]
    assert scene.current().result == "first"
    scene.clock.advance(REUSE_S / 2)
    later = scene.current()
    scene.computations[1].callback("second")
    assert later.result == "second"
    assert len(scene.computations) == 2


def test_error_is_not_reused(scene: Scene) -> None:
    failed = scene.current()
    failures: list[object] = []
    failed.addErrback(failures.append)
    scene.computations[0].errback(OSError("broken"))
    assert len(failures) == 1
    again = scene.current()
    scene.computations[1].callback("repaired")
    assert again.result == "repaired"


def test_cancelled_caller_does_not_cancel_the_others(scene: Scene) -> None:
    cancelled, other = scene.current(), scene.current()
    cancelled.addErrback(lambda _: None)
    cancelled.cancel()
    scene.computations[0].callback("result")
    assert other.result == "result"
