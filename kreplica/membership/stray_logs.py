"""Logs on disk that are no replicas of this broker any more, found by asking ZooKeeper before the broker takes part.

A broker that was down while a topic was deleted, or while its replica was moved away, was not told; nor was one that
was cut off meanwhile, and has registered anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.model import ZERO_UUID, TopicAssignment, TopicPartition
from kreplica.runtime import Reactor
from kreplica.runtime.turns import Turns
from kreplica.storage.directories.log_directories import LogDirectories
from kreplica.zookeeper import NoNode, ZooKeeperClient, read_all

log = Logger()

Delete = Callable[[TopicPartition], Awaitable[object]]
InOrder = Callable[[Callable[[], Coroutine[Deferred[Any], Any, None]]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as ZooKeeper has it.

    :param made_in: the transaction (zxid) in which its znode was made.
    """

    assignment: TopicAssignment
    made_in: int


def has_another_id(topic_id: UUID | None, topic: Topic) -> bool:
    """Whether a log was made for another id than its topic has.

    :param topic_id: of the log; None where it is not known.
    """
    return topic_id is not None and topic.assignment.topic_id not in (ZERO_UUID, topic_id)


def is_rewritten(topic: Topic, last_epoch: int) -> bool:
    """Whether the topic is the one that was there when this broker registered last, whatever its id is now.

    Then a tool wrote over its id, for with an earlier topic's logs that start would have done away.

    :param last_epoch: the broker epoch of that registration; -1 where it is not known.
    """
    return topic.made_in < last_epoch


def why_stray(key: TopicPartition, topic_id: UUID | None, topic: Topic | None, broker_id: int) -> str | None:
    """Why a log is none of this broker's; None where it is.

    :param topic_id: the one that the log was made for; None where it is not known.
    :param topic: its topic; None where there is none of the name.
    """
    if topic is None:
        return "there is no such topic"
    if has_another_id(topic_id, topic):
        return "its topic was deleted, and another was made under the name"
    replicas = topic.assignment.partitions.get(key.partition)
    if replicas is None:
        return "its topic has no such partition"
    if broker_id not in replicas:
        return f"it is assigned to brokers {', '.join(map(str, replicas))}"
    return None


async def find_strays(
    client: ZooKeeperClient, logs: Mapping[TopicPartition, UUID | None], broker_id: int, last_epoch: int
) -> dict[TopicPartition, str]:
    """The logs that are no replicas of this broker, with the reason of each.

    What ZooKeeper does not clearly say is not held against a log: a topic that cannot be read, one whose id was written
    over, or a cluster that has no topics at all, which is more likely to be a coordinator that lost its data.

    :param logs: what is on disk, each with the id of the topic that it was made for, where that is known.
    :param last_epoch: see ``is_rewritten``.
    :raise ZooKeeperError: where it cannot be asked.
    """
    if not logs:
        return {}
    await client.sync(znodes.TOPICS)  # a server that lags behind does not know the youngest topics
    if not await client.get_children(znodes.TOPICS):
        log.warn("ZooKeeper knows no topic at all, but {count} logs are here: they are left alone", count=len(logs))
        return {}
    topics = await _read_topics(client, list(dict.fromkeys(key.topic for key in logs)))
    strays = {}
    for key, topic_id in logs.items():
        if key.topic not in topics:
            continue
        topic = topics[key.topic]
        if topic is not None and has_another_id(topic_id, topic) and is_rewritten(topic, last_epoch):
            log.error(
                "the log of {partition} is left alone, and cannot be served: {path} had the topic id {known}, and has "
                "{now} now; write the old one back while all brokers are stopped",
                partition=str(key),
                path=znodes.topic_path(key.topic),
                known=topic_id,
                now=topic.assignment.topic_id,
            )
            continue
        reason = why_stray(key, topic_id, topic, broker_id)
        if reason is not None:
            strays[key] = reason
    return strays


async def _read_topics(client: ZooKeeperClient, topics: list[str]) -> dict[str, Topic | None]:
    """These topics, None for those that do not exist; one that cannot be read is left out."""
    found: dict[str, Topic | None] = {}
    answers = await read_all(client, [znodes.topic_path(topic) for topic in topics])
    for topic, answer in zip(topics, answers, strict=True):
        if isinstance(answer, tuple):
            try:
                found[topic] = Topic(documents.decode_topic(topic, answer[0]), answer[1].czxid)
            except znodes.ZnodeError as error:
                log.error("the logs of {topic} are left alone: {error}", topic=topic, error=str(error))
        elif isinstance(answer, NoNode):
            found[topic] = None
        else:
            log.error("the logs of {topic} are left alone: {error}", topic=topic, error=str(answer))
    return found


async def remove_strays(
    reactor: Reactor, client: ZooKeeperClient, directories: LogDirectories, broker_id: int, last_epoch: int
) -> None:
    """Delete the logs that are no replicas of this broker; files go after ``file.delete.delay.ms``, as always.

    :param last_epoch: the broker epoch of the last registration; -1 where it is not known.
    :raise ZooKeeperError: where it cannot be asked; nothing was removed.
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
    """The same while the broker runs, which has registered anew after its session was lost.

    What is found is looked for again between two of the controller's commands: one that came before may have given the
    broker the replica, and one that comes later makes it anew.

    :param in_order: runs something between two commands.
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
    turns = Turns(reactor)
    for key, reason in strays.items():
        log.warn("the log of {partition} is removed: {reason}", partition=str(key), reason=reason)
        await delete(key)
        if turns.is_over:
            await turns.next()
