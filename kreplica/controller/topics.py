"""Topics that come and grow, and the first leaders of their partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.controller.decisions import initial_elections
from kreplica.controller.events import AssignmentChanged, TopicsChanged
from kreplica.controller.office import Office
from kreplica.controller.state_writes import TopicChange
from kreplica.controller.states import PartitionState, ReplicaState
from kreplica.model import ZERO_UUID, TopicAssignment, TopicPartition
from kreplica.runtime.together import together
from kreplica.zookeeper import NoNode, WatchEvent

log = Logger()

async def topics_changed(office: Office) -> None:
    """Topics were made (or their znodes removed): choose leaders for the new ones."""
    names = await office.client.get_children(znodes.TOPICS, lambda _: office.put(TopicsChanged()))
    known = office.context.topics.keys() | office.context.unreadable
    for gone in known - set(names):
        office.context.forget_topic(gone)
    new = await read_assignments(office, sorted(set(names) - known))
    await start_new_partitions(office, new)


async def assignment_changed(office: Office, topic: str) -> None:
    """A topic's znode was rewritten: partitions may have been added."""
    known = topic in office.context.topics or topic in office.context.unreadable
    if topic in office.context.deleting or not known:
        return
    await read_assignments(office, [topic])
    await start_new_partitions(office, [topic])


async def read_assignments(office: Office, topics: Iterable[str]) -> list[str]:
    """Read topics' znodes into the context, with a watch on each; a topic without an id gets one.

    :return: those that were there and could be read.
    """
    names = list(topics)
    found = await together([_read_topic(office, topic) for topic in names])
    read = [topic for topic, there in zip(names, found, strict=True) if there]
    if read:
        await office.config.learn(read)
    return read


async def _read_topic(office: Office, topic: str) -> bool:
    def changed(_: WatchEvent) -> None:
        office.put(AssignmentChanged(topic))

    context = office.context
    try:
        data, stat = await office.client.get_data(znodes.topic_path(topic), changed)
        assignment = znodes.decode_topic(topic, data)
        version = stat.version
    except NoNode:
        return False
    except znodes.ZnodeError as error:
        log.error("controller: a topic that cannot be read is left alone: {error}", error=str(error))
        if topic not in context.topics:
            context.unreadable.add(topic)
        return False
    if assignment.topic_id == ZERO_UUID:
        assignment = replace(assignment, topic_id=_known_or_new_id(office, topic))
        if not await office.writes.write_topics([TopicChange(assignment, version)]):
            return await _read_topic(office, topic)  # somebody else wrote meanwhile
        version += 1
    context.unreadable.discard(topic)
    context.topics[topic] = assignment
    context.topic_versions[topic] = version
    return True


def _known_or_new_id(office: Office, topic: str) -> UUID:
    """A tool that rewrites a znode may have dropped the id that the topic has."""
    known: TopicAssignment | None = office.context.topics.get(topic)
    return known.topic_id if known is not None else znodes.random_uuid(office.runtime.random)


async def start_new_partitions(office: Office, topics: Iterable[str]) -> None:
    """Start those partitions of these topics that nobody has started yet, by whatever write they came."""
    context = office.context
    partitions = [
        partition
        for topic in topics
        if topic not in context.deleting
        for partition in context.partitions_of(topic)
        if context.partition_state(partition) is PartitionState.NON_EXISTENT
    ]
    for partition in partitions:
        context.move_partition(partition, PartitionState.NEW)
        for replica in context.replicas(partition):
            context.forget_replica(partition, replica)
            context.move_replica(partition, replica, ReplicaState.NEW)
    if partitions:
        await elect_new_partitions(office, partitions)


async def elect_new_partitions(office: Office, partitions: Iterable[TopicPartition]) -> None:
    """Choose first leaders; partitions without a live replica stay NEW until one joins."""
    wanted = list(partitions)
    changes = initial_elections(office.context, wanted)
    requests = office.requests()
    await office.writes.create_partition_parents(sorted({change.partition.topic for change in changes}))
    for partition in await office.apply(changes, requests):
        if partition in office.context.leadership:
            # A state was there already (an earlier controller got this far): it stands.
            office.context.move_partition(partition, PartitionState.ONLINE)
            requests.lead_or_follow(partition, office.context.replicas(partition))
    for partition in wanted:
        if partition in office.context.leadership:
            for replica in office.context.replicas(partition):
                alive = replica in office.context.brokers
                office.context.move_replica(partition, replica, ReplicaState.ONLINE if alive else ReplicaState.OFFLINE)
    requests.publish(wanted)
    requests.send()
