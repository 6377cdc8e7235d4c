"""Faults of the log directories of a broker: failed, full and slow disks, rejected appends, damaged logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from errno import errorcode

from kreplica.admin.health.faults import Fault, broker_fault, partition_names
from kreplica.errors import StorageError
from kreplica.model import TopicPartition
from kreplica.runtime.disk import is_full
from kreplica.service.metrics.disk_usage import Usage
from kreplica.storage.directories.log_directory import LogDirectory
from kreplica.storage.directories.rejections import FULL_BYTES

SLOW_S = 2.0
"""Minimum duration of a slow sync, in seconds."""


def directory_faults(broker_id: int, directory: LogDirectory, usage: Usage) -> Iterator[Fault]:
    """Yield the faults of one directory and its disk."""
    path, offline = directory.path, directory.offline
    if offline is not None:
        text = f"Broker {broker_id}: log directory {path} failed ({reason(offline)}): its replicas are offline."
        yield broker_fault("failed_disk", broker_id, text, sorted(directory.logs), detail=path)
        return
    yield from _write_faults(broker_id, directory, usage.get(path))
    slowest_s = directory.times.slowest_s
    if slowest_s >= SLOW_S:
        text = f"Broker {broker_id}: a sync of log directory {path} took {slowest_s:.1f} s in the last minute."
        yield broker_fault("slow_disk", broker_id, text, sorted(directory.logs), detail=path)


def _write_faults(broker_id: int, directory: LogDirectory, usage: tuple[int, int] | None) -> Iterator[Fault]:
    path = directory.path
    free = usage[1] if usage is not None else None
    rejections = directory.rejections.current(free)
    is_disk_full = free is not None and free < FULL_BYTES
    if is_disk_full or any(is_full(each.error) for each in rejections):
        free_text = "" if free is None else f", {free:,} bytes are free"
        text = f"Broker {broker_id}: the disk of log directory {path} is full{free_text}: appends are rejected."
        yield broker_fault("full_disk", broker_id, text, sorted(directory.logs), detail=path)
    others = [each for each in rejections if not is_full(each.error)]
    if others:
        affected = sorted(each.log.topic_partition for each in others)
        text = f"Broker {broker_id} rejected appends to {partition_names(affected)}: {reason(others[0].error)}."
        yield broker_fault("rejected_appends", broker_id, text, affected, detail=path)


def damage_faults(
    broker_id: int, directories: list[LogDirectory], damaged: Mapping[TopicPartition, StorageError]
) -> Iterator[Fault]:
    """Yield one fault for damaged logs that are offline, and one for those in use except for their damaged batches.

    :param damaged: damage in the logs that are in use.
    """
    failed = {
        key: failed_log.error
        for directory in directories
        if directory.offline is None
        for key, failed_log in directory.failed_logs.items()
    }
    for found, use, consequence in (
        (failed, "offline", "the replicas are offline until another replica is copied"),
        (damaged, "in use", "no other in-sync replica has the data, and the damaged batches cannot be read"),
    ):
        if found:
            keys = sorted(found)
            text = f"Broker {broker_id} has damaged logs ({partition_names(keys)}; {found[keys[0]]}): {consequence}."
            yield broker_fault("damaged_log", broker_id, text, keys, detail=use)


def reason(error: OSError) -> str:
    """Return the name of an error and its text: ``EIO, Input/output error``."""
    name = errorcode.get(error.errno or 0)
    return f"{name}, {error.strerror}" if name else str(error)
