"""Request to create a topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NewTopic:
    """Request to create a topic.

    :param partitions: number of partitions; None for the broker's default.
    :param replication_factor: None for the broker's default.
    :param assignment: manual replica assignment by partition; then both parameters above are None.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Mapping[int, tuple[int, ...]] | None = None
    configs: Mapping[str, str] | None = None
