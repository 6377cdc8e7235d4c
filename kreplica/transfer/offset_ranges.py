"""Sizes of offset ranges."""

from __future__ import annotations

from collections.abc import Mapping

from kreplica.model import TopicPartition


def offset_count(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """Return the number of offsets from the starts to the ends (exclusive).

    A partition whose end is not after its start counts as 0. The number of records may be smaller.
    """
    return sum(max(0, ends[each] - start) for each, start in starts.items())
