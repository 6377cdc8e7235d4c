"""Small files of an open log directory: identity and offset checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.internet.defer import DeferredLock
from twisted.logger import Logger

from kreplica.errors import StorageError
from kreplica.model import TopicPartition
from kreplica.runtime import Runtime
from kreplica.runtime.disk import Disk, is_temporary
from kreplica.runtime.time_slice import TimeSlice
from kreplica.storage.directories.failed_logs import FailedLog
from kreplica.storage.formats.checkpoints import (
    META_PROPERTIES,
    MetaProperties,
    read_meta_properties,
    read_offsets,
    write_meta_properties,
    write_offsets,
)
from kreplica.storage.log.log import Log

_log = Logger()

Logs = Mapping[TopicPartition, Log]
FailedLogs = Mapping[TopicPartition, FailedLog]


def check_identity(disk: Disk, directory: str, cluster_id: str, broker_id: int) -> None:
    """Check that a directory belongs to this broker; assign a new directory to it.

    :raise StorageError: the directory belongs to another cluster or broker.
    """
    path = f"{directory}/{META_PROPERTIES}"
    meta = read_meta_properties(disk, path)
    if meta is None:
        write_meta_properties(disk, path, MetaProperties(cluster_id, broker_id))
        return
    if meta.cluster_id != cluster_id:
        raise StorageError(
            f"{directory} contains data of cluster {meta.cluster_id}, but this is cluster {cluster_id}: "
            "correct log.dirs or zookeeper.connect (standalone: --data-dir)"
        )
    if meta.broker_id != broker_id:
        raise StorageError(
            f"{directory} contains data of broker {meta.broker_id}, but this is broker {broker_id}: "
            f"set broker.id={meta.broker_id}, or choose another log.dirs"
        )


class OffsetCheckpoints:
    """Reads and writes the offset checkpoints of a directory.

    :param on_failure: called if the device failed. A lack of space or descriptors is logged once instead; the next
        request writes the checkpoint again.
    """

    def __init__(self, directory: str, runtime: Runtime, on_failure: Callable[[OSError], None]) -> None:
        self._directory = directory
        self._runtime = runtime
        self._on_failure = on_failure
        self._writing = DeferredLock()
        self._written: dict[str, Mapping[TopicPartition, int]] = {}
        self._failed_writes: dict[str, None] = {}
        """Checkpoints whose last write failed."""
        self._possible_offsets: dict[str, Mapping[TopicPartition, int]] = {}
        """Highest offsets that each checkpoint may contain after a power loss."""

    def read(self, name: str, known: Mapping[TopicPartition, TopicPartition]) -> dict[TopicPartition, int]:
        """Read a checkpoint; a damaged one is ignored, which only makes recovery longer.

        :param known: keys to use instead of new, equal ones.
        """
        try:
            offsets = read_offsets(self._runtime.disk, f"{self._directory}/{name}", known)
        except StorageError as error:
            _log.warn("{error}; the file is ignored", error=str(error))
            return {}
        self._possible_offsets[name] = offsets
        return offsets

    def highest(self, name: str, key: TopicPartition) -> int:
        """Return the highest offset that a checkpoint may contain for a log after a power loss, or 0."""
        return self._possible_offsets.get(name, {}).get(key, 0)

    async def write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace a checkpoint durably, unless it is unchanged; writes run one at a time, in the order of the calls.

        :param offsets: must not be changed afterwards.
        """
        await self._writing.acquire()
        try:
            await self._replace(name, offsets)
        finally:
            self._writing.release()

    async def _replace(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        if self._written.get(name) == offsets:
            return
        path = f"{self._directory}/{name}"
        possible = dict(self._possible_offsets.get(name, {}))
        time_slice = TimeSlice(self._runtime.reactor)
        for key, end in offsets.items():
            if end > possible.get(key, -1):
                possible[key] = end
            if time_slice.is_over:
                await time_slice.next()
        self._possible_offsets[name] = possible
        try:
            await self._runtime.offload.run(write_offsets, self._runtime.disk, path, offsets)
        except OSError as error:
            if not is_temporary(error):
                self._on_failure(error)
            elif name not in self._failed_writes:
                self._failed_writes[name] = None
                _log.warn("{path} cannot be written and will be retried: {error}", path=path, error=str(error))
        else:
            self._failed_writes.pop(name, None)
            self._written[name] = self._possible_offsets[name] = offsets


def recovery_points(logs: Logs, failed: FailedLogs) -> dict[TopicPartition, int]:
    """Return the recovery point of each log; a failed log keeps its previous one."""
    points = {key: failed_log.to_open.recovery_point for key, failed_log in failed.items()}
    return points | {key: log.durability.recovery_point for key, log in logs.items()}


def start_offsets(logs: Logs, failed: FailedLogs) -> dict[TopicPartition, int]:
    """Return the log start offsets that differ from the base offset of the first segment, as in Kafka."""
    offsets = {key: failed_log.to_open.log_start_offset for key, failed_log in failed.items()}
    return {key: offset for key, offset in offsets.items() if offset} | {
        key: log.log_start_offset
        for key, log in logs.items()
        if log.log_start_offset > log.segments.first.base_offset
    }
