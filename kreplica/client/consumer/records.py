"""Consumed records and batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kreplica.model import NO_EPOCH, TopicPartition
from kreplica.wire.batches import TimestampType
from kreplica.wire.records import Headers


class ConsumedRecord(NamedTuple):
    """A record with its metadata.

    :param timestamp_ms: creation or append time, depending on ``timestamp_type``; -1 if the producer set none.
    :param leader_epoch: epoch of the leader that appended the record.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    leader_epoch: int = NO_EPOCH

    @property
    def topic_partition(self) -> TopicPartition:
        """The record's partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class ConsumedBatch:
    """Consecutive records of one partition; iterable.

    :param records: in ascending order of offset, possibly with gaps; never empty.
    :param next_offset: the offset after the records, to commit when all of them have been processed.
    :param leader_epoch: epoch of the leader that appended the records.
    """

    partition: TopicPartition
    records: list[ConsumedRecord]
    next_offset: int
    leader_epoch: int = NO_EPOCH

    def __iter__(self) -> Iterator[ConsumedRecord]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def split(self, count: int) -> tuple[ConsumedBatch, ConsumedBatch]:
        """Return one batch with the first ``count`` records and one with the remaining records."""
        first, others = self.records[:count], self.records[count:]
        return (
            ConsumedBatch(self.partition, first, others[0].offset, self.leader_epoch),
            ConsumedBatch(self.partition, others, self.next_offset, self.leader_epoch),
        )
