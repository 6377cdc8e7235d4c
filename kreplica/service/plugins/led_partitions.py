"""Implements ``interfaces.LedPartitions``: access to the partitions that a broker leads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kreplica.cluster.topic_names import INTERNAL_TOPICS
from kreplica.errors import ErrorCode, KafkaError, StorageError
from kreplica.interfaces import LogBatch, LogRecord
from kreplica.model import TopicPartition
from kreplica.replication import Partition, Partitions
from kreplica.runtime import Runtime
from kreplica.runtime.disk import FileRange
from kreplica.storage.log.timestamp_search import offset_for_timestamp
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.batches import BatchHeader, iter_headers
from kreplica.wire.interceptor_notes import parse_notes
from kreplica.wire.records import Record, iter_records

log = Logger()

READ_BYTES = 1024 * 1024

Leads = Callable[[TopicPartition, bool], None]


class LedPartitionsDependencies(Protocol):
    """Parts of a broker through which a plugin reads and writes partitions that the broker leads."""

    @property
    def runtime(self) -> Runtime: ...

    @property
    def partitions(self) -> Partitions: ...


@dataclass(slots=True)
class StoredBatch:
    """A ``LogBatch`` in memory."""

    base_offset: int
    next_offset: int
    max_timestamp_ms: int
    note: bytes | None
    _data: memoryview
    _header: BatchHeader

    def may_hold(self, text: bytes) -> bool:
        return not self._header.is_control and (self._header.codec != 0 or text in bytes(self._data))

    def records(self) -> Sequence[LogRecord]:
        if self._header.is_control:
            return ()
        return [LogRecord(r.timestamp_ms, r.key, r.value, r.headers, r.offset) for r in iter_records(self._data)]


class Roles:
    """Plugin callbacks by topic; ``Partitions`` notifies this object of leadership changes."""

    def __init__(self) -> None:
        self._followers: dict[str, list[Leads]] = {}

    def follow(self, topic: str, leads: Leads) -> None:
        if topic in INTERNAL_TOPICS:
            raise ValueError(f"{topic} is an internal topic")
        self._followers.setdefault(topic, []).append(leads)

    def observe(self, partitions: Partitions) -> None:
        """Register for role changes; must be called before any partition is opened."""
        for topic in sorted(self._followers):
            partitions.observe(topic, self._role_changed)

    def _role_changed(self, partition: Partition) -> None:
        key = partition.topic_partition
        for leads in self._followers[key.topic]:
            try:
                leads(key, partition.is_leader)
            except Exception:
                log.failure("the leadership callback of a plugin failed for {partition}", partition=str(key))


class LedView:
    """The led partitions as one plugin sees them.

    :param name: the plugin's name; it sees only its own notes.
    """

    def __init__(self, broker: LedPartitionsDependencies, roles: Roles, name: str) -> None:
        self._broker = broker
        self._roles = roles
        self._name = name

    def on_leadership_change(self, topic: str, callback: Leads) -> None:
        self._roles.follow(topic, callback)

    def follow(self, topic: str, leads: Leads) -> None:
        self.on_leadership_change(topic, leads)

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        log_ = self._led(partition).log
        return log_.log_start_offset, log_.log_end_offset

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        log_ = self._led(partition).log
        found = offset_for_timestamp(log_, max(timestamp_ms, 0), log_.log_end_offset)
        return log_.log_end_offset if found is None else found.offset

    def read(self, partition: TopicPartition, offset: int) -> Deferred[Sequence[LogBatch]]:
        return Deferred.fromCoroutine(self._read(partition, offset))

    def append(self, partition: TopicPartition, records: Sequence[LogRecord]) -> int:
        batch = build_batch(Record(NEXT_OFFSET, r.timestamp_ms, r.key, r.value, r.headers) for r in records)
        now_ms = self._broker.runtime.wall_clock_ms()
        return self._led(partition).append_own(batch, now_ms).base_offset

    def _led(self, key: TopicPartition) -> Partition:
        partition = self._broker.partitions.get(key)
        if partition is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        partition.check_leader()
        return partition

    async def _read(self, key: TopicPartition, offset: int) -> Sequence[LogBatch]:
        partition = self._led(key)
        data = await self._read_chunk(partition, offset)
        headers = list(iter_headers(data, incomplete_last=True))
        found: list[LogBatch] = []
        for number, (position, header) in enumerate(headers):
            if header.last_offset < offset:
                continue
            batch = data[position : position + header.size]
            if not header.is_control:
                found.append(
                    StoredBatch(header.base_offset, header.next_offset, header.max_timestamp, None, batch, header)
                )
                continue
            following = headers[number + 1][1] if number + 1 < len(headers) else None
            if following is None:
                following = await self._header_at(partition, header.next_offset)
            found += self._notes(batch, header, following)
        return found

    def _notes(self, batch: memoryview, header: BatchHeader, following: BatchHeader | None) -> list[StoredBatch]:
        """Return one batch for each of the plugin's notes in a control batch, or one batch without a note."""
        notes = parse_notes(batch)
        own: list[tuple[int, bytes | None]] = []
        if notes is not None and notes.apply_to(following):
            own = [(index, note.data) for index, note in enumerate(notes.notes) if note.plugin == self._name]
        return [
            StoredBatch(header.base_offset + index, header.next_offset, header.max_timestamp, note, batch, header)
            for index, note in own or [(0, None)]
        ]

    async def _read_chunk(self, partition: Partition, offset: int) -> memoryview:
        log_ = partition.log
        try:
            chunk = log_.read(offset, size_max=READ_BYTES, offset_max=log_.log_end_offset)
            return memoryview(await self._broker.runtime.offload.run(_read_ranges, chunk.ranges))
        except (OSError, StorageError) as error:
            raise partition.read_failed(offset, error) from error

    async def _header_at(self, partition: Partition, offset: int) -> BatchHeader | None:
        if offset >= partition.log.log_end_offset:
            return None
        data = await self._read_chunk(partition, offset)
        return next((header for _, header in iter_headers(data, incomplete_last=True)), None)


def _read_ranges(ranges: Sequence[FileRange]) -> bytes:
    return b"".join(each.read() for each in ranges)
