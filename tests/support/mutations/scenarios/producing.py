"""Producers that retry."""

from __future__ import annotations

import errno

from kreplica.storage.segments.segment import LOG_SUFFIX
from kreplica.testing.clients.idempotent_producer import Load
from kreplica.testing.clients.pipelining_producer import Style
from kreplica.testing.simulator.disk import CAPACITY_BYTES
from kreplica.testing.simulator.simulation import DATA_DIRECTORY
from kreplica.testing.storms.cluster_run import TOPIC
from tests.support.mutations.scenarios.scene import FOLLOWER, LEADER, OTHER, PATIENT, name, scene

BRISK = Load(TOPIC, interval_s=0.0005, request_timeout_s=4.0)
"""Options that keep several batches of each partition in flight at any time."""


def retry_after_lost_acknowledgement(seed: int) -> None:
    """Connections break between append and acknowledgement; the retry must be recognized and not be written again."""
    with scene(seed) as run:
        for _ in range(10):
            run.run_until_acknowledged(5)
            run.steps(run.random.randrange(40))
            run.network.drop_connections("producer-0", name(LEADER))
        run.converge()


def rejected_batch_with_others_in_flight(seed: int) -> None:
    """A full disk rejects a batch while batches of another partition wait for followers; no record may be duplicated.

    The batches behind the rejected one are not out of order, so the producer keeps its epoch.
    """
    with scene(seed, partitions=2, overrides=PATIENT, load=BRISK, style=Style.LIBRDKAFKA) as run:
        (producer,) = run.producers
        run.run_until_acknowledged(100)
        disks = [run.machine(broker).host.disk for broker in (FOLLOWER, OTHER)]
        for disk in disks:
            total, free = disk.usage(DATA_DIRECTORY)
            disk.capacity_bytes = total - free
        run.note("the disks of both followers are full, and one write of the leader fails because its disk is full")
        segments = f"{DATA_DIRECTORY}/logs/{run.keys[0]}/*{LOG_SUFFIX}"
        run.machine(LEADER).host.disk.fail("write", segments, errno.ENOSPC, times=1)
        run.cluster.run_until(lambda: "KAFKA_STORAGE_ERROR" in producer.errors)
        run.cluster.run_until(lambda: producer.errors["REQUEST_TIMED_OUT"] > len(run.keys))
        for disk in disks:
            disk.capacity_bytes = CAPACITY_BYTES
        run.converge()
