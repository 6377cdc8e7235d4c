"""What is asked for below ``/admin/partitions_add`` and ``/admin/partitions_remove``: read, answered by removal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twisted.logger import Logger

from kreplica.controller.event_types import PartitionRequestsChanged
from kreplica.controller.term import Office
from kreplica.model import TopicPartition
from kreplica.runtime.together import together
from kreplica.zookeeper import NoNode, read_all

log = Logger()

Requests = dict[TopicPartition, bytes]


async def read_requests(office: Office, root: str) -> Requests:
    """All requests below a root, with watches on whatever changes there; one that names no partition is refused."""
    topics = await _children(office, root)
    numbers = await together([_children(office, f"{root}/{topic}") for topic in topics])
    named = [(topic, number) for topic, children in zip(topics, numbers, strict=True) for number in children]
    wrong = [f"{root}/{topic}/{number}" for topic, number in named if not _is_number(number)]
    await refuse(office, dict.fromkeys(wrong, "its name is no partition's number"))
    wanted = [TopicPartition(topic, int(number)) for topic, number in named if _is_number(number)]
    answers = await read_all(office.client, [path(root, partition) for partition in wanted])
    found = zip(wanted, answers, strict=True)
    return {partition: answer[0] for partition, answer in found if isinstance(answer, tuple)}


def path(root: str, partition: TopicPartition) -> str:
    """The znode of a request."""
    return f"{root}/{partition.topic}/{partition.partition}"


async def refuse(office: Office, reasons: Mapping[str, str]) -> None:
    """Remove requests that cannot be met; the log keeps why.

    :param reasons: by path.
    """
    for request, reason in sorted(reasons.items()):
        log.warn("controller: the request {path} is refused: {reason}", path=request, reason=reason)
    text = "{what}: refused, " + next(iter(sorted(reasons.items())), ("", ""))[1]
    office.memory.tell_of_many("requests_refused", "request", sorted(reasons), text)
    if reasons:
        await office.writes.remove([*reasons, *_parents(reasons)])


async def tidy(office: Office, root: str, met: Iterable[TopicPartition]) -> None:
    """Requests were met: remove the znodes of their topics, where nothing else is asked for."""
    parents = _parents(path(root, partition) for partition in met)
    if parents:
        await office.writes.remove(parents)


async def tidy_empty(office: Office, root: str) -> None:
    """Remove the znodes of topics for which nothing is asked."""
    topics = await _children(office, root)
    if topics:
        await office.writes.remove([f"{root}/{topic}" for topic in topics])


def _parents(requests: Iterable[str]) -> list[str]:
    return sorted({request.rpartition("/")[0] for request in requests})


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and name == str(int(name))


async def _children(office: Office, parent: str) -> list[str]:
    watch = office.watch(parent, PartitionRequestsChanged())
    try:
        return sorted(await office.client.get_children(parent, watch))
    except NoNode:
        if watch is not None:
            office.unwatched(parent)
        return []
