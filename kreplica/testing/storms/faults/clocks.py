"""Faults of brokers' wall clocks, which no guarantee depends on."""

from __future__ import annotations

from random import Random

from kreplica.testing.storms.faults.fault import End
from kreplica.testing.storms.replicated_run import ReplicatedRun

JUMP_MS_MAX = 100_000
DRIFT_MAX = 0.05


def jump(run: ReplicatedRun, random: Random) -> None:
    clock = run.machine(random.choice(sorted(run.cluster.brokers))).host.clock
    clock.offset_ms += random.randint(-JUMP_MS_MAX, JUMP_MS_MAX)


def drift(run: ReplicatedRun, random: Random) -> End:
    clock = run.machine(random.choice(sorted(run.cluster.brokers))).host.clock
    clock.drift = random.uniform(-DRIFT_MAX, DRIFT_MAX)

    def end() -> None:
        clock.drift = 0.0

    return end
