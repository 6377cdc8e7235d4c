"""Result of a written record."""

from __future__ import annotations

from typing import NamedTuple

from kreplica.model import TopicPartition


class Written(NamedTuple):
    """A written record.

    :param offset: -1 if unknown: with ``acks=0``, or if a retry found that the record had already been written.
    :param timestamp_ms: the record's timestamp; assigned by the broker if the topic uses LogAppendTime.
    """

    partition: TopicPartition
    offset: int
    timestamp_ms: int
