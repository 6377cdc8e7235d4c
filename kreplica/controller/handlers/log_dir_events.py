"""Brokers that tell of failed log directories are asked, with LeaderAndIsr, which of their replicas are gone."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.controller.event_types import DirectoriesFailed
from kreplica.controller.term import Office
from kreplica.zookeeper import read_all

log = Logger()


async def notifications(office: Office) -> list[str]:
    """The paths of the notifications that are there, with a watch for more."""
    parent = znodes.LOG_DIR_EVENT_NOTIFICATION
    names = await office.client.get_children(parent, office.watch(parent, DirectoriesFailed()))
    return [f"{parent}/{name}" for name in sorted(names)]


async def directories_failed(office: Office) -> None:
    """Tell these brokers their roles again: each replica that is gone is answered with KAFKA_STORAGE_ERROR."""
    context, requests = office.context, office.requests()
    paths = await notifications(office)
    brokers = await _brokers_in(office, paths)
    for broker in brokers:
        office.memory.tell("log_dir_failed", f"broker {broker}", f"a log directory of broker {broker} failed")
    for partition, broker in context.replicas_on(brokers):
        is_led = partition in context.leadership and partition.topic not in context.deleting
        if is_led and broker in context.listeners(partition):
            requests.lead_or_follow(partition, [broker])
    requests.send()
    if paths:
        await office.writes.remove(paths)


async def _brokers_in(office: Office, paths: Sequence[str]) -> list[int]:
    found: dict[int, None] = {}
    for path, answer in zip(paths, await read_all(office.client, paths), strict=True):
        if isinstance(answer, tuple):
            try:
                found[documents.decode_log_dir_event(path, answer[0])] = None
            except znodes.ZnodeError as error:
                log.error("controller: a notification that cannot be read is removed: {error}", error=str(error))
    return sorted(found)
