"""One log directory (an entry of ``log.dirs``): lock, identity, logs, checkpoints and failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.errors import StorageError
from kreplica.model import TopicPartition
from kreplica.runtime import Runtime
from kreplica.runtime.disk import DirectoryLock, is_temporary, make_directories_durably
from kreplica.storage.directories.checkpoints import Checkpoints
from kreplica.storage.directories.closed_logs import read_closed_logs, remove_closed_logs
from kreplica.storage.directories.closing import close_on_threads, mark_closed
from kreplica.storage.directories.directory_creation import NewDirectories, PreviousContent
from kreplica.storage.directories.directory_files import check_identity
from kreplica.storage.directories.disk_times import DiskTimes, MeasuredOffload
from kreplica.storage.directories.failed_logs import FailedLog
from kreplica.storage.directories.file_removal import Removals
from kreplica.storage.directories.opening import LogToOpen, open_on_threads
from kreplica.storage.directories.rejections import Rejections
from kreplica.storage.durability.failed_syncs import has_marker, remove_marker
from kreplica.storage.durability.group_commit import Syncer
from kreplica.storage.formats.checkpoints import CLEAN_SHUTDOWN, read_clean_shutdown
from kreplica.storage.formats.names import DELETE_SUFFIX, deleted_name, directory_name, parse_directory_name
from kreplica.storage.log.log import Log
from kreplica.storage.log_config import LogConfig, StorageConfig
from kreplica.storage.producers.producer_limits import ProducerLimits
from kreplica.storage.segments.damage import Damage
from kreplica.storage.segments.open_segments import OpenSegments
from kreplica.storage.segments.segment_list import remove_files

_log = Logger()


class LogDirectory:
    """A log directory, opened and closed once; owns its logs.

    :param on_offline: called once if the device fails; none of the logs can be used afterwards.
    :param on_synced: called with the logs whose recovery point advanced.
    :param on_damage: called for damage in one of the logs; may take the log offline.
    """

    def __init__(
        self,
        path: str,
        runtime: Runtime,
        config: StorageConfig,
        open_segments: OpenSegments,
        producer_limits: ProducerLimits,
        *,
        on_offline: Callable[[LogDirectory], None],
        on_synced: Callable[[list[Log]], None],
        on_damage: Callable[[Log, Damage], None],
    ) -> None:
        self.path = path
        self.logs: dict[TopicPartition, Log] = {}
        self.failed_logs: dict[TopicPartition, FailedLog] = {}
        """Logs that could not be opened or were taken offline."""
        self.offline: OSError | None = None
        self.times = DiskTimes(runtime.reactor.seconds)
        self.rejections = Rejections(path, runtime.reactor.seconds)
        measured = replace(runtime, offload=MeasuredOffload(runtime.offload, self.times))
        self.checkpoints = Checkpoints(path, measured, self.logs, self.failed_logs, self._failed)
        self._runtime = runtime
        self.missing: list[TopicPartition] = []
        """Logs in the last checkpoint that no longer exist."""
        self.truncated_logs: list[TopicPartition] = []
        """Logs from which recovery removed records."""
        self.strays: list[str] = []
        """Names of directories that are not logs; they are not touched."""
        self.has_unknown_logs = False
        """True if the device failed at startup, so that the directory's logs are unknown."""
        self.clean_broker_epoch: int | None = None
        """Broker epoch of the last clean shutdown, or None."""
        self._new_directories = NewDirectories(runtime)
        self._disk = runtime.disk
        self._config = config
        self._open_segments = open_segments
        self._producer_limits = producer_limits
        self._on_offline = on_offline
        self._on_damage = on_damage
        self._lock: DirectoryLock | None = None
        self._removals = Removals(runtime, self._removal_failed)
        self._unsynced_deletions: list[TopicPartition] = []
        self._syncer = Syncer(measured, on_synced, self._failed)

    # --- opening ---

    async def open(
        self, cluster_id: str, broker_id: int, config_of: Callable[[str], LogConfig], is_intact: Callable[[str], bool]
    ) -> None:
        """Lock the directory, check its identity, and open all logs.

        :param config_of: returns the settings of a topic's logs.
        :param is_intact: returns True if the directory has all data that earlier processes wrote.
        :raise StorageError: the directory is in use, or belongs to another cluster or broker.
        :raise OSError: the device failed.
        """
        self.lock()
        try:
            check_identity(self._disk, self.path, cluster_id, broker_id)
            await self._load(config_of, is_intact)
        except BaseException:
            self.abandon()
            raise

    def start_offline(self, error: OSError) -> None:
        """Mark the directory offline because its device failed at startup."""
        self.abandon()
        self.logs.clear()
        self.failed_logs.clear()
        self.checkpoints.end()
        self.offline, self.has_unknown_logs = error, True
        _log.critical(
            "{path} failed at startup and is offline; its logs cannot be used: {error}",
            path=self.path,
            error=str(error),
        )

    def lock(self) -> None:
        """Lock the directory for this process before it is read or written; may be called again.

        :raise StorageError: another process holds the lock.
        """
        if self._lock is None:
            make_directories_durably(self._disk, self.path)
            self._lock = self._disk.lock_directory(self.path)

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    async def _load(self, config_of: Callable[[str], LogConfig], is_intact: Callable[[str], bool]) -> None:
        self.clean_broker_epoch = read_clean_shutdown(self._disk, self._path_of(CLEAN_SHUTDOWN))
        clean = self.clean_broker_epoch is not None
        sync_failed = has_marker(self._disk, self.path)
        if sync_failed:
            _log.warn("{path}: a sync failed before this start; unsynced records are rewritten", path=self.path)
        is_closed = clean and not sync_failed
        closed_logs = read_closed_logs(self._disk, self.path, self.clean_broker_epoch) if is_closed else {}
        if remove_closed_logs(self._disk, self.path) or clean:
            # Remove the clean-shutdown marker durably before the directory is used.
            if clean:
                self._disk.remove(self._path_of(CLEAN_SHUTDOWN))
            self._disk.sync_directory(self.path)
        found = self._find_logs()
        recovery_points, start_offsets = self.checkpoints.load(found)
        self.missing = sorted(recovery_points.keys() - set(found))
        intact = is_intact(self.path)
        work = [
            self.to_open(
                key,
                config_of(key.topic),
                recovery_point=recovery_points.get(key, 0),
                log_start_offset=start_offsets.get(key),
                clean_shutdown=is_closed,
                closed=closed_logs.get(directory_name(key)),
                is_intact=intact,
                sync_failed=sync_failed,
            )
            for key in found
        ]
        failure = await open_on_threads(self._runtime.offload, work, self.adopt)
        if failure is not None:
            failure.raiseException()
        if sync_failed and not self.failed_logs:
            remove_marker(self._disk, self.path)

    def _find_logs(self) -> list[TopicPartition]:
        found = []
        for name in self._disk.list_directory(self.path):
            path = self._path_of(name)
            if not self._disk.is_directory(path):
                continue
            key = parse_directory_name(name)
            if key is not None:
                found.append(key)
            elif name.endswith(DELETE_SUFFIX):
                self._removals.schedule(partial(self._disk.remove_tree, path), 0)
            elif not name.startswith("."):
                self.strays.append(name)
        if self.strays:
            _log.warn("{path} contains directories that are not logs: {names}", path=self.path, names=self.strays)
        return found

    def adopt(self, to_open: LogToOpen, opened: tuple[Log, UUID] | StorageError) -> None:
        """Use a log that was opened, or record why it cannot be used."""
        key = to_open.key
        if isinstance(opened, StorageError):
            self.failed_logs[key] = FailedLog(opened, replace(to_open, is_intact=False))
            _log.error("{log} is offline: {error}", log=str(key), error=str(opened))
            return
        log, topic_id = opened
        log.topic_id = topic_id
        if log.was_truncated:
            self.truncated_logs.append(key)
        self.use(log)

    def use(self, log: Log) -> None:
        """Start using an open log."""
        self.logs[log.topic_partition] = log
        log.set_owner(self, self._open_segments, self._producer_limits)
        self.checkpoints.block_appends_if_overstated(log)

    # --- logs ---

    def create(self, key: TopicPartition, topic_id: UUID, config: LogConfig) -> Log:
        """Create a new, empty log.

        :param topic_id: zero if the cluster has no topic IDs.
        :raise StorageError: the log exists but could not be opened, or the directory is offline.
        :raise OSError: the device failed.
        """
        if self.offline is not None:
            raise StorageError(f"{self.path} is offline: {self.offline}")
        if key in self.failed_logs:
            raise self.failed_logs[key].error
        to_open = self.to_open(key, config)
        previous = self._new_directories.get_or_create(to_open.path, topic_id)
        log = to_open.create() if previous is PreviousContent.EMPTY else to_open.open()[0]
        self.adopt(to_open, (log, topic_id))
        if log.appends_blocked:  # an older log of the same name was just deleted
            self.checkpoints.request()
        return log

    async def create_directories(self, new_logs: Iterable[tuple[TopicPartition, UUID]]) -> None:
        """Create directories for many logs in other threads; ``create`` reports errors."""
        paths = [(self._path_of(directory_name(key)), topic_id) for key, topic_id in new_logs]
        await self._new_directories.create_many(paths)

    def to_open(self, key: TopicPartition, config: LogConfig, **state: Any) -> LogToOpen:
        """Return the arguments to open a log.

        :param state: other arguments of ``LogToOpen``.
        """
        return LogToOpen(
            self._path_of(directory_name(key)),
            key,
            config,
            self._disk,
            self._runtime.wall_clock_ms,
            self._config.producer_id_expiration_ms,
            **state,
        )

    def delete(self, key: TopicPartition) -> None:
        """Rename a log's directory at once and delete its files after ``file.delete.delay.ms``; see ``sync_deletions``.

        :raise OSError: the device failed.
        """
        self.checkpoints.high_watermarks.pop(key, None)
        self.checkpoints.cleaner_offsets.pop(key, None)
        path = self._path_of(deleted_name(key, f"{self._runtime.random.getrandbits(128):032x}"))
        log = self.logs.get(key)
        if log is not None:
            self.stop_using(log, StorageError(f"{log.path} is deleted"))
            deleted: Log | LogToOpen = log
        else:
            deleted = self.failed_logs.pop(key).to_open
        self._disk.rename(deleted.path, path)
        self._removals.schedule(partial(self._disk.remove_tree, path), deleted.config.file_delete_delay_ms)
        self._unsynced_deletions.append(key)
        self.checkpoints.request()

    async def sync_deletions(self) -> list[TopicPartition]:
        """Make deletions survive a power loss; if that fails, take the directory offline and return the deletions."""
        deleted, self._unsynced_deletions = self._unsynced_deletions, []
        try:
            if deleted:
                await self._runtime.offload.run(self._disk.sync_directory, self.path)
        except OSError as error:
            self._failed(error)
            return deleted
        return []

    def stop_using(self, log: Log, error: StorageError) -> None:
        """Stop using a log because of an error or its deletion."""
        del self.logs[log.topic_partition]
        self._syncer.forget(log)
        self.checkpoints.forget(log)
        log.take_offline(error)

    def flush(self, log: Log) -> None:
        """Request a sync of a log (group commit)."""
        self._syncer.request(log)

    # --- LogOwner ---

    def rolled(self, log: Log) -> None:
        self._syncer.request(log)

    def flush_due(self, log: Log) -> None:
        self._syncer.request(log)

    def start_offset_advanced(self, log: Log) -> None:
        self.checkpoints.request()

    def truncated(self, log: Log) -> None:
        key = log.topic_partition
        if self.checkpoints.cleaner_offsets.get(key, 0) > log.log_end_offset:
            self.checkpoints.cleaner_offsets[key] = log.log_end_offset
        self.checkpoints.block_appends_if_overstated(log)
        self.checkpoints.request()

    def rejected(self, log: Log, error: OSError) -> None:
        self.rejections.note(log, error)

    def failed(self, log: Log, error: OSError) -> None:
        self._failed(error)

    def damaged(self, log: Log, damage: Damage) -> None:
        self._on_damage(log, damage)

    def remove(self, log: Log, paths: list[str]) -> None:
        self._removals.schedule(partial(remove_files, self._disk, paths), log.config.file_delete_delay_ms)

    def _removal_failed(self, failure: Failure) -> None:
        error = failure.value
        if isinstance(error, OSError) and not is_temporary(error):
            self._failed(error)
        else:
            _log.failure("files in {path} could not be removed", failure, path=self.path)

    def _failed(self, error: OSError) -> None:
        """Take the directory offline until the broker restarts."""
        if self.offline is not None:
            return
        self.offline = error
        self.checkpoints.end()
        _log.critical("{path} is offline: {error}", path=self.path, error=str(error))
        self._cancel()
        for log in self.logs.values():
            log.fail(error)
        self._on_offline(self)

    def _cancel(self) -> None:
        self._removals.cancel()
        self._syncer.cancel()
        self.checkpoints.cancel()

    # --- closing ---

    async def close(self, broker_epoch: int) -> None:
        """Close all logs and write the clean-shutdown marker; an offline directory is only unlocked.

        :param broker_epoch: written to the marker (KIP-966); -1 if unknown.
        """
        self._cancel()
        await self._syncer.when_drained()
        await self.checkpoints.when_idle()
        try:
            if self.offline is None:
                await self._close_logs(broker_epoch)
        except OSError as error:
            if not is_temporary(error):
                self._failed(error)
            elif self.offline is None:
                _log.warn("{path} was not closed cleanly: {error}", path=self.path, error=str(error))
        finally:
            self._cancel()  # also cancels retries of syncs that failed during the close
            self._unlock()

    def abandon(self) -> None:
        """Unlock without closing any log, because a directory could not be opened; the next start recovers the logs."""
        self._cancel()
        for log in self.logs.values():
            log.segments.release()
        self._unlock()

    async def _close_logs(self, broker_epoch: int) -> None:
        closed_logs = await close_on_threads(self._runtime.offload, list(self.logs.values()))
        await self.checkpoints.write_all()
        if self.offline is None and not self.failed_logs:
            await self._runtime.offload.run(mark_closed, self._disk, self.path, broker_epoch, closed_logs)

    def _path_of(self, name: str) -> str:
        return f"{self.path}/{name}"
