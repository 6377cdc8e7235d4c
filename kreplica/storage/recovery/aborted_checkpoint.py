"""Number and checksum of the entries in each ``.txnindex`` of a log, in a small file beside them.

Kafka's format has no checksum and its files have no expected length: a file that was cut short, or is missing, would
show readers of committed records what was aborted.  A segment without a row here is one that another version or Apache
Kafka closed; the scrubber compares that one with its batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from twisted.logger import Logger

from kreplica.errors import StorageError
from kreplica.runtime.disk import Disk
from kreplica.storage.formats.checkpoints import parse_checkpoint, render_checkpoint
from kreplica.storage.segments.segment import Segment

FILE_NAME = "kreplica-aborted-transactions"

_log = Logger()

Digest = tuple[int, int]


class AbortedCheckpoint:
    """The rows of one log, by the base offset of the segment; segments without aborted transactions have none."""

    def __init__(self, directory: str, disk: Disk) -> None:
        self.path = f"{directory}/{FILE_NAME}"
        self._disk = disk
        self._rows: dict[int, Digest] = {}
        self._written: dict[int, Digest] = {}

    def load(self) -> None:
        """Read the file; a damaged one says nothing about any segment."""
        try:
            rows = {int(row[0]): (int(row[1]), int(row[2])) for row in self._read()}
        except (StorageError, ValueError) as error:
            _log.warn("{path} is not used: {error}", path=self.path, error=str(error))
            rows = {}
        self._rows = rows
        self._written = dict(rows)

    def _read(self) -> Iterator[list[str]]:
        try:
            data = self._disk.read_file(self.path)
        except FileNotFoundError:
            return iter(())
        return parse_checkpoint(self.path, data, fields=3)

    def knows(self, segment: Segment) -> bool:
        """True if the file says how many entries the segment has."""
        return segment.base_offset in self._rows

    def agrees(self, segment: Segment) -> bool:
        """True if the segment's file holds what it held when its row was written."""
        return segment.aborted.digest() == self._rows.get(segment.base_offset, (0, 0))

    def note(self, segment: Segment) -> None:
        """Take over what the segment's file holds now."""
        digest = segment.aborted.digest()
        if digest[0]:
            self._rows[segment.base_offset] = digest
        else:
            self._rows.pop(segment.base_offset, None)

    def forget_from(self, base_offset: int) -> None:
        """Drop the rows of a segment that is appended to again, and of those after it."""
        self._rows = {base: digest for base, digest in self._rows.items() if base < base_offset}

    @property
    def paths(self) -> tuple[str, ...]:
        """The file, if there is one to sync."""
        return (self.path,) if self._written else ()

    def write(self, segments: Iterable[Segment]) -> None:
        """Bring the file up to date, without segments that are gone; not synced.

        :raise OSError: the device fails, or is full.
        """
        bases = {segment.base_offset for segment in segments}
        self._rows = {base: digest for base, digest in self._rows.items() if base in bases}
        if self._rows != self._written:
            rows = (f"{base} {count} {checksum}" for base, (count, checksum) in sorted(self._rows.items()))
            self._disk.write_file(self.path, render_checkpoint(rows), sync=False)
            self._written = dict(self._rows)
