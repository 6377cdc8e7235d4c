"""Buffers for large frames."""

from __future__ import annotations

import pytest

from kreplica.server.transport.frame_buffers import KEPT_BYTES_MAX, BufferPool

KIB = 1024


@pytest.mark.parametrize(("size", "got"), [(1, 16 * KIB), (16 * KIB, 16 * KIB), (16 * KIB + 1, 32 * KIB)])
def test_buffer_size_is_the_next_power_of_two(size: int, got: int) -> None:
    """A few buffer sizes serve all frames."""
    assert len(BufferPool().take(size)) == got


def test_buffers_are_reused() -> None:
    pool = BufferPool()
    buffer = pool.take(100 * KIB)
    pool.give_back(buffer)
    assert pool.kept_bytes == 128 * KIB
    assert pool.take(70 * KIB) is buffer
    assert pool.kept_bytes == 0


def test_pooled_memory_is_bounded() -> None:
    """After a burst of large frames, most of the memory is released."""
    pool = BufferPool()
    for buffer in [pool.take(4 * KIB * KIB) for _ in range(20)]:
        pool.give_back(buffer)
    assert pool.kept_bytes == KEPT_BYTES_MAX
    pool.give_back(pool.take(64 * KIB * KIB))
    assert pool.kept_bytes == KEPT_BYTES_MAX
