"""Opening the logs of a directory, some at a time, on another thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from twisted.logger import Logger

from kreplica.errors import StorageError
from kreplica.model import ZERO_UUID, TopicPartition
from kreplica.runtime.disk import Disk
from kreplica.storage.checkpoints import PARTITION_METADATA, read_topic_id, write_topic_id
from kreplica.storage.config import LogConfig
from kreplica.storage.damage import is_unreadable
from kreplica.storage.log import Log

_log = Logger()


@dataclass(frozen=True, slots=True)
class LogToOpen:
    """One log as the checkpoints left it; ``open`` may run on any thread."""

    path: str
    key: TopicPartition
    config: LogConfig
    disk: Disk
    wall_clock_ms: Callable[[], int]
    producer_expiration_ms: int
    recovery_point: int = 0
    log_start_offset: int | None = None
    clean_shutdown: bool = False
    sync_failed: bool = False
    keep_damage: bool = False

    def open(self) -> tuple[Log, UUID]:
        """The log and its topic's id (zero where it is not known).

        :raise StorageError: what was durable is damaged.
        :raise OSError: the device fails.
        """
        log = Log.open(
            self.path,
            self.key,
            self.config,
            self.disk,
            self.wall_clock_ms,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
            clean_shutdown=self.clean_shutdown,
            sync_failed=self.sync_failed,
            keep_damage=self.keep_damage,
            producer_expiration_ms=self.producer_expiration_ms,
        )
        return log, self._topic_id()

    def create(self) -> Log:
        """A new, empty log; its directory is there and empty."""
        return Log.create(
            self.path,
            self.key,
            self.config,
            self.disk,
            self.wall_clock_ms,
            producer_expiration_ms=self.producer_expiration_ms,
        )

    def _topic_id(self) -> UUID:
        path = f"{self.path}/{PARTITION_METADATA}"
        try:
            topic_id = read_topic_id(self.disk, path)
        except StorageError as error:
            _log.warn("{error}: the controller will say it again", error=str(error))
            return ZERO_UUID
        if topic_id is None:
            return ZERO_UUID
        if self.sync_failed:
            write_topic_id(self.disk, path, topic_id, sync=False)
        return topic_id


def open_all(work: list[LogToOpen]) -> list[tuple[Log, UUID] | StorageError]:
    """Open them one after the other; an error of one leaves the others alone.

    :raise OSError: the device takes or gives nothing at all.
    """
    opened: list[tuple[Log, UUID] | StorageError] = []
    for one in work:
        try:
            opened.append(one.open())
        except StorageError as error:
            opened.append(error)
        except OSError as error:
            if not is_unreadable(error):
                raise
            opened.append(StorageError(f"{one.path}: {error}"))
    return opened
