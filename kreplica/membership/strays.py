"""Logs on disk that are no replicas of this broker any more, found by asking ZooKeeper before the broker takes part.

A broker that was down while a topic was deleted, or while its replica was moved away, was not told.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.model import ZERO_UUID, TopicAssignment, TopicPartition
from kreplica.runtime import Reactor
from kreplica.runtime.turns import Turns
from kreplica.storage.directories import LogDirectories
from kreplica.zookeeper import NoNode, ZooKeeperClient, read_all

log = Logger()


def why_stray(
    key: TopicPartition, topic_id: UUID | None, assignment: TopicAssignment | None, broker_id: int
) -> str | None:
    """Why a log is none of this broker's; None where it is.

    :param topic_id: the one that the log was made for; None where it is not known.
    :param assignment: its topic's as ZooKeeper has it; None where there is no such topic.
    """
    if assignment is None:
        return "there is no such topic"
    if topic_id is not None and assignment.topic_id not in (ZERO_UUID, topic_id):
        return "its topic was deleted, and another was made under the name"
    replicas = assignment.partitions.get(key.partition)
    if replicas is None:
        return "its topic has no such partition"
    if broker_id not in replicas:
        return f"it is assigned to brokers {', '.join(map(str, replicas))}"
    return None


async def find_strays(
    client: ZooKeeperClient, logs: Mapping[TopicPartition, UUID | None], broker_id: int
) -> dict[TopicPartition, str]:
    """The logs that are no replicas of this broker, with the reason of each.

    What ZooKeeper does not clearly say is not held against a log: a topic that cannot be read, or a cluster that has
    no topics at all, which is more likely to be a coordinator that lost its data.

    :param logs: what is on disk, each with the id of the topic that it was made for, where that is known.
    :raise ZooKeeperError: where it cannot be asked.
    """
    if not logs:
        return {}
    await client.sync(znodes.TOPICS)  # a server that lags behind does not know the youngest topics
    if not await client.get_children(znodes.TOPICS):
        log.warn("ZooKeeper knows no topic at all, but {count} logs are here: they are left alone", count=len(logs))
        return {}
    assignments = await _read_assignments(client, list(dict.fromkeys(key.topic for key in logs)))
    strays = {}
    for key, topic_id in logs.items():
        if key.topic in assignments:
            reason = why_stray(key, topic_id, assignments[key.topic], broker_id)
            if reason is not None:
                strays[key] = reason
    return strays


async def _read_assignments(client: ZooKeeperClient, topics: list[str]) -> dict[str, TopicAssignment | None]:
    """The assignments of these topics, None for those that do not exist; a topic that cannot be read is left out."""
    assignments: dict[str, TopicAssignment | None] = {}
    answers = await read_all(client, [znodes.topic_path(topic) for topic in topics])
    for topic, answer in zip(topics, answers, strict=True):
        if isinstance(answer, tuple):
            try:
                assignments[topic] = znodes.decode_topic(topic, answer[0])
            except znodes.ZnodeError as error:
                log.error("the logs of {topic} are left alone: {error}", topic=topic, error=str(error))
        elif isinstance(answer, NoNode):
            assignments[topic] = None
        else:
            log.error("the logs of {topic} are left alone: {error}", topic=topic, error=str(answer))
    return assignments


async def remove_strays(
    reactor: Reactor, client: ZooKeeperClient, directories: LogDirectories, broker_id: int
) -> None:
    """Delete the logs that are no replicas of this broker; files go after ``file.delete.delay.ms``, as always.

    :raise ZooKeeperError: where it cannot be asked; nothing was removed.
    :raise OSError: the device fails.
    """
    logs = {key: directories.topic_id(key) for key in directories.logs}
    turns = Turns(reactor)
    for key, reason in (await find_strays(client, logs, broker_id)).items():
        log.warn("the log of {partition} is removed: {reason}", partition=str(key), reason=reason)
        await directories.delete(key)
        if turns.is_over:
            await turns.next()
