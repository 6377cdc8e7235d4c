"""Number of bytes appended to a log since the last sample."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kreplica.service.metrics.topic_loads import appended_bytes


@dataclass
class Segment:
    base_offset: int
    size: int


class Log:
    """Fake of a log with its segments."""

    def __init__(self, *segments: tuple[int, int]) -> None:
        self.segments = [Segment(*each) for each in segments]
        self.active = self.segments[-1]

    def starting_from(self, offset: int) -> list[Segment]:
        earlier = [each for each in self.segments if each.base_offset <= offset]
        return self.segments[len(earlier) - 1 :] if earlier else self.segments


@pytest.mark.parametrize(
    ("log", "base", "size", "expected"),
    [
        (Log((0, 500)), 0, 100, 400),
        (Log((0, 500), (10, 70)), 0, 100, 470),
        (Log((0, 500), (10, 300), (20, 70)), 10, 100, 270),
        (Log((10, 300), (20, 70)), 0, 100, 270),
        (Log((0, 50)), 0, 100, 0),
        (Log((0, 50)), 10, 100, 0),
    ],
    ids=["same segment", "rolled", "rolled twice", "deleted by retention", "truncated", "truncated before the segment"],
)
def test_appended_bytes(log: Log, base: int, size: int, expected: int) -> None:
    """Bytes in rolled segments are included; after a truncation, the result is 0."""
    assert appended_bytes(log, base, size) == expected  # type: ignore[arg-type]
