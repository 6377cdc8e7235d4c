"""Log cleaner: runs one compaction at a time in another thread; overdue logs first, then by dirty ratio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kreplica.errors import StorageError
from kreplica.model import TopicPartition
from kreplica.runtime import Runtime
from kreplica.runtime.disk import is_out_of_descriptors
from kreplica.runtime.time_slice import TimeSlice
from kreplica.storage.compaction.compaction import Compaction, CompactionPlan, Source, plan_compaction
from kreplica.storage.directories.log_directory import LogDirectory
from kreplica.storage.log.log import Log
from kreplica.storage.log.segment_replacement import replace_segments
from kreplica.storage.log_config import StorageConfig
from kreplica.storage.segments.damage import Damage

_log = Logger()


class Cleaner:
    """Log cleaner of a broker; the log directories call ``run`` periodically.

    A log with a damaged batch is skipped until it is opened again.
    """

    def __init__(self, runtime: Runtime, config: StorageConfig) -> None:
        self._runtime = runtime
        self._config = config
        self._stopped = False
        self._uncleanable: dict[TopicPartition, tuple[Log, StorageError]] = {}
        """Logs that cannot be compacted, with the reason."""

    def stop(self) -> None:
        """Stop after the current group of segments."""
        self._stopped = True

    async def run(self, directories: Iterable[LogDirectory], high_watermarks: Mapping[TopicPartition, int]) -> int:
        """Compact the logs that need it, one after another.

        :param high_watermarks: current high watermarks of all partitions.
        :return: number of logs compacted.
        """
        done = 0
        for directory in directories:
            for log, plan in await self._plans(directory, high_watermarks):
                if self._stopped or directory.offline is not None:
                    break
                if log.owner is directory:
                    await self._compact(directory, log, plan)
                    done += 1
        return done

    async def _plans(
        self, directory: LogDirectory, high_watermarks: Mapping[TopicPartition, int]
    ) -> list[tuple[Log, CompactionPlan]]:
        now_ms = self._runtime.wall_clock_ms()
        plans = []
        time_slice = TimeSlice(self._runtime.reactor)
        for key in list(directory.logs):  # a damaged log goes offline
            if time_slice.is_over:
                await time_slice.next()
            log = directory.logs.get(key)
            if log is not None and log.config.compacted and not self._is_uncleanable(key, log):
                cleaned = directory.checkpoints.cleaner_offsets.get(key, 0)
                try:
                    plan = plan_compaction(log, cleaned, high_watermarks.get(key, 0), now_ms)
                except (StorageError, OSError) as error:
                    self._handle_error(log, error)
                    continue
                if plan is not None:
                    plans.append((log, plan))
        plans.sort(key=lambda item: (item[1].overdue, item[1].dirty_ratio), reverse=True)
        return plans

    def _is_uncleanable(self, key: TopicPartition, log: Log) -> bool:
        entry = self._uncleanable.get(key)
        return entry is not None and entry[0] is log

    async def _compact(self, directory: LogDirectory, log: Log, plan: CompactionPlan) -> None:
        try:
            if await self._run_pass(log, plan, directory):
                await directory.checkpoints.write_cleaner_offsets()
        except (StorageError, OSError) as error:
            self._handle_error(log, error)

    def _handle_error(self, log: Log, error: StorageError | OSError) -> None:
        key = log.topic_partition
        if isinstance(error, StorageError):
            self._uncleanable[key] = log, error
            _log.error("{log} is no longer compacted: {error}", log=str(key), error=str(error))
            if isinstance(error, Damage):
                log.report_damage(error)
        elif is_out_of_descriptors(error):
            _log.warn("{log}: compaction failed and will be retried: {error}", log=str(key), error=str(error))
        else:
            log.fail(error)

    async def _run_pass(self, log: Log, plan: CompactionPlan, directory: LogDirectory) -> bool:
        runtime = self._runtime
        compaction = Compaction(
            plan, runtime.disk, runtime.wall_clock_ms(), self._config.log_cleaner_dedupe_buffer_size
        )
        await self._pause(await runtime.offload.run(compaction.read_keys))
        size_before = 0
        for group in compaction.groups():
            if self._stopped or not await self._replace(log, compaction, group):
                return False
            size = sum(source.size for source in group)
            size_before += size
            await self._pause(size)
        size_after = sum(segment.size for segment in log.segments.closed if segment.base_offset < compaction.end_offset)
        directory.checkpoints.cleaner_offsets[log.topic_partition] = compaction.end_offset
        _log.info(
            "{log}: compacted up to offset {end}, from {before} to {after} bytes",
            log=str(log.topic_partition),
            end=compaction.end_offset,
            before=size_before,
            after=size_after,
        )
        return True

    async def _replace(self, log: Log, compaction: Compaction, group: list[Source]) -> bool:
        """Write one group and install it, unless the log was truncated or deleted meanwhile."""
        target = await self._runtime.offload.run(compaction.write_group, group)
        if log.failure is None and replace_segments(log, [source.segment for source in group], target):
            return True
        await self._runtime.offload.run(compaction.discard, target)
        return False

    async def _pause(self, read_bytes: int) -> None:
        """Enforce ``log.cleaner.io.max.bytes.per.second``."""
        seconds = read_bytes / self._config.log_cleaner_io_max_bytes_per_second
        if seconds > 0.001:
            pause: Deferred[None] = Deferred()
            self._runtime.reactor.callLater(seconds, pause.callback, None)
            await pause
