"""Reads and removes the request znodes below ``/admin/partitions_add`` and ``/admin/partitions_remove``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twisted.logger import Logger

from kreplica.controller.event_types import PartitionRequestsChanged
from kreplica.controller.term import ControllerTerm
from kreplica.model import TopicPartition
from kreplica.runtime.gather import gather
from kreplica.zookeeper import NoNode, read_all

log = Logger()

Requests = dict[TopicPartition, bytes]


async def read_requests(term: ControllerTerm, root: str) -> Requests:
    """Return all requests below a root and watch for changes; reject names that are not partition numbers."""
    topics = await _children(term, root)
    numbers = await gather([_children(term, f"{root}/{topic}") for topic in topics])
    names = [(topic, number) for topic, children in zip(topics, numbers, strict=True) for number in children]
    invalid = [f"{root}/{topic}/{number}" for topic, number in names if not _is_number(number)]
    await reject(term, dict.fromkeys(invalid, "its name is not a partition number"))
    requested = [TopicPartition(topic, int(number)) for topic, number in names if _is_number(number)]
    read_results = await read_all(term.client, [path(root, partition) for partition in requested])
    found = zip(requested, read_results, strict=True)
    return {partition: result[0] for partition, result in found if isinstance(result, tuple)}


def path(root: str, partition: TopicPartition) -> str:
    """Return the znode path of a request."""
    return f"{root}/{partition.topic}/{partition.partition}"


async def reject(term: ControllerTerm, reasons: Mapping[str, str]) -> None:
    """Remove rejected requests and log the reasons.

    :param reasons: by path.
    """
    for request, reason in sorted(reasons.items()):
        log.warn("controller: rejecting the request {path}: {reason}", path=request, reason=reason)
    text = "{what} rejected: " + next(iter(sorted(reasons.items())), ("", ""))[1]
    term.history.record_many("requests_rejected", "request", sorted(reasons), text)
    if reasons:
        await term.writes.remove([*reasons, *_parents(reasons)])


async def remove_parents(term: ControllerTerm, root: str, fulfilled: Iterable[TopicPartition]) -> None:
    """Remove the parents of fulfilled requests, unless they have other requests."""
    parents = _parents(path(root, partition) for partition in fulfilled)
    if parents:
        await term.writes.remove(parents)


async def remove_empty_parents(term: ControllerTerm, root: str) -> None:
    """Remove the znodes of topics without requests."""
    topics = await _children(term, root)
    if topics:
        await term.writes.remove([f"{root}/{topic}" for topic in topics])


def _parents(requests: Iterable[str]) -> list[str]:
    return sorted({request.rpartition("/")[0] for request in requests})


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and name == str(int(name))


async def _children(term: ControllerTerm, parent: str) -> list[str]:
    watch = term.watch(parent, PartitionRequestsChanged())
    try:
        return sorted(await term.client.get_children(parent, watch))
    except NoNode:
        if watch is not None:
            term.forget_watch(parent)
        return []
