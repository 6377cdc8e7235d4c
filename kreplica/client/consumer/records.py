"""What a consumer gives: records, alone or as they came together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kreplica.model import NO_EPOCH, TopicPartition
from kreplica.wire.batches import TimestampType
from kreplica.wire.records import Headers


class ConsumedRecord(NamedTuple):
    """A record, with all that is known of it.

    :param timestamp_ms: when it was made, or appended, as ``timestamp_type`` says; -1 where its producer said nothing.
    :param leader_epoch: of the leader that took it.
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
        """Where it lies."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class ConsumedBatch:
    """Records of one partition that came together; may be iterated over.

    :param records: in the order of their offsets, which may have gaps; never empty.
    :param next_offset: right behind them: what to commit when all are done.
    :param leader_epoch: of the leader that took them.
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
        """The first so many records, and the others."""
        first, others = self.records[:count], self.records[count:]
        return (
            ConsumedBatch(self.partition, first, others[0].offset, self.leader_epoch),
            ConsumedBatch(self.partition, others, self.next_offset, self.leader_epoch),
        )
