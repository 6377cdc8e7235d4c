"""Opens the logs of a directory in batches, in other threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.errors import StorageError
from kreplica.model import ZERO_UUID, TopicPartition
from kreplica.runtime.disk import Disk
from kreplica.runtime.offload import Offload
from kreplica.storage.directories.closed_logs import ClosedLog, reopen
from kreplica.storage.formats.checkpoints import PARTITION_METADATA, read_topic_id, write_topic_id
from kreplica.storage.log.log import Log
from kreplica.storage.log_config import DAY_MS, LogConfig
from kreplica.storage.recovery.loading import Loading
from kreplica.storage.recovery.opened_log import empty_log
from kreplica.storage.segments.damage import is_unreadable

_log = Logger()

OpenResult = tuple[Log, UUID] | StorageError

_AT_ONCE_MIN, _AT_ONCE_MAX = 16, 128
"""Logs opened per call in another thread, to amortize the thread switch, which costs as much as opening a few logs."""

_CALLS_MIN = 32
"""Minimum number of calls before each call opens more logs, so that all threads stay busy until the end."""


@dataclass(frozen=True, slots=True)
class LogToOpen:
    """A log and its checkpointed state; ``open`` may run in any thread.

    :param recovery_point: end of the durable records according to the checkpoint.
    :param log_start_offset: start offset according to the checkpoint.
    :param clean_shutdown: the log was closed cleanly; only the end of the last segment is scanned.
    :param closed: state of the log when it was closed cleanly, if known; it is opened without reading files.
    :param is_intact: the process was killed but the machine stayed up, so no written data is lost.
    :param sync_failed: rewrite unsynced data, which may be only in memory although the kernel considers it written.
    :param skip_damage: no better copy exists; serve all records except the damaged ones.
    """

    path: str
    key: TopicPartition
    config: LogConfig
    disk: Disk
    wall_clock_ms: Callable[[], int]
    producer_expiration_ms: int = DAY_MS
    recovery_point: int = 0
    log_start_offset: int | None = None
    clean_shutdown: bool = False
    closed: ClosedLog | None = None
    is_intact: bool = False
    sync_failed: bool = False
    skip_damage: bool = False

    def open(self) -> tuple[Log, UUID]:
        """Open the log's directory, creating it if necessary; blocks during recovery.

        :return: the log and its topic ID (zero if unknown).
        :raise StorageError: durable data is damaged.
        :raise OSError: the device failed.
        """
        if self.closed is not None:
            parts = reopen(
                self.closed,
                self.path,
                self.disk,
                log_start_offset=self.log_start_offset or 0,
                producer_expiration_ms=self.producer_expiration_ms,
                now_ms=self.wall_clock_ms(),
            )
            if parts is not None:
                return Log(self.path, self.key, self.config, self.disk, parts), self.closed.topic_id
        parts = Loading(self.path, self.key, self.config, self.disk).run(
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
            clean_shutdown=self.clean_shutdown,
            is_intact=self.is_intact,
            sync_failed=self.sync_failed,
            skip_damage=self.skip_damage,
            producer_expiration_ms=self.producer_expiration_ms,
            now_ms=self.wall_clock_ms(),
        )
        return Log(self.path, self.key, self.config, self.disk, parts), self._topic_id()

    def create(self) -> Log:
        """Return a new, empty log in an existing, empty directory.

        No file is created before the first append, so that a topic with 1,000 partitions can be created quickly.
        """
        parts = empty_log(self.path, self.disk, self.producer_expiration_ms, self.wall_clock_ms())
        return Log(self.path, self.key, self.config, self.disk, parts)

    def _topic_id(self) -> UUID:
        path = f"{self.path}/{PARTITION_METADATA}"
        try:
            topic_id = read_topic_id(self.disk, path)
        except StorageError as error:
            _log.warn("{error}; the controller will send it again", error=str(error))
            return ZERO_UUID
        if topic_id is None:
            return ZERO_UUID
        if self.sync_failed:
            write_topic_id(self.disk, path, topic_id, sync=False)
        return topic_id


def open_all(work: list[LogToOpen]) -> list[OpenResult]:
    """Open logs one after another; an error for one does not affect the others.

    :raise OSError: the device failed.
    """
    opened: list[OpenResult] = []
    for to_open in work:
        try:
            opened.append(to_open.open())
        except StorageError as error:
            opened.append(error)
        except OSError as error:
            if not is_unreadable(error):
                raise
            opened.append(StorageError(f"{to_open.path}: {error}"))
    return opened


async def open_on_threads(
    offload: Offload, work: list[LogToOpen], adopt: Callable[[LogToOpen, OpenResult], None]
) -> Failure | None:
    """Open logs in several threads.

    :param adopt: called for each opened or damaged log, in order.
    :return: the failure of the device, after which some logs were not opened; None if all were.
    """
    at_once = min(max(len(work) // _CALLS_MIN, _AT_ONCE_MIN), _AT_ONCE_MAX)
    batches = [work[first : first + at_once] for first in range(0, len(work), at_once)]
    openings: list[Deferred[Any]] = [offload.run(open_all, batch) for batch in batches]
    first_failure = None
    for batch, (is_opened, result) in zip(batches, await DeferredList(openings, consumeErrors=True), strict=True):
        if is_opened:
            for to_open, opened in zip(batch, result, strict=True):
                adopt(to_open, opened)
        else:
            first_failure = first_failure or result
    return first_failure
