"""Takes failed logs of a directory offline, and uses them again after a repair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from twisted.logger import Logger

from kreplica.errors import StorageError
from kreplica.model import TopicPartition
from kreplica.runtime.offload import Offload
from kreplica.storage.directories.failed_logs import FailedLog
from kreplica.storage.directories.log_directory import LogDirectory
from kreplica.storage.log.log import Log

_log = Logger()


def take_offline(directory: LogDirectory, log: Log, error: StorageError) -> None:
    """Stop using a log until ``bring_online`` or ``set_damage_aside``."""
    key = log.topic_partition
    directory.stop_using(log, error)
    to_open = replace(
        directory.to_open(key, log.config),
        recovery_point=log.durability.recovery_point,
        log_start_offset=log.log_start_offset,
    )
    directory.failed_logs[key] = FailedLog(error, to_open, log)
    _log.error(
        "{log} is taken offline, so that another replica leads and serves fetches: {error}",
        log=str(key),
        error=str(error),
    )


async def bring_online(directory: LogDirectory, key: TopicPartition, offload: Offload) -> Log | None:
    """Use a log again without its damaged batches; returns None if it cannot be opened or the directory is offline."""
    if directory.offline is not None:
        return None
    failed = directory.failed_logs[key]
    log = failed.log
    if log is None:
        return await _open_again(directory, key, offload, replace(failed.to_open, skip_damage=True).open)
    del directory.failed_logs[key]
    log.bring_online()
    directory.use(log)
    directory.checkpoints.request()
    return log


async def set_damage_aside(directory: LogDirectory, key: TopicPartition, offload: Offload) -> Log | None:
    """Set damaged segments aside and use the earlier ones; returns None if that fails."""
    if directory.offline is not None:
        return None
    return await _open_again(directory, key, offload, directory.failed_logs[key].set_damage_aside)


async def _open_again(
    directory: LogDirectory, key: TopicPartition, offload: Offload, open_log: Callable[[], tuple[Log, UUID]]
) -> Log | None:
    failed = directory.failed_logs[key]
    try:
        opened = await offload.run(open_log)
    except StorageError as error:
        directory.failed_logs[key] = replace(failed, error=error)
        return None
    except OSError as error:
        _log.warn("{log} cannot be opened again yet: {error}", log=str(key), error=str(error))
        return None
    if directory.offline is not None or directory.failed_logs.get(key) is not failed:
        opened[0].segments.release()
        return None
    del directory.failed_logs[key]
    directory.adopt(failed.to_open, opened)
    directory.checkpoints.request()
    await directory.checkpoints.when_idle()
    # The device may have failed, or the log been deleted, in the meantime.
    return opened[0] if directory.offline is None and directory.logs.get(key) is opened[0] else None
