"""Topics that come and grow, and the first leaders of their partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.cluster.uuids import random_uuid
from kreplica.controller.decisions.decisions import initial_elections
from kreplica.controller.effects.state_writes import TopicChange
from kreplica.controller.event_types import AssignmentChanged, TopicsChanged
from kreplica.controller.state.states import PartitionState, ReplicaState
from kreplica.controller.term import Office
from kreplica.model import ZERO_UUID, TopicAssignment, TopicPartition
from kreplica.runtime.together import together
from kreplica.zookeeper import NoNode

log = Logger()


async def topics_changed(office: Office) -> None:
    """Topics were made (or their znodes removed): choose leaders for the new ones."""
    names = await list_topics(office)
    known = office.context.topics.keys() | office.context.unreadable
    abandon(office, sorted(known - set(names)))
    new = await read_assignments(office, sorted(set(names) - known))
    await start_new_partitions(office, new)


async def list_topics(office: Office) -> list[str]:
    """The names of all topics, with a watch for more and fewer."""
    return sorted(await office.client.get_children(znodes.TOPICS, office.watch(znodes.TOPICS, TopicsChanged())))


def abandon(office: Office, topics: Sequence[str]) -> None:
    """Somebody removed these topics' znodes by hand: brokers delete what they have of them, or they would serve it on.

    Unlike a deletion that was asked for it is told once: there is nothing left that could say that it is not done.
    """
    context, requests = office.context, office.requests()
    for topic in topics:
        log.warn("controller: the znode of topic {topic} was removed: its replicas are deleted", topic=topic)
        context.deleting.add(topic)  # so that brokers are told
        requests.publish(context.partitions_of(topic))
        for partition, broker in context.replicas_of_topic(topic):
            requests.stop(partition, broker, delete=True)
    requests.send()
    for topic in topics:
        context.forget_topic(topic)


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
    context, path = office.context, znodes.topic_path(topic)
    watch = office.watch(path, AssignmentChanged(topic))
    try:
        data, stat = await office.client.get_data(path, watch)
        assignment = documents.decode_topic(topic, data)
        version = stat.version
    except NoNode:
        if watch is not None:
            office.unwatched(path)
        return False
    except znodes.ZnodeError as error:
        log.error("controller: a topic that cannot be read is left alone: {error}", error=str(error))
        if topic not in context.topics:
            context.unreadable.add(topic)
        return False
    if topic in context.topics and context.topic_births.get(topic) != stat.czxid:
        abandon(office, [topic])  # it was removed and made anew: another topic of that name
    topic_id = _id_of(office, assignment)
    if assignment.topic_id != topic_id:
        assignment = replace(assignment, topic_id=topic_id)
        if not await office.writes.write_topics([TopicChange(assignment, version)]):
            return await _read_topic(office, topic)  # somebody else wrote meanwhile
        version += 1
    context.unreadable.discard(topic)
    context.topics[topic] = assignment
    context.topic_versions[topic] = version
    context.topic_births[topic] = stat.czxid
    return True


def _id_of(office: Office, assignment: TopicAssignment) -> UUID:
    """The id that a topic has for good: a tool that rewrites its znode may drop it, or give it another."""
    known = office.context.topics.get(assignment.topic)
    if known is not None:
        return known.topic_id
    return assignment.topic_id if assignment.topic_id != ZERO_UUID else random_uuid(office.runtime.random)


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
        _tell(office, partitions)
        await elect_new_partitions(office, partitions)


def _tell(office: Office, partitions: Sequence[TopicPartition]) -> None:
    """Say which topics are new and which have grown, to people."""
    context, memory = office.context, office.memory
    new = Counter(partition.topic for partition in partitions)
    made = [topic for topic, count in new.items() if count == len(context.topics[topic].partitions)]
    grown = [topic for topic in new if topic not in made]
    for kind, topics, text in (
        ("topics_created", made, "{what}: made, with {count} partitions in all"),
        ("topics_grown", grown, "{what}: {count} partitions more in all"),
    ):
        count = sum(new[topic] for topic in topics)
        memory.tell_of_many(kind, "topic", topics, text.replace("{count}", str(count)), partitions=count)


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
