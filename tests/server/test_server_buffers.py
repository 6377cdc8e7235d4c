"""Buffers for large frames, and the bound on what they hold together."""

from __future__ import annotations

from typing import Any

import pytest

from kreplica.server.buffers import KEPT_BYTES_MAX, BufferPool, PartialFrames

KIB = 1024


@pytest.mark.parametrize(("size", "got"), [(1, 16 * KIB), (16 * KIB, 16 * KIB), (16 * KIB + 1, 32 * KIB)])
def test_a_buffer_is_the_next_power_of_two(size: int, got: int) -> None:
    """Buffers of a few sizes fit all frames."""
    assert len(BufferPool().take(size)) == got


def test_a_buffer_is_used_again() -> None:
    """What is given back is taken next, for any size that fits it."""
    pool = BufferPool()
    buffer = pool.take(100 * KIB)
    pool.give_back(buffer)
    assert pool.kept_bytes == 128 * KIB
    assert pool.take(70 * KIB) is buffer
    assert pool.kept_bytes == 0


def test_what_is_kept_is_bounded() -> None:
    """After a burst of large frames the memory goes back to the operating system, all but a little."""
    pool = BufferPool()
    for buffer in [pool.take(4 * KIB * KIB) for _ in range(20)]:
        pool.give_back(buffer)
    assert pool.kept_bytes == KEPT_BYTES_MAX
    pool.give_back(pool.take(64 * KIB * KIB))
    assert pool.kept_bytes == KEPT_BYTES_MAX


class Stub:
    """A connection inside a frame, which writes down when it waits."""

    connection: Any = None

    def __init__(self, name: str, journal: list[str]) -> None:
        self.name = name
        self._journal = journal

    def wait_for_memory(self) -> None:
        self._journal.append(f"{self.name} waits")

    def go_on(self) -> None:
        self._journal.append(f"{self.name} goes on")


def test_one_goes_on_while_others_wait() -> None:
    """Beyond the bound, the first that asks goes on; each that follows takes its turn when the one before is done."""
    journal: list[str] = []
    partial = PartialFrames(100)
    a, b, c = (Stub(name, journal) for name in "abc")
    partial.update(a, 80)
    partial.update(b, 70)
    assert partial.going is b
    partial.update(a, 90)
    partial.update(c, 30)
    assert journal == ["a waits", "c waits"]
    assert partial.is_scarce
    partial.update(b, 150)
    partial.update(b, 0)
    assert journal[2:] == ["a goes on"]
    assert partial.going is a
    assert partial.held_bytes == 120
    partial.update(a, 0)
    assert journal[3:] == ["c goes on"]
    assert not partial.is_scarce
    partial.update(c, 0)
    assert partial.going is None
    assert partial.held_bytes == 0


def test_all_go_on_when_there_is_room_again() -> None:
    """As soon as the frames hold less than the bound nobody waits."""
    journal: list[str] = []
    partial = PartialFrames(100)
    a, b, c = (Stub(name, journal) for name in "abc")
    partial.update(a, 101)
    partial.update(b, 10)
    partial.update(c, 10)
    partial.update(a, 0)
    assert journal == ["b waits", "c waits", "b goes on", "c goes on"]


def test_who_leaves_while_waiting_is_forgotten() -> None:
    """A connection that closes while it waits is not told to go on, and its bytes count no more."""
    journal: list[str] = []
    partial = PartialFrames(100)
    a, b = (Stub(name, journal) for name in "ab")
    partial.update(a, 101)
    partial.update(b, 10)
    partial.update(b, 0)
    partial.update(a, 0)
    assert journal == ["b waits"]
    assert partial.held_bytes == 0
