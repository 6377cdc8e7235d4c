"""Stored records are verified periodically, at a limited rate."""

from __future__ import annotations

from storage_world import SMALL, fill
from twisted.internet.defer import Deferred

from kreplica.model import ZERO_UUID, TopicPartition
from kreplica.storage import LogDirectories
from kreplica.storage.directories.scrubbing import PASS_STEPS_MIN, Scrubber
from kreplica.testing.simulator.simulation import Simulation

KEY = TopicPartition("orders", 0)


def test_pass_over_little_data_is_not_repeated_at_once() -> None:
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


def test_log_truncated_during_a_pass() -> None:
    """The truncated part is skipped; the pass continues."""
    simulation = Simulation(seed=1)
    host = simulation.host("broker")
    directories = LogDirectories(host.runtime, ["/data/logs"])
    simulation.run_until(directories.open("cluster", 1, lambda _: SMALL))
    log = directories.create(KEY, ZERO_UUID, SMALL)
    fill(log, 60)
    assert len(log.segments) > 3
    scrubber = Scrubber(host.offload, lambda: directories.logs, 1)  # one batch per step
    for _ in range(4):
        simulation.run_until(Deferred.fromCoroutine(scrubber.step()))
    log.truncate_to(1)
    for _ in range(PASS_STEPS_MIN + 2):
        simulation.run_until(Deferred.fromCoroutine(scrubber.step()))
    assert scrubber.passes_count == 2
