"""Partitions with equal states share them, because a broker may have 10,000 partitions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from twisted.internet.task import Clock

from kreplica.server.handlers.cluster.control import _leadership
from kreplica.server.metadata.metadata_cache import MetadataCache

TOPIC_ID = UUID(int=7)


def state(index: int, isr: list[int]) -> dict[str, Any]:
    """Return the row of a partition in LeaderAndIsr or UpdateMetadata."""
    return {
        "partition_index": index,
        "leader": isr[0],
        "leader_epoch": 3,
        "isr": isr,
        "replicas": [1, 2],
        "offline_replicas": [],
        "partition_epoch": 4,
        "controller_epoch": 5,
        "is_new": False,
    }


def test_metadata() -> None:
    """The lists of brokers of two updates are shared; an update with another ISR changes only its partition."""
    reactor: Any = Clock()
    cache = MetadataCache(reactor)

    def update(*rows: dict[str, Any]) -> None:
        topic = {"topic_name": "t", "topic_id": TOPIC_ID, "partition_states": list(rows)}
        cache.update({"controller_id": 1, "live_brokers": [], "topic_states": [topic]})

    update(state(0, [1, 2]), state(1, [1, 2]))
    update(state(2, [1, 2]))
    update(state(1, [2]))
    partitions = cache.topics["t"].partitions
    assert {number: partition.isr for number, partition in partitions.items()} == {0: (1, 2), 1: (2,), 2: (1, 2)}
    assert partitions[0].replicas is partitions[1].replicas is partitions[2].isr


def test_leaderships() -> None:
    first, second, other = (_leadership(TOPIC_ID, state(index, isr)) for index, isr in enumerate(([1], [1], [2])))
    assert first is second
    assert (first.isr, other.isr, other.replicas) == ((1,), (2,), (1, 2))
    assert first != other
