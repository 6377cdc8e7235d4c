"""Closes the logs of a directory in batches, in other threads, and marks the directory as closed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger

from kreplica.model import TopicPartition
from kreplica.runtime.disk import Disk, is_temporary
from kreplica.runtime.offload import Offload
from kreplica.storage.directories.closed_logs import ClosedLog, describe, write_closed_logs
from kreplica.storage.formats.checkpoints import CLEAN_SHUTDOWN, NO_BROKER_EPOCH, write_clean_shutdown
from kreplica.storage.log.log import Log

_AT_ONCE_MAX = 50
"""Logs closed per call in another thread, to amortize the thread switch."""

_log = Logger()


async def close_on_threads(offload: Offload, logs: Sequence[Log]) -> dict[TopicPartition, ClosedLog]:
    """Close logs in several threads, so that the device can combine their syncs.

    :return: the states of the logs that the next start may use without opening files.
    :raise OSError: the device failed.
    """
    batches = [logs[first : first + _AT_ONCE_MAX] for first in range(0, len(logs), _AT_ONCE_MAX)]
    closings: list[Deferred[Any]] = [offload.run(_close_all, batch) for batch in batches]
    closed_logs: dict[TopicPartition, ClosedLog] = {}
    for is_closed, result in await DeferredList(closings, consumeErrors=True):
        if not is_closed:
            result.raiseException()
        closed_logs.update(result)
    return closed_logs


def _close_all(logs: Iterable[Log]) -> dict[TopicPartition, ClosedLog]:
    described = {}
    for log in logs:
        log.close()
        closed = describe(log)
        if closed is not None:
            described[log.topic_partition] = closed
    return described


def mark_closed(
    disk: Disk, directory: str, broker_epoch: int, closed_logs: Mapping[TopicPartition, ClosedLog]
) -> None:
    """Write the states of the closed logs and then the clean-shutdown marker; blocks.

    :param broker_epoch: -1 if unknown.
    :raise OSError: the marker was not written.
    """
    try:
        if broker_epoch != NO_BROKER_EPOCH:
            write_closed_logs(disk, directory, broker_epoch, closed_logs)
    except OSError as error:
        if not is_temporary(error):
            raise
        _log.warn(
            "{path}: the states of the closed logs were not written, so the next start opens every log: {error}",
            path=directory,
            error=str(error),
        )
    write_clean_shutdown(disk, f"{directory}/{CLEAN_SHUTDOWN}", broker_epoch)
