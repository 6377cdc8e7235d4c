"""What a producer tells of a record that was written."""

from __future__ import annotations

from typing import NamedTuple

from kreplica.model import TopicPartition


class Written(NamedTuple):
    """A record that was written.

    :param offset: where; -1 where nobody told: with ``acks=0``, or when a retry was there already.
    :param timestamp_ms: the record's; the broker's where the topic wants that.
    """

    partition: TopicPartition
    offset: int
    timestamp_ms: int
