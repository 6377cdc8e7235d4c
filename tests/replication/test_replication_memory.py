"""Memory of idle partitions; a broker may have 10,000."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

from twisted.internet.task import Clock

from kreplica.model import ZERO_UUID, TopicPartition
from kreplica.replication.leader.leader_state import LeaderContext
from kreplica.replication.leader.lease import Lease
from kreplica.replication.leadership import Leadership
from kreplica.replication.partition import Partition
from kreplica.replication.purgatory import Purgatory
from kreplica.storage.directories.opening import LogToOpen
from kreplica.storage.log.log import Log
from kreplica.storage.log_config import LogConfig
from kreplica.storage.producers.producer_limits import ProducerLimits
from kreplica.storage.segments.open_segments import OpenSegments
from kreplica.testing.simulator.disk import MemoryDisk

COUNT = 300
DISK = MemoryDisk(lambda: 0)
LEADERSHIP = Leadership(1, 0, (1,), (1,), 0, 1)


class Owner:
    """Owner of the logs that ignores all notifications."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def logs() -> list[Log]:
    """Return new logs in a directory with a name of realistic length."""
    owner: Any = Owner()
    segments, limits, config = OpenSegments(), ProducerLimits(), LogConfig()
    opened = []
    for number in range(COUNT):
        path = f"/var/lib/kreplica/broker-1/logs/orders-{number}"
        log = LogToOpen(path, TopicPartition("orders", number), config, DISK, lambda: 5000).create()
        log.set_owner(owner, segments, limits)
        opened.append(log)
    return opened


def partitions() -> list[Partition]:
    """Return led partitions with their logs."""
    reactor: Any = Clock()
    context = LeaderContext(1, Purgatory(lambda _: None), Lease(reactor, lambda: True), reactor.seconds, print, 30.0)
    found = []
    for log in logs():
        partition = Partition(log.topic_partition, ZERO_UUID, log, context, high_watermark=0, min_insync_replicas=1)
        partition.lead(LEADERSHIP)
        found.append(partition)
    return found


def memory_of(create: Callable[[], list[Any]]) -> float:
    """Return the bytes per created object."""
    create()  # imports and caches
    gc.collect()
    tracemalloc.start()
    try:
        created = create()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / len(created)
    finally:
        tracemalloc.stop()


def test_memory_of_a_new_log() -> None:
    """Collections are created for their first entry, and paths are derived from the directory."""
    assert memory_of(logs) < 1400


def test_memory_of_a_led_partition_with_its_log() -> None:
    assert memory_of(partitions) < 1900
