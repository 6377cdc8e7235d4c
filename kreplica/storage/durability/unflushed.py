"""Unsynced files of a log, and their sync."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass

from kreplica.runtime.disk import Disk, File, is_out_of_descriptors
from kreplica.storage.durability.failed_syncs import write_marker
from kreplica.storage.segments.segment import LOG_SUFFIX, SUFFIXES, Segment


@dataclass(frozen=True, slots=True)
class Unsynced:
    """Files with appends up to ``end_offset``. Call ``sync`` in any thread, then ``Log.mark_synced``.

    :param paths: other files to sync (indexes, snapshots, leader epochs); missing ones are ignored.
    :param generation: log generation; the result is ignored if the log has been truncated since.
    """

    files: tuple[File, ...]
    paths: tuple[str, ...]
    directory: str
    end_offset: int
    generation: int
    disk: Disk

    def sync(self) -> None:
        """Sync all files; blocks.

        :raise OSError: if no file descriptor was free, the sync may be retried. After any other error it must not be,
            because the state of the files is unknown; the directory is marked for the next start.
        """
        try:
            self._sync()
        except OSError as error:
            if not is_out_of_descriptors(error):
                write_marker(self.disk, posixpath.dirname(self.directory), error)
            raise

    def _sync(self) -> None:
        for file in self.files:
            file.sync()
        for path in self.paths:
            try:
                small_file = self.disk.open(path)
            except FileNotFoundError:
                continue
            try:
                small_file.sync()
            finally:
                small_file.close()
        if self.paths:
            self._sync_names()

    def _sync_names(self) -> None:
        """Sync the directory entries of the files and of the log directory."""
        try:
            self.disk.sync_directory(self.directory)
        except FileNotFoundError:
            return  # deleted in the meantime
        self.disk.sync_directory(posixpath.dirname(self.directory))


def index_paths(segments: Iterable[Segment]) -> list[str]:
    """Write new index entries of these segments and return the paths of all files except the batches.

    :raise OSError: the device failed.
    """
    paths: list[str] = []
    for segment in segments:
        segment.write_indexes()
        paths.extend(segment.path(suffix) for suffix in SUFFIXES if suffix != LOG_SUFFIX)
    return paths
