"""Handles brokers with failed log directories: in response to LeaderAndIsr, they report the affected replicas."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.controller.event_types import DirectoriesFailed
from kreplica.controller.term import ControllerTerm
from kreplica.zookeeper import read_all

log = Logger()


async def notifications(term: ControllerTerm) -> list[str]:
    """Return the paths of the pending notifications, and watch for more."""
    parent = znodes.LOG_DIR_EVENT_NOTIFICATION
    names = await term.client.get_children(parent, term.watch(parent, DirectoriesFailed()))
    return [f"{parent}/{name}" for name in sorted(names)]


async def directories_failed(term: ControllerTerm) -> None:
    """Send LeaderAndIsr to these brokers again; they return KAFKA_STORAGE_ERROR for each offline replica."""
    context, batch = term.context, term.new_batch()
    paths = await notifications(term)
    brokers = await _brokers_in(term, paths)
    for broker in brokers:
        term.history.record("log_dir_failed", f"broker {broker}", f"a log directory of broker {broker} failed")
    for partition, broker in context.replicas_on(brokers):
        has_role = partition in context.leadership and partition.topic not in context.deleting
        if has_role and broker in context.state_receivers(partition):
            batch.lead_or_follow(partition, [broker])
    batch.send()
    if paths:
        await term.writes.remove(paths)


async def _brokers_in(term: ControllerTerm, paths: Sequence[str]) -> list[int]:
    found: dict[int, None] = {}
    for path, result in zip(paths, await read_all(term.client, paths), strict=True):
        if isinstance(result, tuple):
            try:
                found[documents.decode_log_dir_event(path, result[0])] = None
            except znodes.ZnodeError as error:
                log.error("controller: removing an unreadable notification: {error}", error=str(error))
    return sorted(found)
