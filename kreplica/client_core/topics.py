"""New topics, as CreateTopics requests carry them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

BROKERS_DEFAULT = -1
"""Number of partitions or replicas that leaves the choice to the broker's configuration (KIP-464)."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    :param partitions: number of partitions; the broker's default unless given.
    :param assignment: partition -> brokers of its replicas, the preferred leader first; replaces both numbers.
    """

    name: str
    partitions: int = BROKERS_DEFAULT
    replication_factor: int = BROKERS_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] | None = None


def new_topic_row(topic: NewTopic) -> dict[str, Any]:
    """Return a topic as CreateTopics carries it."""
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
