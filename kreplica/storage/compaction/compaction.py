"""Compacts one log: keeps the last record of each key, and tombstones and markers for a limited time.

``plan_compaction`` selects the segments in the reactor thread. A ``Compaction`` reads and writes files in another
thread and does not access the log. ``replace_segments`` installs the result. The active segment and records above
the last stable offset are not compacted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from kreplica.errors import ProtocolError, StorageError
from kreplica.runtime.disk import Disk, File
from kreplica.storage.compaction.record_filter import BatchFilter
from kreplica.storage.formats.batch_scanning import scan_batches
from kreplica.storage.log.log import Log
from kreplica.storage.log_config import NO_LIMIT, LogConfig
from kreplica.storage.producers.aborted_transactions import AbortedTransaction, AbortedTransactions
from kreplica.storage.recovery.leftovers import CLEANED_SUFFIX, SWAP_SUFFIX
from kreplica.storage.segments.damage import Damage, damage_if_unreadable, matches_crc
from kreplica.storage.segments.open_segments import OpenSegments
from kreplica.storage.segments.segment import (
    LOG_SUFFIX,
    RELATIVE_OFFSET_MAX,
    SUFFIXES,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
)
from kreplica.wire.batches import BatchHeader, parse_header
from kreplica.wire.records import iter_keys

KEY_ENTRY_SIZE = 160
"""Approximate memory per key in the offset map: digest, integer and dict entry."""

_DIGEST_SIZE = 16


@dataclass(frozen=True, slots=True)
class Source:
    """A closed segment to read."""

    segment: Segment
    path: str
    size: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Input of one compaction.

    :param sources: segments from the first one to the end of the compactable range.
    :param dirty_offset: start of the range that no earlier compaction has processed.
    :param last_offsets: last offset of each producer's last batch, whose sequence number must be kept.
    :param last_epochs: epochs of the producers that have no batch in their current epoch.
    :param ended_later: aborted transactions with records in the sources whose markers are after the sources.
    """

    directory: str
    sources: tuple[Source, ...]
    dirty_offset: int
    end_offset: int
    dirty_ratio: float
    overdue: bool
    config: LogConfig
    last_offsets: Mapping[int, int]
    last_epochs: Mapping[int, int]
    ended_later: Sequence[AbortedTransaction] = ()


def plan_compaction(log: Log, cleaned_offset: int, high_watermark: int, now_ms: int) -> CompactionPlan | None:
    """Return a compaction plan for a log, or None if compaction is not worthwhile.

    :param cleaned_offset: end of the last compaction.
    :raise Damage: a segment cannot be read.
    """
    config = log.config
    sources = list(_compactable(log, high_watermark, now_ms))
    if not sources:
        return None
    end_offset = sources[-1].end_offset
    dirty_offset = cleaned_offset if log.log_start_offset <= cleaned_offset <= end_offset else log.log_start_offset
    dirty = [source for source in sources if source.end_offset > dirty_offset]
    total = sum(source.size for source in sources)
    if not dirty or total == 0:
        return None
    ratio = sum(source.size for source in dirty) / total
    overdue = _is_overdue(dirty[0].segment, config, now_ms)
    if ratio < config.min_cleanable_dirty_ratio and not overdue:
        return None
    last_offsets = {
        entry.producer_id: entry.batches[-1].last_offset for entry in log.producers.entries if entry.batches
    }
    return CompactionPlan(
        log.path,
        tuple(sources),
        dirty_offset,
        end_offset,
        ratio,
        overdue,
        config,
        last_offsets,
        {entry.producer_id: entry.epoch for entry in log.producers.entries if not entry.batches},
        log.segments.aborted_transactions(end_offset, end_offset),
    )


def _compactable(log: Log, high_watermark: int, now_ms: int) -> Iterator[Source]:
    """Yield closed segments below the last stable offset whose records are old enough."""
    stable_offset = log.last_stable_offset(high_watermark)
    lag_ms = log.config.min_compaction_lag_ms
    for index, segment in enumerate(log.segments.closed):
        end_offset = log.segments.end_offset(index, log.log_end_offset)
        if end_offset > stable_offset or (lag_ms > 0 and segment.age_timestamp_ms() > now_ms - lag_ms):
            return
        yield Source(segment, segment.path(), segment.size, end_offset)


def _is_overdue(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    """True if the first record is older than ``max.compaction.lag.ms`` (KIP-354)."""
    with damage_if_unreadable(segment.path(), segment.base_offset):
        first_ms = segment.first_timestamp_ms
    return config.max_compaction_lag_ms != NO_LIMIT and 0 <= first_ms < now_ms - config.max_compaction_lag_ms


class Compaction:
    """One pass over a plan, run outside the reactor thread; the caller installs the results.

    :param key_bytes_max: memory limit of the offset map; if it is reached, the pass ends early.
    :raise StorageError: from any method, if a batch is damaged and the log cannot be compacted.
    """

    def __init__(self, plan: CompactionPlan, disk: Disk, now_ms: int, key_bytes_max: int) -> None:
        self._plan = plan
        self._disk = disk
        self._now_ms = now_ms
        self._keys_max = max(key_bytes_max // KEY_ENTRY_SIZE, 1)
        self._offsets: dict[bytes, int] = {}
        self._aborted = [
            aborted for source in plan.sources for aborted in AbortedTransactions(_index_path(source.path), disk)
        ]
        self._aborted += plan.ended_later
        self._group_filter: BatchFilter | None = None
        """Filter for all groups, because a transaction may span several of them; None before the first group."""
        self.end_offset = plan.dirty_offset
        """End of the range whose keys this pass has read."""

    def read_keys(self) -> int:
        """Collect the last offset of every key in the dirty range, as far as memory allows.

        :return: number of bytes read.
        """
        batch_filter = self._filter()
        read = 0
        for source in self._plan.sources:
            if source.end_offset <= self._plan.dirty_offset:
                continue
            for header, data in _batches(self._disk.open(source.path), source):
                read += header.size
                if header.last_offset < self._plan.dirty_offset:
                    continue
                if not header.is_control and not batch_filter.is_aborted(header):
                    keys = _keys(data, source)
                    if self._offsets and len(self._offsets) + len(keys) > self._keys_max:
                        return read
                    self._offsets.update(keys)
                self.end_offset = header.next_offset
            self.end_offset = source.end_offset
        return read

    def groups(self) -> list[list[Source]]:
        """Return the segments to compact, grouped so that each result fits into one segment."""
        config = self._plan.config
        groups: list[list[Source]] = []
        size = 0
        for source in self._plan.sources:
            if source.segment.base_offset >= self.end_offset:
                break
            fits = (
                groups
                and size + source.size <= config.segment_bytes
                and source.end_offset - groups[-1][0].segment.base_offset <= RELATIVE_OFFSET_MAX
            )
            if not fits:
                groups.append([])
                size = 0
            groups[-1].append(source)
            size += source.size
        return groups

    def write_group(self, group: list[Source]) -> Segment:
        """Write the remaining records of a group durably to ``.swap`` files; must be called in the order of the groups.

        :return: the segment that replaces the group.
        :raise OSError: the write failed.
        """
        base_offset = group[0].segment.base_offset
        self._remove_parts(base_offset)
        target = Segment(
            self._plan.directory, base_offset, self._disk, OpenSegments(), size=0, new=True, name_end=CLEANED_SUFFIX
        )
        target.create()
        try:
            self._copy(group, target)
            target.seal()
            self._sync(target)
        except BaseException:
            self._remove_parts(base_offset)
            raise
        target.change_name_end(self._disk, SWAP_SUFFIX)
        self._disk.sync_directory(self._plan.directory)
        return target

    def discard(self, target: Segment) -> None:
        """Remove a result that is not installed."""
        for suffix in SUFFIXES:
            _remove(self._disk, target.path(suffix))

    def _filter(self) -> BatchFilter:
        return BatchFilter(
            self._aborted,
            digest,
            self._offsets,
            self.end_offset,
            last_offsets=self._plan.last_offsets,
            last_epochs=self._plan.last_epochs,
            now_ms=self._now_ms,
            delete_retention_ms=self._plan.config.delete_retention_ms,
        )

    def _copy(self, group: list[Source], target: Segment) -> None:
        batch_filter = self._group_filter or self._filter()
        self._group_filter = batch_filter
        for source in group:
            for header, data in _batches(self._disk.open(source.path), source):
                try:
                    remaining = batch_filter.keep(header, data)
                except ProtocolError as error:
                    raise StorageError(f"{source.path}: the batch of offset {header.base_offset}: {error}") from error
                if remaining is None:
                    continue
                target.append((remaining,), (parse_header(remaining),), self._plan.config.index_interval_bytes)
                aborted = batch_filter.ended_by(header)
                if aborted is not None:
                    target.aborted.append(aborted)

    def _sync(self, target: Segment) -> None:
        for suffix in SUFFIXES:
            path = target.path(suffix)
            if self._disk.exists(path):
                file = self._disk.open(path)
                file.sync()
                file.close()

    def _remove_parts(self, base_offset: int) -> None:
        for name_end in (CLEANED_SUFFIX, SWAP_SUFFIX):
            for suffix in SUFFIXES:
                _remove(self._disk, f"{self._plan.directory}/{base_offset:020d}{suffix}{name_end}")


def _keys(data: memoryview, source: Source) -> dict[bytes, int]:
    try:
        return {digest(key): offset for offset, key in iter_keys(data) if key is not None}
    except ProtocolError as error:
        raise StorageError(f"{source.path}: {error}") from error


def digest(key: bytes) -> bytes:
    """Return the key's representation in the offset map: the key, or a 16-byte digest of a longer one."""
    return key if len(key) < _DIGEST_SIZE else blake2b(key, digest_size=_DIGEST_SIZE).digest()


def _batches(file: File, source: Source) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a segment; raise at a damaged one, which would otherwise get a valid CRC.

    :raise Damage: a batch is damaged.
    """
    end = 0
    try:
        with damage_if_unreadable(source.path, source.segment.base_offset):
            for position, header, data in scan_batches(file, 0, source.size):
                if not matches_crc(data, header):
                    break
                yield header, data
                end = position + header.size
    finally:
        file.close()
    if end != source.size:
        raise Damage(source.path, source.segment.base_offset, end, "the batch is damaged, so the log is not compacted")


def _index_path(path: str) -> str:
    return path.removesuffix(LOG_SUFFIX) + TRANSACTION_INDEX_SUFFIX


def _remove(disk: Disk, path: str) -> None:
    try:
        disk.remove(path)
    except FileNotFoundError:
        pass
