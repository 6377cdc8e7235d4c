"""Kafka's ``.snapshot`` file: producer state of a log before the offset in its name (version 1).

Kafka stores only the last batch of each producer. After a restart it treats a retry of an earlier batch as a gap, which
is fatal for most idempotent producers. This implementation writes one row per recent batch, the newest last. Kafka
reads the rows in order and keeps the last one, which is the row that it would have written itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress

import crc32c

from kreplica.errors import StorageError
from kreplica.runtime.disk import Disk
from kreplica.storage.producers.producer_entry import NO_OFFSET, ProducerEntry, RecentBatch

SNAPSHOT_SUFFIX = ".snapshot"
_VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
"""Producer ID, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, transaction start."""


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the content of the file."""
    rows = [row for entry in sorted(entries, key=lambda entry: entry.producer_id) for row in _pack(entry)]
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _HEAD.pack(_VERSION, crc32c.crc32c(body)) + body


def _pack(entry: ProducerEntry) -> Iterator[bytes]:
    *earlier, last = entry.batches or [RecentBatch(-1, NO_OFFSET, 0, entry.timestamp_ms)]
    for batch in earlier:
        yield _pack_row(entry, batch, batch.timestamp_ms, NO_OFFSET)
    yield _pack_row(entry, last, entry.timestamp_ms, entry.transaction_first_offset)


def _pack_row(entry: ProducerEntry, batch: RecentBatch, timestamp_ms: int, transaction_first_offset: int) -> bytes:
    return _ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        batch.last_sequence,
        batch.last_offset,
        batch.offset_delta,
        timestamp_ms,
        entry.coordinator_epoch,
        transaction_first_offset,
    )


def decode_snapshot(path: str, data: bytes) -> list[ProducerEntry]:
    """Parse a snapshot file.

    :raise StorageError: wrong version or checksum, or an incomplete file.
    """
    body = data[_HEAD.size :]
    if len(data) < _HEAD.size + _COUNT.size or _HEAD.unpack_from(data) != (_VERSION, crc32c.crc32c(body)):
        raise StorageError(f"{path}: not a version 1 snapshot of producers, or its checksum is wrong")
    if len(body) != _COUNT.size + _COUNT.unpack_from(body)[0] * _ENTRY.size:
        raise StorageError(f"{path}: the number of entries does not match the size of the file")
    entries: dict[int, ProducerEntry] = {}
    for row in _ENTRY.iter_unpack(body[_COUNT.size :]):
        entry = _unpack(row)
        previous = entries.get(entry.producer_id)
        if previous is not None and previous.epoch == entry.epoch:
            entry.batches[:0] = previous.batches
        entries[entry.producer_id] = entry
    return list(entries.values())


def _unpack(row: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator_epoch, transaction_start = row
    batches = [RecentBatch(sequence, offset, delta, timestamp_ms)] if offset >= 0 else []
    return ProducerEntry(producer_id, epoch, coordinator_epoch, transaction_start, timestamp_ms, batches)


class SnapshotFiles:
    """Snapshots in a log's directory: one at the base of each segment, and at most one interim snapshot.

    The interim snapshot is within the active segment and is replaced by the next snapshot.
    """

    __slots__ = ("_cached", "_directory", "_disk", "_interim_offset")

    def __init__(self, directory: str, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self._interim_offset: int | None = None
        self._cached: list[int] | None = None
        """Offsets of all snapshots while the log is opened."""

    def cache_names(self, names: Iterable[str]) -> None:
        """Use these names of the directory's files until ``forget_names``; no snapshot may be written until then."""
        self._cached = _offsets(names)

    def forget_names(self) -> None:
        """Discard the cached names; list the directory again."""
        self._cached = None

    def path(self, offset: int) -> str:
        """Return the path of the snapshot before ``offset``."""
        return f"{self._directory}/{offset:020d}{SNAPSHOT_SUFFIX}"

    def offsets(self) -> list[int]:
        """Return the offsets of all snapshots in increasing order."""
        if self._cached is not None:
            return list(self._cached)
        return _offsets(self._disk.list_directory(self._directory))

    def _remove(self, offset: int) -> None:
        self._disk.remove(self.path(offset))
        if self._cached is not None:
            self._cached.remove(offset)

    def write(self, offset: int, entries: Iterable[ProducerEntry]) -> None:
        """Write a snapshot before ``offset``, the base of a segment, without a sync."""
        self._write(offset, entries)
        self._replace_interim(offset, None)

    def write_interim(self, offset: int, entries: Iterable[ProducerEntry]) -> None:
        """Write a snapshot before ``offset`` in the active segment, without a sync."""
        self._write(offset, entries)
        self._replace_interim(offset, offset)

    def _write(self, offset: int, entries: Iterable[ProducerEntry]) -> None:
        self._disk.write_file(self.path(offset), encode_snapshot(entries), sync=False)

    def _replace_interim(self, offset: int, interim_offset: int | None) -> None:
        previous_offset, self._interim_offset = self._interim_offset, interim_offset
        if previous_offset is not None and previous_offset != offset:
            with suppress(FileNotFoundError):  # a truncation has removed it
                self._disk.remove(self.path(previous_offset))

    def load_latest(self, first: int, last: int) -> tuple[int, list[ProducerEntry]] | None:
        """Load the latest valid snapshot between two offsets, and remove damaged ones."""
        for offset in reversed(self.offsets()):
            if not first <= offset <= last:
                continue
            try:
                return offset, self.load(offset)
            except StorageError:
                self._remove(offset)
        return None

    def load(self, offset: int) -> list[ProducerEntry]:
        """Load the snapshot before ``offset``.

        :raise StorageError: the file is damaged.
        :raise FileNotFoundError: there is none.
        """
        path = self.path(offset)
        return decode_snapshot(path, self._disk.read_file(path))

    def note_interim(self, offset: int) -> None:
        """Record that the snapshot before ``offset`` is the interim one."""
        self._interim_offset = offset

    def remove_from(self, offset: int) -> None:
        """Remove the snapshots at or above ``offset``."""
        for snapshot_offset in self.offsets():
            if snapshot_offset >= offset:
                self._remove(snapshot_offset)

    def remove_strays(self, bases: Iterable[int], end_offset: int, trusted_end: int) -> None:
        """Remove snapshots above the log end, and interim snapshots except the latest.

        :param trusted_end: an interim snapshot above this offset may belong to records that were truncated.
        """
        offsets, bases = self.offsets(), set(bases)
        latest = [offset for offset in offsets if offset <= min(end_offset, trusted_end)][-1:]
        for offset in offsets:
            if offset > end_offset or offset not in {*bases, *latest}:
                self._remove(offset)
        self._interim_offset = latest[0] if latest and latest[0] not in bases else None


def _offsets(names: Iterable[str]) -> list[int]:
    """Return the offsets of the snapshots among files, in increasing order."""
    stems = [name.removesuffix(SNAPSHOT_SUFFIX) for name in names if name.endswith(SNAPSHOT_SUFFIX)]
    return sorted(int(stem) for stem in stems if stem.isdecimal())
