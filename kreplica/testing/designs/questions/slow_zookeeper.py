"""Measures a broker's death in all three designs, while one in a hundred requests to ZooKeeper is slow.

The first request of the event and every hundredth after it take additional time, and later requests wait for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kreplica.testing.designs.layout import Shape
from kreplica.testing.designs.light_zookeeper import Rates
from kreplica.testing.designs.measure import DESIGNS, Case, CaseRun

SHAPE = Shape(300, 3)
RTT_MS = 1.0
SLOW_S = (0.0, 0.01, 0.1)
EVENT = "broker dies"


@dataclass(frozen=True, slots=True)
class SlowResult:
    """Times of one design.

    :param requests: requests to ZooKeeper during the event.
    :param last_s: times until all partitions have leaders, in the order of ``SLOW_S``.
    """

    design: str
    requests: int
    last_s: tuple[float, ...]


def slow_results() -> Iterator[SlowResult]:
    """Yield the times of each design."""
    for design in DESIGNS:
        times, requests = [], 0
        for slow_s in SLOW_S:
            run = CaseRun(Case(design, SHAPE, RTT_MS), Rates(slow_s=slow_s))
            (_, event) = run.run((EVENT,)).events
            times.append(event.outages.last_s)
            requests = event.counts["requests"]
        yield SlowResult(design, requests, tuple(times))
