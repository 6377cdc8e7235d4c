"""Placement by tags: replicas of a topic go only to brokers with its tag, spread over racks.

kreplica.placement=tags
kreplica.plugin.tags.brokers=1:ssd 2:ssd 3:hdd 4:hdd 5:ssd
kreplica.plugin.tags.topics=logs-*:hdd *:ssd

The first matching pattern applies; a topic without a match can use any broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zope.interface import implementer

from kreplica.errors import ErrorCode, KafkaError
from kreplica.interfaces import IReplicaPlacement, PlacementBroker, Plugin, PluginContext

tags = Plugin(
    "tags",
    IReplicaPlacement,
    "kreplica.plugins.tags:TagPlacement",
    "Places the replicas of each topic on brokers with the topic's tag.",
    {
        "brokers": "Tags of brokers as ID:TAG, separated by spaces.",
        "topics": "Tags of topics as TOPIC:TAG, separated by spaces; a * at the end of TOPIC matches any suffix.",
    },
)


@implementer(IReplicaPlacement)
class TagPlacement:
    """Places the replicas of partition n on consecutive brokers, starting with the n-th.

    Consecutive brokers are in different racks if possible.
    """

    def __init__(self, context: PluginContext) -> None:
        """:raise ValueError: a setting is missing or malformed."""
        self._tags = {int(broker): tag for broker, tag in _pairs(context, "brokers")}
        self._topics = _pairs(context, "topics")

    def place(
        self, topic: str, partitions: Sequence[int], replication_factor: int, brokers: Sequence[PlacementBroker]
    ) -> Mapping[int, Sequence[int]]:
        tag = self._tag_of(topic)
        fitting = [each for each in brokers if tag is None or self._tags.get(each.broker_id) == tag]
        if len(fitting) < replication_factor:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{replication_factor} replicas of {topic} need brokers with the tag {tag}; there are {len(fitting)}",
            )
        order = _alternating(fitting)
        return {
            number: [order[(number + place) % len(order)] for place in range(replication_factor)]
            for number in partitions
        }

    def _tag_of(self, topic: str) -> str | None:
        for pattern, tag in self._topics:
            if topic == pattern or (pattern.endswith("*") and topic.startswith(pattern[:-1])):
                return tag
        return None


def _alternating(brokers: Sequence[PlacementBroker]) -> list[int]:
    by_rack: dict[str, list[int]] = {}
    for broker in brokers:
        by_rack.setdefault(broker.rack or "", []).append(broker.broker_id)
    order: list[int] = []
    racks = [by_rack[rack] for rack in sorted(by_rack)]
    while any(racks):
        order += [rack.pop(0) for rack in racks if rack]
    return order


def _pairs(context: PluginContext, name: str) -> list[tuple[str, str]]:
    pairs = []
    for text in context.settings.get(name, "").split():
        left, colon, tag = text.rpartition(":")
        if not (left and colon and tag):
            raise ValueError(f"{name}: {text!r} is not of the form NAME:TAG")
        pairs.append((left, tag))
    if not pairs:
        raise ValueError(f"{name}: it must be set")
    return pairs
