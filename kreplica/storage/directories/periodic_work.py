"""Periodic work on the logs of a broker: checkpoints, retention, flushing, compaction and scrubbing."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.model import TopicPartition
from kreplica.runtime import Runtime
from kreplica.runtime.disk import is_temporary
from kreplica.runtime.time_slice import TimeSlice
from kreplica.storage.directories.log_cleaner import Cleaner
from kreplica.storage.directories.log_directory import LogDirectory
from kreplica.storage.directories.scrubbing import INTERVAL_SECONDS, Scrubber
from kreplica.storage.log import retention
from kreplica.storage.log.log import Log
from kreplica.storage.log_config import NO_LIMIT, StorageConfig
from kreplica.storage.segments.damage import Damage

_log = Logger()


class PeriodicWork:
    """Periodic work; owned by the log directories.

    :param logs: the usable logs.
    :param flush: requests a sync of a log.
    :ivar high_watermarks: returns the current high watermarks of all partitions.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: StorageConfig,
        directories: Sequence[LogDirectory],
        logs: Mapping[TopicPartition, Log],
        flush: Callable[[TopicPartition], None],
    ) -> None:
        self.high_watermarks: Callable[[], Mapping[TopicPartition, int]] = dict
        self._runtime = runtime
        self._config = config
        self._directories = directories
        self._logs = logs
        self._flush = flush
        self._loops: list[tuple[LoopingCall, Deferred[LoopingCall]]] = []
        self._cleaner = Cleaner(runtime, config)
        self._scrubber = Scrubber(runtime.offload, lambda: logs, config.scrub_bytes_per_second)
        self._last_flush_ms: dict[TopicPartition, int] = {}

    def start(self, high_watermarks: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Start the periodic work.

        :param high_watermarks: returns the current high watermarks of all partitions.
        """
        self.high_watermarks = high_watermarks
        for directory in self._directories:
            directory.checkpoints.start()
        config = self._config
        self._start_loop(config.log_flush_offset_checkpoint_interval_ms, self._checkpoint)
        self._start_loop(config.replica_high_watermark_checkpoint_interval_ms, self._checkpoint_high_watermarks)
        self._start_loop(config.log_retention_check_interval_ms, self.delete_expired)
        self._start_loop(config.log_flush_scheduler_interval_ms, self._flush_due)
        if config.log_cleaner_enable:
            self._start_loop(config.log_cleaner_backoff_ms, self.compact)
        if config.scrub_bytes_per_second:
            self._start_loop(round(INTERVAL_SECONDS * 1000), self._scrubber.step)

    def _start_loop(self, interval_ms: int, work: Callable[[], Coroutine[Deferred[Any], Any, None]]) -> None:
        loop = LoopingCall(lambda: Deferred.fromCoroutine(work()).addErrback(_report))
        loop.clock = cast(IReactorTime, self._runtime.reactor)
        self._loops.append((loop, loop.start(interval_ms / 1000, now=False)))

    async def _checkpoint(self) -> None:
        for directory in self._directories:
            directory.checkpoints.request()

    async def _checkpoint_high_watermarks(self) -> None:
        for directory in self._directories:
            await directory.checkpoints.write_high_watermarks(self.high_watermarks())  # logs may be replaced

    async def delete_expired(self) -> None:
        """Apply retention to every log."""
        high_watermarks = self.high_watermarks()
        now_ms = self._runtime.wall_clock_ms()

        def expire(log: Log) -> None:
            try:
                retention.delete_expired(log, now_ms, high_watermarks.get(log.topic_partition, 0))
            except Damage as damage:
                log.report_damage(damage)
            except OSError as error:
                if is_temporary(error):
                    _log.warn("{log}: expired segments will be removed later: {error}", log=log.path, error=str(error))
                else:
                    log.fail(error)

        await self._for_each_log(expire)

    async def _flush_due(self) -> None:
        """Sync the logs whose ``flush.ms`` has passed."""
        now_ms = self._runtime.wall_clock_ms()

        def flush(log: Log) -> None:
            key = log.topic_partition
            if log.config.flush_ms == NO_LIMIT or log.durability.recovery_point >= log.log_end_offset:
                return
            if now_ms - self._last_flush_ms.setdefault(key, now_ms) >= log.config.flush_ms:
                self._last_flush_ms[key] = now_ms
                self._flush(key)

        await self._for_each_log(flush)

    async def compact(self) -> None:
        """Compact the logs that need it."""
        await self._cleaner.run(self._directories, self.high_watermarks())

    async def _for_each_log(self, work: Callable[[Log], None]) -> None:
        """Call ``work`` for every log, in several reactor iterations."""
        time_slice = TimeSlice(self._runtime.reactor)
        for key in list(self._logs):
            log = self._logs.get(key)
            if log is None:
                continue
            work(log)
            if time_slice.is_over:
                await time_slice.next()

    def forget(self, key: TopicPartition) -> None:
        """Forget a deleted log."""
        self._last_flush_ms.pop(key, None)

    async def stop(self) -> None:
        """Stop all loops, and wait until running work has ended."""
        self._cleaner.stop()
        for loop, stopped in self._loops:
            if loop.running:
                loop.stop()
            await stopped
        self._loops.clear()


def _report(failure: Failure) -> None:
    _log.failure("periodic work on the logs failed; it is retried at its next interval", failure)
