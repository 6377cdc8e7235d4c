"""Deletes logs that are not assigned to this broker when it starts or registers again.

Topics may have been deleted, or replicas moved, while the broker was down or had lost its session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.cluster import documents, znodes
from kreplica.model import ZERO_UUID, TopicAssignment, TopicPartition
from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice
from kreplica.storage.directories.log_directories import LogDirectories
from kreplica.zookeeper import NoNode, ZooKeeperClient, ZooKeeperError, read_all

log = Logger()

Delete = Callable[[TopicPartition], Awaitable[object]]
InOrder = Callable[[Callable[[], Coroutine[Deferred[Any], Any, None]]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic in ZooKeeper.

    :param czxid: ID of the transaction that created its znode.
    """

    assignment: TopicAssignment
    czxid: int


def has_another_id(topic_id: UUID | None, topic: Topic) -> bool:
    """Return True if a log belongs to an earlier topic of the same name.

    :param topic_id: topic id stored with the log; None if unknown.
    """
    return topic_id is not None and topic.assignment.topic_id not in (ZERO_UUID, topic_id)


def is_rewritten(topic: Topic, last_epoch: int) -> bool:
    """Return True if the topic's znode existed at this broker's last registration.

    If the log's topic id differs nevertheless, a tool has overwritten the topic's id: logs of an earlier topic would
    have been deleted at that registration.

    :param last_epoch: broker epoch of that registration; -1 if unknown.
    """
    return topic.czxid < last_epoch


def stray_reason(key: TopicPartition, topic_id: UUID | None, topic: Topic | None, broker_id: int) -> str | None:
    """Return the reason why a log is not a replica of this broker, or None if it is.

    :param topic_id: stored with the log; None if unknown.
    :param topic: None if no topic of this name exists.
    """
    if topic is None:
        return "the topic does not exist"
    if has_another_id(topic_id, topic):
        return "its topic was deleted, and another one was created with the same name"
    replicas = topic.assignment.partitions.get(key.partition)
    if replicas is None:
        return "the topic has no such partition"
    if broker_id not in replicas:
        return f"it is assigned to brokers {', '.join(map(str, replicas))}"
    return None


async def find_strays(
    client: ZooKeeperClient, logs: Mapping[TopicPartition, UUID | None], broker_id: int, last_epoch: int
) -> dict[TopicPartition, str]:
    """Return the logs that are not replicas of this broker, with the reasons.

    In case of doubt, logs are kept: if a topic cannot be read, if its id was overwritten, or if the cluster has no
    topics at all, because then it is more likely that ZooKeeper has lost its data.

    :param logs: logs on disk with their stored topic ids, if known.
    :param last_epoch: see ``is_rewritten``.
    :raise ZooKeeperError: ZooKeeper cannot be read.
    """
    if not logs:
        return {}
    await _sync(client)
    if not await client.get_children(znodes.TOPICS):
        log.warn("ZooKeeper has no topics, but this broker has {count} logs: they are kept", count=len(logs))
        return {}
    topics = await _read_topics(client, list(dict.fromkeys(key.topic for key in logs)))
    strays = {}
    for key, topic_id in logs.items():
        if key.topic not in topics:
            continue
        topic = topics[key.topic]
        if topic is not None and has_another_id(topic_id, topic) and is_rewritten(topic, last_epoch):
            log.error(
                "the log of {partition} is kept but not served: {path} had the topic id {known} and now has {now}; "
                "restore the old id while all brokers are stopped",
                partition=str(key),
                path=znodes.topic_path(key.topic),
                known=topic_id,
                now=topic.assignment.topic_id,
            )
            continue
        reason = stray_reason(key, topic_id, topic, broker_id)
        if reason is not None:
            strays[key] = reason
    return strays


async def _sync(client: ZooKeeperClient) -> None:
    # A lagging server may not have applied the newest topics.
    await client.sync(znodes.TOPICS)


async def _read_topics(client: ZooKeeperClient, topics: list[str]) -> dict[str, Topic | None]:
    """Return the topics, with None for missing ones; topics that cannot be read are left out."""
    found: dict[str, Topic | None] = {}
    read_results = await read_all(client, [znodes.topic_path(topic) for topic in topics])
    for topic, result in zip(topics, read_results, strict=True):
        if isinstance(result, tuple):
            try:
                found[topic] = Topic(documents.decode_topic(topic, result[0]), result[1].czxid)
            except znodes.ZnodeError as error:
                log.error("the logs of {topic} are kept: {error}", topic=topic, error=str(error))
        elif isinstance(result, NoNode):
            found[topic] = None
        else:
            log.error("the logs of {topic} are kept: {error}", topic=topic, error=str(result))
    return found


async def remove_strays(
    reactor: Reactor, client: ZooKeeperClient, directories: LogDirectories, broker_id: int, last_epoch: int
) -> None:
    """Delete the logs that are not replicas of this broker; files are removed after ``file.delete.delay.ms``.

    :param last_epoch: broker epoch of the last registration; -1 if unknown.
    :raise ZooKeeperError: ZooKeeper cannot be read; nothing was removed.
    :raise OSError: the device fails.
    """
    await _remove(reactor, await _find_in(directories, client, broker_id, last_epoch), directories.delete)


async def remove_strays_after_reregistration(
    reactor: Reactor,
    client: ZooKeeperClient,
    directories: LogDirectories,
    broker_id: int,
    last_epoch: int,
    in_order: InOrder,
    delete: Delete,
) -> None:
    """Delete a running broker's stray logs after it has registered again because its session was lost.

    The search is repeated between two controller commands, because an earlier command may have assigned a replica.

    :param in_order: runs a function between two commands.
    :param delete: stops a replica and deletes its log.
    """
    if await _find_in(directories, client, broker_id, last_epoch):

        async def remove() -> None:
            await _remove(reactor, await _find_in(directories, client, broker_id, last_epoch), delete)

        await in_order(remove)


async def _find_in(
    directories: LogDirectories, client: ZooKeeperClient, broker_id: int, last_epoch: int
) -> dict[TopicPartition, str]:
    logs = {key: directories.topic_id(key) for key in directories.logs}
    return await find_strays(client, logs, broker_id, last_epoch)


async def _remove(reactor: Reactor, strays: Mapping[TopicPartition, str], delete: Delete) -> None:
    time_slice = TimeSlice(reactor)
    for key, reason in strays.items():
        log.warn("removing the log of {partition}: {reason}", partition=str(key), reason=reason)
        await delete(key)
        if time_slice.is_over:
            await time_slice.next()


def log_stray_failure(failure: Failure) -> None:
    """Log the failure; the next registration or start looks for strays again."""
    if failure.check(CancelledError) is not None:
        return
    if failure.check(ZooKeeperError) is not None:
        reason = failure.getErrorMessage()
        log.info("cannot look for stray logs; retrying at the next registration: {reason}", reason=reason)
    else:
        log.failure("search for stray logs failed", failure)
