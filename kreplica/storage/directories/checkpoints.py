"""Checkpoints of one log directory, and logs that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from twisted.internet.interfaces import IDelayedCall

from kreplica.model import TopicPartition
from kreplica.runtime import Runtime
from kreplica.runtime.time_slice import TimeSlice
from kreplica.storage.directories.directory_files import OffsetCheckpoints, recovery_points, start_offsets
from kreplica.storage.directories.failed_logs import FailedLog
from kreplica.storage.durability.coalescing import Coalescing
from kreplica.storage.formats.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from kreplica.storage.log.log import Log

_RETRY_SECONDS = 1.0
"""Delay before retrying a checkpoint that logs are waiting for."""


class Checkpoints:
    """Checkpoint files of one log directory; a log for which they contain too high an offset waits for the next write.

    :param logs: the directory's usable logs.
    :param failed_logs: the directory's other logs.
    :param on_failure: called if the device fails.
    :ivar high_watermarks: the last checkpointed values.
    :ivar cleaner_offsets: end of the compacted range, by log.
    """

    def __init__(
        self,
        path: str,
        runtime: Runtime,
        logs: Mapping[TopicPartition, Log],
        failed_logs: Mapping[TopicPartition, FailedLog],
        on_failure: Callable[[OSError], None],
    ) -> None:
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self._logs = logs
        self._failed_logs = failed_logs
        self._runtime = runtime
        self._offsets = OffsetCheckpoints(path, runtime, on_failure)
        self._overstated: dict[Log, None] = {}
        """Logs that reject appends because a checkpoint on disk contains too high an offset for them."""
        self._retry: IDelayedCall | None = None
        self._writes = Coalescing(self._write_logs)
        self._ended = False
        self._recovery_points_found: dict[TopicPartition, int] = {}
        self.when_idle = self._writes.when_idle

    def load(self, found: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Read all checkpoints, and return the recovery points and log start offsets.

        :param found: keys of the directory's logs, which all checkpoints share.
        """
        known = {key: key for key in found}
        self._recovery_points_found = self._offsets.read(RECOVERY_POINTS, known)
        self.high_watermarks = self._offsets.read(HIGH_WATERMARKS, known)
        self.cleaner_offsets = self._offsets.read(CLEANER_OFFSETS, known)
        return self._recovery_points_found, self._offsets.read(LOG_START_OFFSETS, known)

    def limit_high_watermarks(self) -> None:
        """Limit the high watermarks to the recovery points found at startup; call it before ``start``.

        A power loss may undo a truncation and the appends after it; the truncated records were never committed.
        """
        recovery_points = self._recovery_points_found
        self.high_watermarks = {key: min(end, recovery_points.get(key, 0)) for key, end in self.high_watermarks.items()}

    def start(self) -> None:
        """Start writing; call it after the results of recovery have been reported."""
        self._recovery_points_found = {}
        if self._overstated:
            self.request()

    def request(self) -> None:
        """Request a write of recovery points and log start offsets; requests are coalesced."""
        self._writes.request()

    async def _write_logs(self) -> None:
        await self._write(RECOVERY_POINTS, recovery_points(self._logs, self._failed_logs))
        await self._write(LOG_START_OFFSETS, start_offsets(self._logs, self._failed_logs))
        if self._overstated:
            await self._write(HIGH_WATERMARKS, dict(self.high_watermarks))
        self._update_overstated()

    def block_appends_if_overstated(self, log: Log) -> bool:
        """Reject appends, and return True, while a checkpoint on disk contains too high an offset for the log.

        * Recovery point above the durable records: after a power loss, recovery would not check the records below it.
        * High watermark above the log end, or log start offset above the log's own: it was written for a deleted log
          of the same name, or before a truncation. After a restart, records appended since then would be treated as
          committed or deleted.
        """
        self._overstated.pop(log, None)
        key, end_offset = log.topic_partition, log.log_end_offset
        if self.high_watermarks.get(key, 0) > end_offset:
            self.high_watermarks[key] = end_offset
        log.appends_blocked = (
            self._offsets.highest(RECOVERY_POINTS, key) > log.durability.recovery_point
            or self._offsets.highest(LOG_START_OFFSETS, key) > log.log_start_offset
            or self._offsets.highest(HIGH_WATERMARKS, key) > end_offset
        )
        if log.appends_blocked:
            self._overstated[log] = None
        return log.appends_blocked

    def _update_overstated(self) -> None:
        for log in list(self._overstated):
            self.block_appends_if_overstated(log)
        if self._overstated and self._retry is None and not self._ended:
            self._retry = self._runtime.reactor.callLater(_RETRY_SECONDS, self._write_again)

    def _write_again(self) -> None:
        self._retry = None
        if self._overstated:
            self.request()

    async def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Checkpoint the high watermarks of this directory's partitions."""
        time_slice = TimeSlice(self._runtime.reactor)
        for key in list(self._logs):
            high_watermark = high_watermarks.get(key) if key in self._logs else None  # may have been deleted
            if high_watermark is not None:
                self.high_watermarks[key] = high_watermark
            if time_slice.is_over:
                await time_slice.next()
        await self._write(HIGH_WATERMARKS, dict(self.high_watermarks))

    async def write_cleaner_offsets(self) -> None:
        """Checkpoint the ends of the compacted ranges."""
        await self._write(CLEANER_OFFSETS, dict(self.cleaner_offsets))

    async def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        if not self._ended:
            await self._offsets.write(name, offsets)

    async def write_all(self) -> None:
        """Write all checkpoints now."""
        await self._write_logs()
        await self._write(HIGH_WATERMARKS, dict(self.high_watermarks))
        await self.write_cleaner_offsets()

    def forget(self, log: Log) -> None:
        """Forget a log that is no longer in use."""
        self._overstated.pop(log, None)

    def cancel(self) -> None:
        """Cancel a pending retry."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def end(self) -> None:
        """Write nothing more, because the directory is offline."""
        self._ended = True
        self._overstated.clear()
