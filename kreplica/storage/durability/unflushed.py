"""What of a log is written but may not survive a power loss, and how it is made to."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass

from kreplica.runtime.disk import Disk, File, is_out_of_descriptors
from kreplica.storage.durability.failed_syncs import leave_mark
from kreplica.storage.segments.segment import LOG_SUFFIX, SUFFIXES, Segment


@dataclass(frozen=True, slots=True)
class Unsynced:
    """Files that hold what was appended up to ``end_offset``; ``sync`` runs on any thread, then ``Log.mark_synced``.

    :param paths: small files (indexes, snapshots, leader epochs) that belong to it; those that are gone are fine.
    :param generation: a truncation since then makes the whole thing void.
    """

    files: tuple[File, ...]
    paths: tuple[str, ...]
    directory: str
    end_offset: int
    generation: int
    disk: Disk

    def sync(self) -> None:
        """Make it durable; blocks.

        :raise OSError: never to be tried again, since nothing is known of what was written: the directory is lost,
            and a mark in it tells the next start.  Only where a file could not be opened no sync has failed.
        """
        try:
            self._sync()
        except OSError as error:
            if not is_out_of_descriptors(error):
                leave_mark(self.disk, posixpath.dirname(self.directory), error)
            raise

    def _sync(self) -> None:
        for file in self.files:
            file.sync()
        for path in self.paths:
            try:
                small = self.disk.open(path)
            except FileNotFoundError:
                continue
            try:
                small.sync()
            finally:
                small.close()
        if self.paths:
            self._sync_names()

    def _sync_names(self) -> None:
        """The names of the files, and that of the log's directory."""
        try:
            self.disk.sync_directory(self.directory)
        except FileNotFoundError:
            return  # deleted meanwhile
        self.disk.sync_directory(posixpath.dirname(self.directory))


def index_paths(segments: Iterable[Segment]) -> list[str]:
    """The files beside the batches of some segments, brought up to date first.

    :raise OSError: the device fails.
    """
    paths: list[str] = []
    for segment in segments:
        segment.write_indexes()
        paths.extend(segment.path(suffix) for suffix in SUFFIXES if suffix != LOG_SUFFIX)
    return paths
