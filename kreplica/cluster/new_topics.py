"""A topic that somebody asks for, as whoever asks for it says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that is asked for.

    :param partitions: how many; None asks for the broker's default.
    :param replication_factor: None asks for the broker's default.
    :param assignment: replicas by partition where they are chosen by hand; the two above are None then.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Mapping[int, tuple[int, ...]] | None = None
    configs: Mapping[str, str] | None = None
