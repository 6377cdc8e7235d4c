"""Stored records are read again and again, and no more often than is of use."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from kreplica.model import TopicPartition
from kreplica.storage.scrubbing import PASS_STEPS_MIN, Scrubber
from kreplica.testing.simulation import Simulation


def test_a_pass_over_little_is_not_repeated_at_once() -> None:
    """Who stores next to nothing does not spend the day reading it."""
    simulation = Simulation(seed=1)
    host = simulation.host("broker")
    looked: list[None] = []

    def logs() -> dict[TopicPartition, object]:
        looked.append(None)
        return {}

    scrubber = Scrubber(host.offload, logs, 2**20)  # type: ignore[arg-type]
    for _ in range(10 * PASS_STEPS_MIN):
        simulation.run_until(Deferred.fromCoroutine(scrubber.step()))
    assert scrubber.passes_count == 10
    assert 9 <= len(looked) <= 10
