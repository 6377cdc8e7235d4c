"""Choice of the log directory for a new log: the one with the fewest logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from uuid import UUID

from kreplica.errors import StorageError
from kreplica.model import TopicPartition
from kreplica.storage.directories.log_directory import LogDirectory

NewLogs = list[tuple[TopicPartition, UUID]]


class DirectoryChoice:
    """Chooses among the directories of one broker for logs that are about to be created."""

    def __init__(self, directories: Sequence[LogDirectory]) -> None:
        self._directories = directories
        self._chosen: dict[TopicPartition, LogDirectory] = {}

    def plan(self, new_logs: Iterable[tuple[TopicPartition, UUID]]) -> dict[LogDirectory, NewLogs]:
        """Choose a directory for each log, which ``take`` then returns; empty if all directories are offline."""
        chosen: dict[LogDirectory, NewLogs] = {}
        for key, topic_id in new_logs:
            directory = self._smallest(chosen)
            if directory is not None:
                chosen.setdefault(directory, []).append((key, topic_id))
                self._chosen[key] = directory
        return chosen

    def take(self, key: TopicPartition) -> LogDirectory:
        """Return the directory planned for a log that is created now; without a plan, the one with the fewest logs.

        :raise StorageError: every directory is offline.
        """
        directory = self._chosen.pop(key, None) or self._smallest()
        if directory is None:
            raise StorageError("all log directories are offline")
        return directory

    def _smallest(self, chosen: Mapping[LogDirectory, Sequence[object]] = MappingProxyType({})) -> LogDirectory | None:
        """Return the directory with the fewest logs, including those about to be created."""
        online = [directory for directory in self._directories if directory.offline is None]
        return min(online, key=lambda each: len(each.logs) + len(chosen.get(each, ())), default=None)
