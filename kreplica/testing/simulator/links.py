"""Links between simulated hosts, and the segments that wait for a cut link."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(slots=True)
class Link:
    """One direction between two hosts.

    :param latency_s: minimum and maximum delay of a segment.
    :param bytes_per_s: None for no limit; otherwise segments of all connections queue for the link.
    :param late_chance: probability that a segment is lost and sent again, so that it and all later segments of the
        connection are late, mostly by a second or two, at most by ``network.EXTRA_DELAY_S_MAX``.
    """

    latency_s: tuple[float, float]
    bytes_per_s: float | None = None
    late_chance: float = 0.0
    cut: bool = False
    idle_from_s: float = 0.0


class Segment(NamedTuple):
    """A segment that waits for a cut link.

    :param size: in bytes; 0 for a segment without data.
    :param acknowledges: true if it only acknowledges data; then the other end times out, not the sender.
    """

    size: int
    arrival: Callable[..., None]
    args: tuple[Any, ...]
    acknowledges: bool
