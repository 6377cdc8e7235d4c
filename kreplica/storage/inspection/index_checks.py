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
    extra_bytes = file.size % file.entry_size
    if extra_bytes:
        yield file.size - extra_bytes, f"{extra_bytes} bytes after the last whole entry of {file.entry_size} bytes"


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
                yield entry.start, f"offset {entry.offset} at position {entry.position}, where no batch starts"
            elif entry.offset < header.base_offset:
                yield (
                    entry.start,
                    f"offset {entry.offset} at position {position}, where the batch of offset {header.base_offset} "
                    "starts",
                )
            self._advance(entry)

    def check_end(self, size: int, next_offset: int) -> Iterator[Mismatch]:
        """Check the remaining entries after the last batch."""
        while (entry := self._next) is not None:
            yield entry.start, f"offset {entry.offset} at position {entry.position}, beyond the batches' end at {size}"
            self._advance(entry)
        last = self._previous
        if last is not None and last.position < size and last.offset >= next_offset:
            yield last.start, f"offset {last.offset}, but the segment ends before offset {next_offset}"
        yield from _incomplete_entry(self._file)

    def _check_order(self, entry: OffsetEntry) -> Iterator[Mismatch]:
        previous = self._previous
        if previous is not None and (entry.offset <= previous.offset or entry.position <= previous.position):
            yield (
                entry.start,
                f"offset {entry.offset} at position {entry.position} after {previous.offset} at {previous.position}",
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
        earlier_ms = self._largest_ms
        self._largest_ms = max(earlier_ms, header.max_timestamp)
        while (entry := self._next) is not None and entry.offset <= header.last_offset:
            yield from self._check_order(entry)
            if earlier_ms > entry.timestamp_ms:
                yield entry.start, f"time {entry.timestamp_ms} at offset {entry.offset}, after a record of {earlier_ms}"
            elif self._largest_ms < entry.timestamp_ms:
                yield (
                    entry.start,
                    f"time {entry.timestamp_ms} at offset {entry.offset}, where no record is later than "
                    f"{self._largest_ms}",
                )
            self._advance(entry)

    def check_end(self, size: int, next_offset: int) -> Iterator[Mismatch]:
        """Check the remaining entries after the last batch."""
        while (entry := self._next) is not None:
            yield entry.start, f"time {entry.timestamp_ms} at offset {entry.offset}, beyond the end at {next_offset}"
            self._advance(entry)
        yield from _incomplete_entry(self._file)

    def _check_order(self, entry: TimeEntry) -> Iterator[Mismatch]:
        previous = self._previous
        if previous is not None and (entry.timestamp_ms <= previous.timestamp_ms or entry.offset < previous.offset):
            yield (
                entry.start,
                f"time {entry.timestamp_ms} at offset {entry.offset} after "
                f"{previous.timestamp_ms} at {previous.offset}",
            )

    def _advance(self, entry: TimeEntry) -> None:
        self._previous = entry
        self._next = next(self._entries, None)


class TransactionIndexCheck:
    """Each entry must match an abort marker of its producer."""

    def __init__(self, file: EntryFile, base_offset: int) -> None:
        self._file = file
        self._base_offset = base_offset
        self._entries = aborted_entries(file)
        self._next = next(self._entries, None)
        self._previous: AbortedEntry | None = None
        self.last_confirmed: tuple[int, int] | None = None
        """Producer ID and marker offset of the last entry that matches a batch."""

    def check_batch(self, position: int, header: BatchHeader) -> Iterator[Mismatch]:
        """Check the entries up to a batch."""
        while (entry := self._next) is not None and entry.aborted.last_offset <= header.last_offset:
            yield from self._check_fields(entry)
            aborted = entry.aborted
            if aborted.last_offset >= header.base_offset:  # else compaction has removed the marker
                if header.is_control and header.producer_id == aborted.producer_id:
                    self.last_confirmed = (aborted.producer_id, aborted.last_offset)
                else:
                    yield (
                        entry.start,
                        f"producer {aborted.producer_id} aborted at offset {aborted.last_offset}, "
                        "but the batch at that offset is not its marker",
                    )
            self._advance(entry)

    def check_end(self, size: int, next_offset: int) -> Iterator[Mismatch]:
        """Check the remaining entries after the last batch."""
        while (entry := self._next) is not None:
            yield entry.start, f"a marker at offset {entry.aborted.last_offset}, beyond the end at {next_offset}"
            self._advance(entry)
        yield from _incomplete_entry(self._file)

    def _check_fields(self, entry: AbortedEntry) -> Iterator[Mismatch]:
        aborted, previous = entry.aborted, self._previous
        if entry.version != 0:
            yield entry.start, f"version {entry.version}; only version 0 is supported"
        if aborted.last_offset < self._base_offset or aborted.first_offset > aborted.last_offset:
            yield entry.start, f"invalid offsets {aborted.first_offset} to {aborted.last_offset} of a transaction"
        if previous is not None and aborted.last_offset < previous.aborted.last_offset:
            yield entry.start, f"a marker at offset {aborted.last_offset} after {previous.aborted.last_offset}"

    def _advance(self, entry: AbortedEntry) -> None:
        self._previous = entry
        self._next = next(self._entries, None)
