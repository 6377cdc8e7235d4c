"""Truncation of logs, power loss and damaged logs."""

from __future__ import annotations

from kreplica.storage.segments.segment import LOG_SUFFIX
from kreplica.testing.storms.replicated_run import SYNCED, ReplicatedRun
from tests.support.mutations.scenarios.scene import (
    CONTROLLER,
    COORDINATOR,
    FOLLOWER,
    LEADER,
    REPLICAS,
    TOGETHER,
    cut,
    delay_zookeeper,
    lose_unsynced,
    name,
    partition_on,
    recover,
    scene,
)

STEPS = 500

TEARS = 24
"""About one power loss in seven tears a batch in a way that only its CRC reveals."""


def truncation_after_restart(seed: int) -> None:
    """A follower restarts; records above its own high watermark may already be committed (KIP-101)."""
    with scene(seed) as run:
        run.run_until_acknowledged(120)
        cut(run, FOLLOWER, LEADER)
        run.kill(FOLLOWER)
        run.start(FOLLOWER)
        run.cluster.run(1.0)
        run.converge()


def fast_restart_after_power_loss(seed: int) -> None:
    """A follower loses power and restarts before its session expires; it must leave the ISR, as its log is shorter."""
    with scene(seed) as run:
        run.run_until_acknowledged(60)
        run.network.link(COORDINATOR, name(CONTROLLER)).latency_s = (1.0, 1.0)
        cut(run, FOLLOWER, LEADER)
        lose_unsynced(run, FOLLOWER)
        run.start(FOLLOWER)
        run.cluster.run(1.0)
        run.converge()


def torn_writes(seed: int) -> None:
    """A follower loses power, and its last batches are only partly on disk, with intact headers."""
    with scene(seed) as run:
        for _ in range(TEARS):
            run.run_until_acknowledged(30)
            run.lose_power(FOLLOWER)
            run.start(FOLLOWER)
            run.cluster.run(0.5)
        run.converge()


def power_loss_of_all_replicas(seed: int) -> None:
    """With flush.messages=1, acknowledged records must be on the disks of all in-sync replicas."""
    with scene(seed, configs=SYNCED) as run:
        _sync_slowly(run)
        run.run_until_acknowledged(60)
        for _ in range(STEPS):
            run.steps(1)
            logs = [partition_on(run, broker).log for broker in REPLICAS]
            if run.history.ends(0)[0] > max(log.durability.recovery_point for log in logs):
                break
        for broker in run.cluster.brokers:
            lose_unsynced(run, broker)
        run.start(*run.cluster.brokers)
        run.converge()


def _sync_slowly(run: ReplicatedRun) -> None:
    for broker in REPLICAS:
        run.machine(broker).host.offload.delay_s = (0.02, 0.1)


def overlapping_fetches(seed: int) -> None:
    """A follower has two fetches in flight, and both return the same records of a partition."""
    with scene(seed, partitions=2, configs=SYNCED) as run:
        _sync_slowly(run)
        run.network.slow(name(LEADER), name(FOLLOWER), (0.02, 0.1))
        run.run_until_acknowledged(150)
        run.converge()


def damaged_log_after_restart(seed: int) -> None:
    """A bit in a follower's log flips while it restarts; the log must be discarded only if no other broker needs it."""
    with scene(seed, configs={**TOGETHER, "flush.messages": "1"}) as run:
        run.cluster.run(3.0)  # until a checkpoint has declared the data durable, which is then damaged
        path = partition_on(run, FOLLOWER).log.segments.active.path(LOG_SUFFIX)
        delay_zookeeper(run, CONTROLLER, 1.0)
        cut(run, FOLLOWER, LEADER)
        run.kill(FOLLOWER)
        run.machine(FOLLOWER).host.disk.flip_bit(path, 100, 3)
        run.start(FOLLOWER)
        run.cluster.run(1.0)
        recover(run, CONTROLLER)
        run.converge()
