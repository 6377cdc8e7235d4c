"""All log directories of a broker, and the directory of each log."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kreplica.errors import StorageError
from kreplica.model import ZERO_UUID, TopicPartition
from kreplica.runtime import Runtime
from kreplica.runtime.disk import is_temporary
from kreplica.runtime.offload import Offload
from kreplica.storage.directories import repair
from kreplica.storage.directories.directory_choice import DirectoryChoice
from kreplica.storage.directories.log_directory import LogDirectory
from kreplica.storage.directories.periodic_work import PeriodicWork
from kreplica.storage.log.log import Log
from kreplica.storage.log_config import LogConfig, StorageConfig
from kreplica.storage.producers.producer_limits import ProducerLimits
from kreplica.storage.segments.damage import WHOLE_SEGMENT, Damage, is_unreadable
from kreplica.storage.segments.open_segments import OpenSegments

_log = Logger()

_Repair = Callable[[LogDirectory, TopicPartition, Offload], Coroutine[Deferred[Any], Any, Log | None]]


class LogDirectories:
    """Log directories of one broker, opened before it joins the cluster and closed last.

    If a device fails, its directory and logs go offline; the others stay in use.

    :param paths: ``log.dirs``.
    """

    def __init__(self, runtime: Runtime, paths: Sequence[str], config: StorageConfig | None = None) -> None:
        self.config = config or StorageConfig()
        self._runtime = runtime
        self._offline_listeners: list[Callable[[list[TopicPartition]], None]] = []
        self._synced_listeners: list[Callable[[list[TopicPartition]], None]] = []
        self._damage_listeners: list[Callable[[Log, Damage], None]] = []
        open_segments = OpenSegments(self.config.open_segments_max)
        self.producer_limits = ProducerLimits(
            self.config.partition_producer_ids_max, self.config.broker_producer_ids_max
        )
        self.directories = [
            LogDirectory(
                path,
                runtime,
                self.config,
                open_segments,
                self.producer_limits,
                on_offline=self._went_offline,
                on_synced=self._synced,
                on_damage=self._damaged,
            )
            for path in paths
        ]
        self._logs: dict[TopicPartition, Log] = {}
        self.producer_limits.logs = self._logs.values()
        self._choice = DirectoryChoice(self.directories)
        self.periodic_work = PeriodicWork(runtime, self.config, self.directories, self._logs, self.flush)
        self.start = self.periodic_work.start

    def lock(self) -> None:
        """Lock all directories before the broker does anything else.

        A directory whose device fails goes offline, unless it is the last one.

        :raise StorageError: another process holds a lock, or all devices fail; all locks are released.
        :raise OSError: a transient error, such as a lack of descriptors or space.
        """
        try:
            for directory in self.directories:
                try:
                    directory.lock()
                except OSError as error:
                    self._start_without(directory, error)
            self._check_any_usable()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Unlock directories without closing logs or writing markers."""
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

        A directory whose device fails goes offline, unless it is the last one.

        :param config_of: returns the settings of a topic's logs.
        :param is_intact: returns True for a directory that has all data that earlier processes wrote.
        :raise StorageError: a directory is in use or belongs to another cluster or broker, a log exists twice, or all
            devices fail.
        :raise OSError: a transient error, such as a lack of descriptors or space.
        """
        try:
            for directory in self.directories:
                if directory.offline is not None:
                    continue
                try:
                    await directory.open(cluster_id, broker_id, config_of, is_intact)
                except OSError as error:
                    self._start_without(directory, error)
                self._add_logs(directory)
            self._check_any_usable()
        except BaseException:
            self.abandon()
            raise

    def _start_without(self, directory: LogDirectory, error: OSError) -> None:
        if is_temporary(error):
            raise error
        directory.start_offline(error)

    def _check_any_usable(self) -> None:
        if all(directory.offline is not None for directory in self.directories):
            reasons = "; ".join(f"{directory.path}: {directory.offline}" for directory in self.directories)
            raise StorageError(f"no log directory can be used: {reasons}")

    @property
    def may_have_unknown_logs(self) -> bool:
        """True if a directory has been offline since startup and may contain unknown logs."""
        return any(directory.has_unknown_logs for directory in self.directories)

    def _add_logs(self, directory: LogDirectory) -> None:
        for key, log in directory.logs.items():
            if key in self._logs:
                raise StorageError(f"{key} is in two log directories: {self._logs[key].path} and {log.path}")
            self._logs[key] = log

    # --- logs ---

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """Usable logs by partition."""
        return self._logs

    def create(self, key: TopicPartition, topic_id: UUID, config: LogConfig) -> Log:
        """Create an empty log in the directory with the fewest logs.

        :param topic_id: zero if the cluster has no topic IDs.
        :raise StorageError: the log exists but could not be opened, or every directory is offline.
        :raise OSError: the device failed.
        """
        for directory in self.directories:
            if key in directory.failed_logs:
                raise directory.failed_logs[key].error
            if key in directory.logs:
                state = "already exists" if directory.offline is None else "is offline with its directory"
                raise StorageError(f"the log of {key} in {directory.path} {state}")
        log = self._logs[key] = self._choice.take(key).create(key, topic_id, config)
        return log

    async def create_directories(self, new_logs: Iterable[tuple[TopicPartition, UUID]]) -> None:
        """Create the directories of many logs in other threads; the subsequent ``create`` reports errors."""
        new = [(key, topic_id) for key, topic_id in new_logs if key not in self._logs and self.failure(key) is None]
        for directory, planned in self._choice.plan(new).items():
            await directory.create_directories(planned)

    async def delete(self, key: TopicPartition) -> None:
        """Delete a log if it exists; a power loss may undo this until ``sync_deletions``.

        :raise OSError: the device failed.
        """
        directory = self._directory_of(key) or self._directory_of_failed(key)
        if directory is not None:
            self._logs.pop(key, None)
            self.periodic_work.forget(key)
            directory.delete(key)

    async def sync_deletions(self) -> list[TopicPartition]:
        """Make deletions survive a power loss, and return the logs for which this failed."""
        return [key for directory in self.directories for key in await directory.sync_deletions()]

    def topic_id(self, key: TopicPartition) -> UUID | None:
        """Return the topic ID of a log, or None if unknown."""
        directory = self._directory_of(key)
        topic_id = directory.logs[key].topic_id if directory is not None else ZERO_UUID
        return topic_id if topic_id != ZERO_UUID else None

    def high_watermark(self, key: TopicPartition) -> int:
        """Return the checkpointed high watermark, or 0."""
        directory = self._directory_of(key)
        return directory.checkpoints.high_watermarks.get(key, 0) if directory is not None else 0

    def limit_high_watermarks(self) -> None:
        """Limit high watermarks to synced records, because other records may be lost."""
        for directory in self.directories:
            directory.checkpoints.limit_high_watermarks()

    def flush(self, key: TopicPartition) -> None:
        """Request a sync of a usable log (group commit); ``on_synced`` listeners are notified."""
        directory, opened = self._directory_of(key), self._logs.get(key)
        if directory is not None and opened is not None:
            directory.flush(opened)

    def failure(self, key: TopicPartition) -> StorageError | None:
        """Return why a log on disk cannot be used, or None."""
        directory = self._directory_of_failed(key)
        return directory.failed_logs[key].error if directory is not None else None

    def failed_logs(self) -> list[TopicPartition]:
        """Return the partitions whose logs are on disk but cannot be used."""
        return [key for directory in self.directories for key in directory.failed_logs]

    def _directory_of_failed(self, key: TopicPartition) -> LogDirectory | None:
        for directory in self.directories:
            if key in directory.failed_logs:
                return directory
        return None

    def take_offline(self, key: TopicPartition, error: StorageError) -> None:
        """Stop using a log because of an error; ``on_offline`` listeners are notified."""
        directory, log = self._directory_of(key), self._logs.pop(key, None)
        if directory is not None and log is not None:
            repair.take_offline(directory, log, error)
            self._notify_offline([key])

    async def bring_online(self, key: TopicPartition) -> bool:
        """Use a failed log again without its damaged batches, because no better copy exists.

        :return: True if it can be used.
        """
        return await self._repair(key, repair.bring_online)

    async def set_damage_aside(self, key: TopicPartition) -> bool:
        """Set the damaged segments of a log aside and use the earlier ones.

        :return: True if it can be used.
        """
        return await self._repair(key, repair.set_damage_aside)

    async def _repair(self, key: TopicPartition, method: _Repair) -> bool:
        directory = self._directory_of_failed(key)
        log = await method(directory, key, self._runtime.offload) if directory is not None else None
        if log is not None:
            self._logs[key] = log
        return log is not None

    def unreadable(self, path: str, error: OSError) -> None:
        """Handle a failed read of a segment's file; ignored unless the device failed."""
        if not is_unreadable(error):
            return
        directory, _, name = path.rpartition("/")
        for log in self._logs.values():
            if log.path == directory:
                log.report_damage(Damage(path, int(name.split(".")[0]), WHOLE_SEGMENT, str(error)))
                return

    def _directory_of(self, key: TopicPartition) -> LogDirectory | None:
        for directory in self.directories:
            if key in directory.logs:
                return directory
        return None

    @property
    def clean_broker_epoch(self) -> int | None:
        """Broker epoch of the last clean shutdown; None unless all directories were closed cleanly."""
        epochs = [directory.clean_broker_epoch for directory in self.directories]
        known_epochs = [epoch for epoch in epochs if epoch is not None]
        return min(known_epochs) if known_epochs and len(known_epochs) == len(epochs) else None

    # --- listeners ---

    def on_offline(self, listener: Callable[[list[TopicPartition]], None]) -> None:
        """Add a listener, called with the partitions whose logs went offline."""
        self._offline_listeners.append(listener)

    def on_synced(self, listener: Callable[[list[TopicPartition]], None]) -> None:
        """Add a listener, called with the partitions whose recovery point advanced."""
        self._synced_listeners.append(listener)

    def on_damage(self, listener: Callable[[Log, Damage], None]) -> None:
        """Add a listener, called with a log each time damage is found in it.

        The listener decides whether the log goes offline or stays in use.
        """
        self._damage_listeners.append(listener)

    def _damaged(self, log: Log, damage: Damage) -> None:
        found = self._logs.get(log.topic_partition)
        if found is log:
            for listener in self._damage_listeners:
                listener(found, damage)

    def _went_offline(self, directory: LogDirectory) -> None:
        keys = list(directory.logs)
        for key in keys:
            self._logs.pop(key, None)
        self._notify_offline(keys)

    def _notify_offline(self, keys: list[TopicPartition]) -> None:
        for listener in self._offline_listeners:
            listener(keys)

    def _synced(self, logs: list[Log]) -> None:
        keys = [log.topic_partition for log in logs]
        for listener in self._synced_listeners:
            listener(keys)

    # --- shutdown ---

    async def close(self, broker_epoch: int) -> None:
        """Stop periodic work, close every log, and write the clean-shutdown markers.

        :param broker_epoch: written to the markers (KIP-966); -1 if unknown.
        """
        await self.periodic_work.stop()
        for directory in self.directories:
            await directory.checkpoints.write_high_watermarks(self.periodic_work.high_watermarks())
            await directory.close(broker_epoch)
        self._logs.clear()
