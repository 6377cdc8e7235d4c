"""File with the number and checksum of the entries in each ``.txnindex`` of a log.

Kafka's format has no checksum, so a truncated or missing file would expose aborted records to read_committed consumers.
A segment without a row was closed by another version or by Apache Kafka; the scrubber checks it against its batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from twisted.logger import Logger

from kreplica.errors import StorageError
from kreplica.runtime.disk import Disk
from kreplica.storage.formats.checkpoints import parse_checkpoint, render_checkpoint
from kreplica.storage.segments.segment import Segment

FILE_NAME = "kreplica-aborted-transactions"

_log = Logger()

Digest = tuple[int, int]

_NO_ROWS: Mapping[int, Digest] = MappingProxyType({})


class AbortedCheckpoint:
    """Rows of one log by base offset of the segment; segments without aborted transactions have no row."""

    __slots__ = ("_directory", "_disk", "_rows", "_written")

    def __init__(self, directory: str, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self._rows: Mapping[int, Digest] = _NO_ROWS
        self._written: Mapping[int, Digest] = _NO_ROWS

    @property
    def path(self) -> str:
        """Path of the file."""
        return f"{self._directory}/{FILE_NAME}"

    def load(self) -> None:
        """Read the file; a damaged one is treated as empty."""
        try:
            rows = {int(row[0]): (int(row[1]), int(row[2])) for row in self._read()}
        except (StorageError, ValueError) as error:
            _log.warn("{path} is ignored: {error}", path=self.path, error=str(error))
            rows = {}
        self._rows = rows
        self._written = dict(rows)

    def _read(self) -> Iterator[list[str]]:
        try:
            data = self._disk.read_file(self.path)
        except FileNotFoundError:
            return iter(())
        return parse_checkpoint(self.path, data, fields=3)

    def has_row(self, segment: Segment) -> bool:
        """True if the file has a row for the segment."""
        return segment.base_offset in self._rows

    def matches(self, segment: Segment) -> bool:
        """True if the segment's file matches its row."""
        return segment.aborted.digest() == self._rows.get(segment.base_offset, (0, 0))

    def update(self, segment: Segment) -> None:
        """Update the row from the segment's file."""
        digest = segment.aborted.digest()
        rows = {base: known for base, known in self._rows.items() if base != segment.base_offset}
        self._rows = {**rows, segment.base_offset: digest} if digest[0] else rows or _NO_ROWS

    def remove_from(self, base_offset: int) -> None:
        """Remove the rows of a segment that is active again, and of all later ones."""
        self._rows = {base: digest for base, digest in self._rows.items() if base < base_offset} or _NO_ROWS

    @property
    def paths(self) -> tuple[str, ...]:
        """Path of the file to sync, if it exists."""
        return (self.path,) if self._written else ()

    def write(self, segments: Iterable[Segment]) -> None:
        """Write the rows of existing segments without a sync.

        :raise OSError: the write failed.
        """
        bases = {segment.base_offset for segment in segments}
        self._rows = {base: digest for base, digest in self._rows.items() if base in bases} or _NO_ROWS
        if self._rows != self._written:
            rows = (f"{base} {count} {checksum}" for base, (count, checksum) in sorted(self._rows.items()))
            self._disk.write_file(self.path, render_checkpoint(rows), sync=False)
            self._written = self._rows
