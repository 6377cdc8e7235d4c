"""Checks that the indexes of a segment agree with its batches, in one pass.

Each check receives every batch in order, and then the end of the segment. It yields the position of each wrong entry in
the index file, and a description.
"""

from __future__ import annotations

from collections.abc import Iterator

from kreplica.storage.inspection.files import (
    AbortedEntry,
    EntryFile,
    OffsetEntry,
    TimeEntry,
    aborted_entries,
    offset_entries,
    time_entries,
)
from kreplica.wire.batches import NO_TIMESTAMP, BatchHeader

Mismatch = tuple[int, str]


def _incomplete_entry(file: EntryFile) -> Iterator[Mismatch]:
    rest = file.size % file.entry_size
    if rest:
        yield file.size - rest, f"{rest} bytes after the last whole entry of {file.entry_size} bytes"


class OffsetIndexCheck:
    """Each entry must point to the start of a batch, with an offset that no earlier batch contains."""

    def __init__(self, file: EntryFile, base_offset: int) -> None:
        self._file = file
        self._entries = offset_entries(file, base_offset)
        self._next = next(self._entries, None)
        self._previous: OffsetEntry | None = None

    def check_batch(self, position: int, header: BatchHeader) -> Iterator[Mismatch]:
        """Check the entries up to a batch."""
        while (entry := self._next) is not None and entry.position <= position:
            yield from self._check_order(entry)
            if entry.position < position:
                yield entry.at, f"offset {entry.offset} at position {entry.position}, where no batch starts"
            elif entry.offset < header.base_offset:
                yield (
                    entry.at,
                    f"offset {entry.offset} at position {position}, where the batch of offset {header.base_offset} "
                    "starts",
                )
            self._advance(entry)

    def check_end(self, size: int, next_offset: int) -> Iterator[Mismatch]:
        """Check the remaining entries after the last batch."""
        while (entry := self._next) is not None:
            yield entry.at, f"offset {entry.offset} at position {entry.position}, beyond the batches' end at {size}"
            self._advance(entry)
        last = self._previous
        if last is not None and last.position < size and last.offset >= next_offset:
            yield last.at, f"offset {last.offset}, but the segment ends before offset {next_offset}"
        yield from _incomplete_entry(self._file)

    def _check_order(self, entry: OffsetEntry) -> Iterator[Mismatch]:
        before = self._previous
        if before is not None and (entry.offset <= before.offset or entry.position <= before.position):
            yield (
                entry.at,
                f"offset {entry.offset} at position {entry.position} after {before.offset} at {before.position}",
            )

    def _advance(self, entry: OffsetEntry) -> None:
        self._previous = entry
        self._next = next(self._entries, None)


class TimeIndexCheck:
    """Each entry must have the largest timestamp so far, and an offset of the batch that contains it."""

    def __init__(self, file: EntryFile, base_offset: int) -> None:
        self._file = file
        self._entries = time_entries(file, base_offset)
        self._next = next(self._entries, None)
        self._previous: TimeEntry | None = None
        self._largest_ms = NO_TIMESTAMP

    def check_batch(self, position: int, header: BatchHeader) -> Iterator[Mismatch]:
        """Check the entries up to a batch."""
        before_ms = self._largest_ms
        self._largest_ms = max(before_ms, header.max_timestamp)
        while (entry := self._next) is not None and entry.offset <= header.last_offset:
            yield from self._check_order(entry)
            if before_ms > entry.timestamp_ms:
                yield entry.at, f"time {entry.timestamp_ms} at offset {entry.offset}, after a record of {before_ms}"
            elif self._largest_ms < entry.timestamp_ms:
                yield (
                    entry.at,
                    f"time {entry.timestamp_ms} at offset {entry.offset}, where no record is later than "
                    f"{self._largest_ms}",
                )
            self._advance(entry)

    def check_end(self, size: int, next_offset: int) -> Iterator[Mismatch]:
        """Check the remaining entries after the last batch."""
        while (entry := self._next) is not None:
            yield entry.at, f"time {entry.timestamp_ms} at offset {entry.offset}, beyond the end at {next_offset}"
            self._advance(entry)
        yield from _incomplete_entry(self._file)

    def _check_order(self, entry: TimeEntry) -> Iterator[Mismatch]:
        before = self._previous
        if before is not None and (entry.timestamp_ms <= before.timestamp_ms or entry.offset < before.offset):
            yield (
                entry.at,
                f"time {entry.timestamp_ms} at offset {entry.offset} after {before.timestamp_ms} at {before.offset}",
            )

    def _advance(self, entry: TimeEntry) -> None:
        self._previous = entry
        self._next = next(self._entries, None)


class TransactionIndexCheck:
    """Each entry must match the producer's marker that aborted a transaction."""

    def __init__(self, file: EntryFile, base_offset: int) -> None:
        self._file = file
        self._base_offset = base_offset
        self._entries = aborted_entries(file)
        self._next = next(self._entries, None)
        self._previous: AbortedEntry | None = None
        self.known: tuple[int, int] | None = None
        """Producer id and marker offset of the last entry that matches a batch."""

    def check_batch(self, position: int, header: BatchHeader) -> Iterator[Mismatch]:
        """Check the entries up to a batch."""
        while (entry := self._next) is not None and entry.aborted.last_offset <= header.last_offset:
            yield from self._check_fields(entry)
            aborted = entry.aborted
            if aborted.last_offset >= header.base_offset:  # else compaction has removed the marker
                if header.is_control and header.producer_id == aborted.producer_id:
                    self.known = (aborted.producer_id, aborted.last_offset)
                else:
                    yield (
                        entry.at,
                        f"producer {aborted.producer_id} aborted at offset {aborted.last_offset}, "
                        "but the batch at that offset is not its marker",
                    )
            self._advance(entry)

    def check_end(self, size: int, next_offset: int) -> Iterator[Mismatch]:
        """Check the remaining entries after the last batch."""
        while (entry := self._next) is not None:
            yield entry.at, f"a marker at offset {entry.aborted.last_offset}, beyond the end at {next_offset}"
            self._advance(entry)
        yield from _incomplete_entry(self._file)

    def _check_fields(self, entry: AbortedEntry) -> Iterator[Mismatch]:
        aborted, before = entry.aborted, self._previous
        if entry.version != 0:
            yield entry.at, f"version {entry.version}, only 0 is known"
        if aborted.last_offset < self._base_offset or aborted.first_offset > aborted.last_offset:
            yield entry.at, f"invalid offsets {aborted.first_offset} to {aborted.last_offset} of a transaction"
        if before is not None and aborted.last_offset < before.aborted.last_offset:
            yield entry.at, f"a marker at offset {aborted.last_offset} after {before.aborted.last_offset}"

    def _advance(self, entry: AbortedEntry) -> None:
        self._previous = entry
        self._next = next(self._entries, None)
