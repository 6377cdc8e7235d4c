"""What a log may be cut to, and what is left of it when a machine loses power."""

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
    hears_late,
    held,
    lose_unsynced,
    name,
    recover,
    scene,
)

STEPS = 500

TEARS = 24
"""About one loss of power in seven tears a batch so that its CRC alone tells."""


def is_cut_at_what_is_known_to_be_committed(seed: int) -> None:
    """A follower starts again; what it has beyond its own high watermark may be committed all the same (KIP-101)."""
    with scene(seed) as run:
        run.acknowledge(120)
        cut(run, FOLLOWER, LEADER)
        run.kill(FOLLOWER)
        run.start(FOLLOWER)
        run.cluster.run(1.0)
        run.converge()


def loses_its_end_and_is_back_at_once(seed: int) -> None:
    """A follower that lost power is back before anybody noticed: it is in sync no more, for its log is short."""
    with scene(seed) as run:
        run.acknowledge(60)
        run.network.link(COORDINATOR, name(CONTROLLER)).latency_s = (1.0, 1.0)
        cut(run, FOLLOWER, LEADER)
        lose_unsynced(run, FOLLOWER)
        run.start(FOLLOWER)
        run.cluster.run(1.0)
        run.converge()


def tears_its_last_writes(seed: int) -> None:
    """A follower loses power: of its last batches half is on the disk, and their headers say nothing of it."""
    with scene(seed) as run:
        for _ in range(TEARS):
            run.acknowledge(30)
            run.lose_power(FOLLOWER)
            run.start(FOLLOWER)
            run.cluster.run(0.5)
        run.converge()


def all_lose_power(seed: int) -> None:
    """With flush.messages=1 what was acknowledged is on the disks of all replicas in sync."""
    with scene(seed, configs=SYNCED) as run:
        _sync_slowly(run)
        run.acknowledge(60)
        for _ in range(STEPS):
            run.steps(1)
            if run.history.ends(0)[0] > max(held(run, broker).log.recovery_point for broker in REPLICAS):
                break
        for broker in run.cluster.brokers:
            lose_unsynced(run, broker)
        run.start(*run.cluster.brokers)
        run.converge()


def _sync_slowly(run: ReplicatedRun) -> None:
    for broker in REPLICAS:
        run.machine(broker).host.offload.delay_s = (0.02, 0.1)


def is_answered_twice(seed: int) -> None:
    """Two fetches are under way, for one partition had news for the leader; both bring the other's next records."""
    with scene(seed, partitions=2, configs=SYNCED) as run:
        _sync_slowly(run)
        run.network.slow(name(LEADER), name(FOLLOWER), (0.02, 0.1))
        run.acknowledge(150)
        run.converge()


def is_damaged_and_counted_on(seed: int) -> None:
    """A follower bounces, and a bit of its log has flipped meanwhile: it is set aside when others are relied on."""
    with scene(seed, configs={**TOGETHER, "flush.messages": "1"}) as run:
        run.cluster.run(3.0)  # until a checkpoint says that what is damaged then was durable
        path = held(run, FOLLOWER).log.segments.active.path(LOG_SUFFIX)
        hears_late(run, CONTROLLER, 1.0)
        cut(run, FOLLOWER, LEADER)
        run.kill(FOLLOWER)
        run.machine(FOLLOWER).host.disk.flip_bit(path, 100, 3)
        run.start(FOLLOWER)
        run.cluster.run(1.0)
        recover(run, CONTROLLER)
        run.converge()
