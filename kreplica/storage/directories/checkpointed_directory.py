"""Checkpoints of a log directory, and logs that wait for them."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.internet.interfaces import IDelayedCall

from kreplica.model import TopicPartition
from kreplica.runtime import Runtime
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
"""Delay before a checkpoint that logs wait for is retried."""


class CheckpointedDirectory:
    """The part of a ``LogDirectory`` that manages its logs' checkpoints."""

    def __init__(self, path: str, runtime: Runtime) -> None:
        self.path = path
        self.logs: dict[TopicPartition, Log] = {}
        self.failed_logs: dict[TopicPartition, FailedLog] = {}
        """Logs that could not be opened or were taken offline."""
        self.offline: OSError | None = None
        self.high_watermarks: dict[TopicPartition, int] = {}
        """Values checkpointed before this start."""
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        """End of the compacted range, by log."""
        self._runtime = runtime
        self._offsets = OffsetCheckpoints(path, runtime, self._failed)
        self._overstated: dict[Log, None] = {}
        """Logs that reject appends because the recovery point on disk is above their durable records."""
        self._retry: IDelayedCall | None = None
        self._checkpoints = Coalescing(self._write_checkpoints)

    def _failed(self, error: OSError) -> None:
        raise NotImplementedError

    def checkpoint(self) -> None:
        """Request a write of recovery points and log start offsets; requests are coalesced."""
        self._checkpoints.request()

    async def _write_checkpoints(self) -> None:
        await self._write(RECOVERY_POINTS, recovery_points(self.logs, self.failed_logs))
        self._update_overstated()
        await self._write(LOG_START_OFFSETS, start_offsets(self.logs, self.failed_logs))

    def _block_appends_if_overstated(self, log: Log) -> None:
        """Reject appends while the recovery point on disk is above the durable records.

        After a power loss recovery does not check records below that point, so it would accept truncated or torn
        records.
        """
        self._overstated.pop(log, None)
        log.appends_blocked = (
            self._offsets.highest(RECOVERY_POINTS, log.topic_partition) > log.durability.recovery_point
        )
        if log.appends_blocked:
            self._overstated[log] = None

    def _update_overstated(self) -> None:
        for log in list(self._overstated):
            self._block_appends_if_overstated(log)
        if self._overstated and self._retry is None and self.offline is None:
            self._retry = self._runtime.reactor.callLater(_RETRY_SECONDS, self._write_again)

    def _write_again(self) -> None:
        self._retry = None
        if self._overstated:
            self.checkpoint()

    async def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Checkpoint the high watermarks of this directory's partitions."""
        self.high_watermarks.update((key, high_watermarks[key]) for key in self.logs if key in high_watermarks)
        await self._write(HIGH_WATERMARKS, dict(self.high_watermarks))

    async def write_cleaner_offsets(self) -> None:
        """Checkpoint the ends of the compacted ranges."""
        await self._write(CLEANER_OFFSETS, dict(self.cleaner_offsets))

    async def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        if self.offline is None:
            await self._offsets.write(name, offsets)

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
