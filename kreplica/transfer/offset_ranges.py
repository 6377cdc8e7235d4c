"""Sizes of offset ranges."""

from __future__ import annotations

from collections.abc import Mapping

from kreplica.model import TopicPartition


def offset_count(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """Return the number of offsets between the starts and the ends (exclusive).

    A partition whose end is not after its start adds 0. The number of records may be smaller.
    """
    return sum(max(0, ends[partition] - start) for partition, start in starts.items())
