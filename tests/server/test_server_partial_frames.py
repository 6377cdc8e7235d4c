"""Memory limits for incomplete frames: which connections wait, which continue, and which are closed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.task import Clock

from kreplica.server.protocol.metrics import ServerMetrics
from kreplica.server.transport.partial_frames import SMALL_FRAME_BYTES, PartialFrames

MIB = 2**20
LARGE = SMALL_FRAME_BYTES + 1
WINDOW_S = 5.0
RATE_MIN = 1000.0


class Scene:
    """Pools of 100 bytes for large frames and 33 for small ones; the connections record their events."""

    def __init__(self, bytes_max: int = 133) -> None:
        self.clock = Clock()
        self.metrics = ServerMetrics()
        self.partial_frames = PartialFrames(bytes_max, RATE_MIN, WINDOW_S, self.clock.seconds, self.metrics)
        self.journal: list[str] = []

    def holder(self, name: str, host: str = "10.0.0.1") -> FrameStub:
        return FrameStub(self, name, host)

    def advance(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.clock.advance(1)
            self.partial_frames.sweep()


class FrameStub:
    """A connection that is receiving a frame."""

    def __init__(self, scene: Scene, name: str, host: str) -> None:
        self.name = name
        self._scene = scene
        self.connection: Any = SimpleNamespace(peer=f"{host}:5000", closed=False, keeps_frame=False, drop=self._drop)

    def holds(self, size: int, length: int = LARGE) -> None:
        self._scene.partial_frames.update(self, size, length)

    def ends(self) -> None:
        self._scene.partial_frames.remove(self)

    def wait_for_memory(self) -> None:
        self._scene.journal.append(f"{self.name} waits")

    def resume_with_memory(self) -> None:
        self._scene.journal.append(f"{self.name} continues")

    def _drop(self, reason: str) -> None:
        self.connection.closed = True
        self._scene.journal.append(f"{self.name} is closed")


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_one_frame_continues_while_others_wait(scene: Scene) -> None:
    """Above the limit, the first frame that grows continues; then the others continue, one after another."""
    a, b, c = map(scene.holder, "abc")
    a.holds(80)
    b.holds(70)
    pool = scene.partial_frames.large
    assert pool.active_holder is b
    a.holds(90)
    c.holds(30)
    assert scene.journal == ["a waits", "c waits"]
    assert pool.is_scarce
    b.holds(150)
    b.ends()
    assert scene.journal[2:] == ["a continues"]
    assert pool.active_holder is a
    assert pool.held_bytes == 120
    a.ends()
    assert scene.journal[3:] == ["c continues"]
    assert not pool.is_scarce
    c.ends()
    assert pool.active_holder is None
    assert scene.partial_frames.held_bytes == 0


def test_all_continue_below_the_limit(scene: Scene) -> None:
    a, b, c = map(scene.holder, "abc")
    a.holds(101)
    b.holds(10)
    c.holds(10)
    a.ends()
    assert scene.journal == ["b waits", "c waits", "b continues", "c continues"]


def test_waiting_connection_that_closes_is_forgotten(scene: Scene) -> None:
    """The connection does not continue, and its bytes are no longer counted."""
    a, b = map(scene.holder, "ab")
    a.holds(101)
    b.holds(10)
    b.ends()
    a.ends()
    assert scene.journal == ["b waits"]
    assert scene.partial_frames.held_bytes == 0


def test_small_frames_never_wait_for_large_ones(scene: Scene) -> None:
    scene.holder("large").holds(101)
    scene.holder("another").holds(50)
    scene.holder("small").holds(30, SMALL_FRAME_BYTES)
    assert scene.journal == ["another waits"]


def test_slow_frames_are_evicted_largest_first(scene: Scene) -> None:
    """Connections with slow frames are closed as soon as others need their memory, but only as many as necessary."""
    slow = [scene.holder(name) for name in ("s1", "s2", "s3")]
    for each, size in zip(slow, (20, 40, 30), strict=True):
        each.holds(size)
    scene.advance(2 * WINDOW_S)
    assert scene.journal == [], "memory is not scarce"
    scene.holder("new").holds(30)
    assert scene.journal == ["s2 is closed"]
    assert scene.metrics.partial_evictions == 1
    assert scene.partial_frames.held_bytes == 80


def test_one_byte_every_two_seconds_does_not_keep_the_memory(scene: Scene) -> None:
    """Slow frames are evicted after a window, even the one that continues while others wait (S2)."""
    attackers = [scene.holder(f"attacker {number}") for number in range(6)]
    for each in attackers:
        each.holds(19)
    sizes = dict.fromkeys(attackers, 19)
    for _ in range(6):
        for each in attackers:
            if not each.connection.closed:
                sizes[each] += 1
                each.holds(sizes[each])
        scene.advance(2)
    assert "attacker 0 is closed" in scene.journal
    assert scene.partial_frames.held_bytes <= 100
    honest = scene.holder("honest")
    scene.journal.clear()
    honest.holds(60)
    assert [line for line in scene.journal if line.startswith("honest")] == []


def test_frame_at_the_minimum_rate_is_never_evicted(scene: Scene) -> None:
    """A slow client above the minimum rate continues while memory is full; new frames are not evaluated yet."""
    scene = Scene(bytes_max=100_000)
    honest, attacker = scene.holder("honest"), scene.holder("attacker")
    attacker.holds(70_000)
    for second in range(20):
        honest.holds(round(RATE_MIN) * (second + 1))
        scene.advance(1)
    assert scene.journal == ["attacker is closed"]


def test_waiting_time_does_not_count_as_slow(scene: Scene) -> None:
    """A frame that is not read because memory is scarce is not evicted."""
    going, waiting = scene.holder("going"), scene.holder("waiting")
    going.holds(101)
    waiting.holds(1)
    for second in range(20):
        going.holds(101 + round(RATE_MIN) * (second + 1))
        scene.advance(1)
    going.ends()
    scene.advance(4)
    assert scene.journal == ["waiting waits", "waiting continues"]


def test_address_below_its_share_does_not_wait(scene: Scene) -> None:
    """An address that fills the pool delays only its own connections."""
    for number in range(4):
        scene.holder(f"a{number}", "10.0.0.1").holds(30)
    scene.journal.clear()
    other = scene.holder("other", "10.0.0.2")
    other.holds(30)
    other.holds(50)
    assert scene.journal == []
    other.holds(51)
    assert scene.journal == ["other waits"]


def test_length_that_arrives_late_moves_the_frame_to_its_pool(scene: Scene) -> None:
    """Bytes that were counted before the length was known are not counted twice."""
    holder = scene.holder("a")
    holder.holds(2, 4)
    holder.holds(90, LARGE)
    assert (scene.partial_frames.small.held_bytes, scene.partial_frames.large.held_bytes) == (0, 90)
