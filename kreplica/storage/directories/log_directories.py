"""All log directories of a broker, and what goes on by itself: checkpoints, retention, flushing, compaction."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast
from uuid import UUID

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.errors import StorageError
from kreplica.model import ZERO_UUID, TopicPartition
from kreplica.runtime import Runtime
from kreplica.runtime.disk import is_passing
from kreplica.runtime.turns import Turns
from kreplica.storage.directories.cleaner import Cleaner
from kreplica.storage.directories.log_directory import LogDirectory
from kreplica.storage.directories.scrubbing import INTERVAL_SECONDS, Scrubber
from kreplica.storage.log.log import Log
from kreplica.storage.log.readable_log import ReadableLog
from kreplica.storage.log_config import NO_LIMIT, LogConfig, StorageConfig
from kreplica.storage.segments.damage import WHOLE_SEGMENT, Damage, is_unreadable
from kreplica.storage.segments.open_segments import OpenSegments

_log = Logger()


class LogDirectories:
    """Opened at the broker's start, before it takes part in anything; closed as the last thing of an orderly stop.

    A directory whose device fails goes offline with its logs; the others carry on.

    :param paths: ``log.dirs``.
    """

    def __init__(self, runtime: Runtime, paths: Sequence[str], config: StorageConfig | None = None) -> None:
        self.config = config or StorageConfig()
        self._runtime = runtime
        self._offline_listeners: list[Callable[[list[TopicPartition]], None]] = []
        self._synced_listeners: list[Callable[[list[TopicPartition]], None]] = []
        self._damage_listeners: list[Callable[[Log, Damage], None]] = []
        open_segments = OpenSegments(self.config.open_segments_max)
        self.directories = [
            LogDirectory(
                path,
                runtime,
                self.config,
                open_segments,
                went_offline=self._went_offline,
                synced=self._synced,
                damaged=self._damaged,
            )
            for path in paths
        ]
        self._logs: dict[TopicPartition, Log] = {}
        self._made_in: dict[TopicPartition, LogDirectory] = {}
        """Where directories were made for logs that are about to be created."""
        self._loops: list[tuple[LoopingCall, Deferred[LoopingCall]]] = []
        self._high_watermarks: Callable[[], Mapping[TopicPartition, int]] = dict
        self._cleaner = Cleaner(runtime, self.config)
        self._scrubber = Scrubber(runtime.offload, lambda: self._logs, self.config.scrub_bytes_per_second)
        self._last_flush_ms: dict[TopicPartition, int] = {}

    def lock(self) -> None:
        """Take all directories for this process, before anything else is done in this broker's name.

        A directory whose device fails is offline, as long as there is another.

        :raise StorageError: another process has one of them, or the devices of all fail; none is taken then.
        :raise OSError: nothing is said against a device, but something has run out (descriptors, room).
        """
        try:
            for directory in self.directories:
                try:
                    directory.lock()
                except OSError as error:
                    self._begin_without(directory, error)
            self._check_some_are_left()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Let go of directories that were locked, or opened and not used: nothing is closed, nothing marked."""
        for directory in self.directories:
            directory.abandon()

    async def open(
        self,
        cluster_id: str,
        broker_id: int,
        config_of: Callable[[str], LogConfig],
        is_intact: Callable[[str], bool] = lambda path: False,
    ) -> None:
        """Open all directories and their logs.

        :param config_of: the settings of a topic's logs.
        :param is_intact: True for a directory that holds everything that earlier processes had written.
        A directory whose device fails is offline, as long as there is another.

        :raise StorageError: a directory is in use, belongs to another cluster or broker, or a log is in two of them;
            or the devices of all fail.
        :raise OSError: nothing is said against a device, but something has run out (descriptors, room).
        """
        try:
            for directory in self.directories:
                if directory.offline is not None:
                    continue
                try:
                    await directory.open(cluster_id, broker_id, config_of, is_intact)
                except OSError as error:
                    self._begin_without(directory, error)
                self._take_over(directory)
            self._check_some_are_left()
        except BaseException:
            self.abandon()
            raise

    def _begin_without(self, directory: LogDirectory, error: OSError) -> None:
        if is_passing(error):
            raise error
        directory.begin_offline(error)

    def _check_some_are_left(self) -> None:
        if all(directory.offline is not None for directory in self.directories):
            why = "; ".join(f"{directory.path}: {directory.offline}" for directory in self.directories)
            raise StorageError(f"no log directory can be used: {why}")

    @property
    def may_hold_more(self) -> bool:
        """Whether there may be logs that nobody has seen, in a directory that is offline from the start."""
        return any(directory.is_unseen for directory in self.directories)

    def _take_over(self, directory: LogDirectory) -> None:
        for key, log in directory.logs.items():
            if key in self._logs:
                raise StorageError(f"{key} is in two log directories: {self._logs[key].path} and {log.path}")
            self._logs[key] = log

    # --- logs ---

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """The logs that can be used, by partition."""
        return self._logs

    def create(self, key: TopicPartition, topic_id: UUID, config: LogConfig) -> Log:
        """Make a new, empty log in the directory that has the fewest.

        :param topic_id: zero where the cluster has none.
        :raise StorageError: it is on disk but could not be opened, or every directory is offline.
        :raise OSError: the device fails.
        """
        for directory in self.directories:
            if key in directory.failed_logs:
                raise directory.failed_logs[key].error
            if key in directory.logs:
                state = "is there already" if directory.offline is None else "is offline with its directory"
                raise StorageError(f"{key} in {directory.path} {state}")
        chosen = self._made_in.pop(key, None) or self._emptiest()
        if chosen is None:
            raise StorageError("all log directories are offline")
        log = self._logs[key] = chosen.create(key, topic_id, config)
        return log

    async def make(self, wanted: Iterable[tuple[TopicPartition, UUID]]) -> None:
        """Have the directories of many logs made, off the reactor's thread; ``create`` follows, and tells errors."""
        chosen: dict[LogDirectory, list[tuple[TopicPartition, UUID]]] = {}
        for key, topic_id in wanted:
            directory = self._emptiest(chosen)
            if directory is not None and key not in self._logs and self.failure(key) is None:
                chosen.setdefault(directory, []).append((key, topic_id))
                self._made_in[key] = directory
        for directory, some in chosen.items():
            await directory.make(some)

    def _emptiest(self, chosen: Mapping[LogDirectory, Sequence[object]] = MappingProxyType({})) -> LogDirectory | None:
        """The directory with the fewest logs, those counted that are about to be made."""
        online = [directory for directory in self.directories if directory.offline is None]
        return min(online, key=lambda each: len(each.logs) + len(chosen.get(each, ())), default=None)

    async def delete(self, key: TopicPartition) -> None:
        """Take a log away; a partition that has none is fine.

        :raise OSError: the device fails.
        """
        directory = self._directory_of(key) or self._failed_in(key)
        if directory is not None:
            self._logs.pop(key, None)
            self._last_flush_ms.pop(key, None)
            directory.delete(key)

    def topic_id(self, key: TopicPartition) -> UUID | None:
        """The id of the topic that a log was made for; None where that is not known."""
        directory = self._directory_of(key)
        topic_id = directory.topic_ids.get(key, ZERO_UUID) if directory is not None else ZERO_UUID
        return topic_id if topic_id != ZERO_UUID else None

    def high_watermark(self, key: TopicPartition) -> int:
        """The last high watermark that was remembered; 0 where none was."""
        directory = self._directory_of(key)
        return directory.high_watermarks.get(key, 0) if directory is not None else 0

    def forget_high_watermarks(self) -> None:
        """Logs may have lost something: beyond what was surely synced they may hold what was never committed."""
        for directory in self.directories:
            directory.forget_high_watermarks()

    def flush(self, key: TopicPartition) -> None:
        """Have a log made durable soon (group commit), where it can be used; ``on_synced`` tells."""
        directory, opened = self._directory_of(key), self._logs.get(key)
        if directory is not None and opened is not None:
            directory.flush(opened)

    def failure(self, key: TopicPartition) -> StorageError | None:
        """Why a log that is on disk cannot be used; None where nothing is known against it."""
        directory = self._failed_in(key)
        return directory.failed_logs[key].error if directory is not None else None

    def failed_logs(self) -> list[TopicPartition]:
        """The partitions whose logs are on disk and cannot be used."""
        return [key for directory in self.directories for key in directory.failed_logs]

    def _failed_in(self, key: TopicPartition) -> LogDirectory | None:
        for directory in self.directories:
            if key in directory.failed_logs:
                return directory
        return None

    def take_out(self, key: TopicPartition, error: StorageError) -> None:
        """Use a log no more, for what is wrong with it; ``on_offline`` tells."""
        directory = self._directory_of(key)
        if directory is not None and self._logs.pop(key, None) is not None:
            directory.take_out(key, error)
            self._tell_offline([key])

    async def put_back(self, key: TopicPartition) -> bool:
        """Use a log again as it is: there is no better copy.

        :return: whether it can be.
        """
        directory = self._failed_in(key)
        log = await directory.put_back(key) if directory is not None else None
        if log is not None:
            self._logs[key] = log
        return log is not None

    async def begin_anew(self, key: TopicPartition) -> bool:
        """Set what is damaged of a log aside, and use what is left.

        :return: whether it can be used again.
        """
        directory = self._failed_in(key)
        log = await directory.begin_anew(key) if directory is not None else None
        if log is not None:
            self._logs[key] = log
        return log is not None

    def unreadable(self, path: str, error: OSError) -> None:
        """A read of a segment's file failed; what is no error of the device changes nothing."""
        if not is_unreadable(error):
            return
        directory, _, name = path.rpartition("/")
        for log in self._logs.values():
            if log.path == directory:
                log.found_damage(Damage(path, int(name.split(".")[0]), WHOLE_SEGMENT, str(error)))
                return

    def _directory_of(self, key: TopicPartition) -> LogDirectory | None:
        for directory in self.directories:
            if key in directory.logs:
                return directory
        return None

    @property
    def clean_broker_epoch(self) -> int | None:
        """The broker epoch that the last orderly stop noted; None where any directory was not closed in order."""
        epochs = [directory.clean_broker_epoch for directory in self.directories]
        known = [epoch for epoch in epochs if epoch is not None]
        return min(known) if known and len(known) == len(epochs) else None

    # --- who is told what ---

    def on_offline(self, listener: Callable[[list[TopicPartition]], None]) -> None:
        """Call it with the partitions of a directory whose device failed."""
        self._offline_listeners.append(listener)

    def on_synced(self, listener: Callable[[list[TopicPartition]], None]) -> None:
        """Call it with the partitions whose recovery point has moved up."""
        self._synced_listeners.append(listener)

    def on_damage(self, listener: Callable[[Log, Damage], None]) -> None:
        """Call it with a log in which a batch is not what was written, each time that is seen.

        It may have it taken out, or kept as it is.
        """
        self._damage_listeners.append(listener)

    def _damaged(self, log: ReadableLog, damage: Damage) -> None:
        found = self._logs.get(log.topic_partition)
        if found is log:
            for listener in self._damage_listeners:
                listener(found, damage)

    def _went_offline(self, directory: LogDirectory) -> None:
        keys = list(directory.logs)
        for key in keys:
            self._logs.pop(key, None)
        self._tell_offline(keys)

    def _tell_offline(self, keys: list[TopicPartition]) -> None:
        for listener in self._offline_listeners:
            listener(keys)

    def _synced(self, logs: list[Log]) -> None:
        keys = [log.topic_partition for log in logs]
        for listener in self._synced_listeners:
            listener(keys)

    # --- what goes on by itself ---

    def start(self, high_watermarks: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Begin the periodic work.

        :param high_watermarks: of all partitions now.
        """
        self._high_watermarks = high_watermarks
        for directory in self.directories:
            directory.start()
        config = self.config
        self._every(config.log_flush_offset_checkpoint_interval_ms, self._checkpoint)
        self._every(config.replica_high_watermark_checkpoint_interval_ms, self._checkpoint_high_watermarks)
        self._every(config.log_retention_check_interval_ms, self.delete_expired)
        self._every(config.log_flush_scheduler_interval_ms, self._flush_due)
        if config.log_cleaner_enable:
            self._every(config.log_cleaner_backoff_ms, self.compact)
        if config.scrub_bytes_per_second:
            self._every(round(INTERVAL_SECONDS * 1000), self._scrubber.step)

    def _every(self, interval_ms: int, work: Callable[[], Coroutine[Deferred[Any], Any, None]]) -> None:
        loop = LoopingCall(lambda: Deferred.fromCoroutine(work()).addErrback(_report))
        loop.clock = cast(IReactorTime, self._runtime.reactor)
        self._loops.append((loop, loop.start(interval_ms / 1000, now=False)))

    async def _checkpoint(self) -> None:
        for directory in self.directories:
            directory.checkpoint()

    async def _checkpoint_high_watermarks(self) -> None:
        high_watermarks = self._high_watermarks()
        for directory in self.directories:
            await directory.write_high_watermarks(high_watermarks)

    async def delete_expired(self) -> None:
        """Remove what retention allows, in every log."""
        high_watermarks = self._high_watermarks()
        now_ms = self._runtime.wall_clock_ms()

        def expire(log: Log) -> None:
            try:
                log.delete_expired(now_ms, high_watermarks.get(log.topic_partition, 0))
            except OSError as error:
                if is_passing(error):
                    _log.warn("{log}: what has expired stays for now: {error}", log=log.path, error=str(error))
                else:
                    log.fail(error)

        await self._for_each_log(expire)

    async def _flush_due(self) -> None:
        """Sync the logs whose ``flush.ms`` has passed."""
        now_ms = self._runtime.wall_clock_ms()

        def flush(log: Log) -> None:
            key = log.topic_partition
            if log.config.flush_ms == NO_LIMIT or log.recovery_point >= log.log_end_offset:
                return
            if now_ms - self._last_flush_ms.setdefault(key, now_ms) >= log.config.flush_ms:
                self._last_flush_ms[key] = now_ms
                self.flush(key)

        await self._for_each_log(flush)

    async def compact(self) -> None:
        """Compact the logs that are worth it."""
        await self._cleaner.run(self.directories, self._high_watermarks())

    async def _for_each_log(self, work: Callable[[Log], None]) -> None:
        """Do something with every log that is there; others have their turn of the reactor in between."""
        turns = Turns(self._runtime.reactor)
        for key in list(self._logs):
            log = self._logs.get(key)
            if log is None:
                continue
            work(log)
            if turns.is_over:
                await turns.next()

    # --- the end ---

    async def close(self, broker_epoch: int) -> None:
        """End the periodic work, close every log, and leave the markers of an orderly stop.

        :param broker_epoch: noted in the marker (KIP-966); -1 where there is none.
        """
        self._cleaner.stop()
        for loop, ended in self._loops:
            if loop.running:
                loop.stop()
            await ended
        self._loops.clear()
        high_watermarks = self._high_watermarks()
        for directory in self.directories:
            await directory.write_high_watermarks(high_watermarks)
            await directory.close(broker_epoch)
        self._logs.clear()


def _report(failure: Failure) -> None:
    _log.failure("periodic work on the logs failed; it is tried again at its next turn", failure)
