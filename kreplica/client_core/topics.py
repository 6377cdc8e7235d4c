"""New topics, as encoded in CreateTopics requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

BROKERS_DEFAULT = -1
"""Number of partitions or replicas that selects the broker's default (KIP-464)."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    :param partitions: number of partitions; by default, the broker's default.
    :param assignment: partition -> brokers of its replicas, the preferred leader first; overrides both numbers.
    """

    name: str
    partitions: int = BROKERS_DEFAULT
    replication_factor: int = BROKERS_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] | None = None


def new_topic_row(topic: NewTopic) -> dict[str, Any]:
    """Return a topic as encoded in CreateTopics."""
    assignment = topic.assignment or {}
    return {
        "name": topic.name,
        "num_partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "assignments": [
            {"partition_index": partition, "broker_ids": list(brokers)}
            for partition, brokers in sorted(assignment.items())
        ],
        "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
    }
