"""Handles new topics, new partitions, and the election of their first leaders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.cluster.uuids import random_uuid
from kreplica.controller.decisions.state_changes import initial_elections
from kreplica.controller.effects.state_writes import TopicChange
from kreplica.controller.event_types import AssignmentChanged, TopicsChanged
from kreplica.controller.state.states import PartitionState, ReplicaState
from kreplica.controller.term import ControllerTerm
from kreplica.model import ZERO_UUID, TopicAssignment, TopicPartition
from kreplica.runtime.gather import gather
from kreplica.zookeeper import NoNode

log = Logger()

TOPICS_AT_ONCE = 1000
"""Number of new topics that are handled between two checks for urgent events."""


async def topics_changed(term: ControllerTerm) -> None:
    """Elect leaders for new topics, and delete the replicas of topics whose znode was removed.

    Stops early for an urgent event; the remaining topics are handled after that event.
    """
    present = set(await list_topics(term))
    topics, unreadable = term.context.topics, term.context.unreadable
    delete_orphaned_topics(term, sorted(topic for topic in (*topics, *unreadable) if topic not in present))
    new = sorted(present.difference(topics, unreadable))
    for start in range(0, len(new), TOPICS_AT_ONCE):
        if start and term.must_stop_early:
            term.put(TopicsChanged())
            break
        await start_new_partitions(term, await read_assignments(term, new[start : start + TOPICS_AT_ONCE]))


async def list_topics(term: ControllerTerm) -> list[str]:
    """Return the names of all topics, in any order, and watch for changes."""
    return await term.client.get_children(znodes.TOPICS, term.watch(znodes.TOPICS, TopicsChanged()))


def delete_orphaned_topics(term: ControllerTerm, topics: Sequence[str]) -> None:
    """Delete the replicas of topics whose znodes were removed manually.

    The commands are sent only once, because no znode is left to record the progress of the deletion.
    """
    context, batch = term.context, term.new_batch()
    for topic in topics:
        log.warn("controller: the znode of topic {topic} was removed; its replicas are deleted", topic=topic)
        context.deleting.add(topic)  # so that the metadata shows it as deleted
        batch.publish(context.partitions_of(topic))
        for partition, broker in context.replicas_of_topic(topic):
            batch.stop(partition, broker, delete=True)
    batch.send()
    for topic in topics:
        context.forget_topic(topic)


async def assignment_changed(term: ControllerTerm, topic: str) -> None:
    """Handle a rewritten topic znode; partitions may have been added."""
    known = topic in term.context.topics or topic in term.context.unreadable
    if topic in term.context.deleting or not known:
        return
    await read_assignments(term, [topic])
    await start_new_partitions(term, [topic])


async def read_assignments(term: ControllerTerm, topics: Iterable[str]) -> list[str]:
    """Read topic znodes into the context and watch each of them; assign an ID to topics without one.

    :return: the topics that exist and could be read.
    """
    names = list(topics)
    found = await gather([_read_topic(term, topic) for topic in names])
    read = [topic for topic, was_read in zip(names, found, strict=True) if was_read]
    if read:
        await term.read_topic_settings(read)
    return read


async def _read_topic(term: ControllerTerm, topic: str) -> bool:
    context, path = term.context, znodes.topic_path(topic)
    watch = term.watch(path, AssignmentChanged(topic))
    try:
        data, stat = await term.client.get_data(path, watch)
        assignment = documents.decode_topic(topic, data)
        version = stat.version
    except NoNode:
        if watch is not None:
            term.forget_watch(path)
        return False
    except znodes.ZnodeError as error:
        log.error("controller: ignoring an unreadable topic: {error}", error=str(error))
        if topic not in context.topics:
            context.unreadable.add(topic)
        return False
    if topic in context.topics and context.topic_czxids.get(topic) != stat.czxid:
        delete_orphaned_topics(term, [topic])  # deleted and created again: a different topic with the same name
    topic_id = _id_of(term, assignment)
    if assignment.topic_id != topic_id:
        assignment = replace(assignment, topic_id=topic_id)
        if not await term.writes.write_topics([TopicChange(assignment, version)]):
            return await _read_topic(term, topic)  # concurrent write
        version += 1
    context.unreadable.discard(topic)
    context.topics[topic] = assignment
    context.topic_versions[topic] = version
    context.topic_czxids[topic] = stat.czxid
    return True


def _id_of(term: ControllerTerm, assignment: TopicAssignment) -> UUID:
    """Return the permanent ID of a topic, even if a tool rewrote the znode without it or with another one."""
    known = term.context.topics.get(assignment.topic)
    if known is not None:
        return known.topic_id
    return assignment.topic_id if assignment.topic_id != ZERO_UUID else random_uuid(term.runtime.random)


async def start_new_partitions(term: ControllerTerm, topics: Iterable[str]) -> None:
    """Start the partitions of these topics that have no state yet."""
    context = term.context
    partitions = [
        partition
        for topic in topics
        if topic not in context.deleting
        for partition in context.partitions_of(topic)
        if context.partition_state(partition) is PartitionState.NON_EXISTENT
    ]
    for partition in partitions:
        context.set_partition_state(partition, PartitionState.NEW)
        for replica in context.replicas(partition):
            context.forget_replica(partition, replica)
            context.set_replica_state(partition, replica, ReplicaState.NEW)
    if partitions:
        _record_topics(term, partitions)
        await elect_new_partitions(term, partitions)


def _record_topics(term: ControllerTerm, partitions: Sequence[TopicPartition]) -> None:
    context, history = term.context, term.history
    new = Counter(partition.topic for partition in partitions)
    created = [topic for topic, count in new.items() if count == len(context.topics[topic].partitions)]
    grown = [topic for topic in new if topic not in created]
    for kind, topics, text in (
        ("topics_created", created, "{what} created, {count} partitions in total"),
        ("partitions_added", grown, "{what}: {count} new partitions in total"),
    ):
        count = sum(new[topic] for topic in topics)
        history.record_many(kind, "topic", topics, text.replace("{count}", str(count)), partitions=count)


async def elect_new_partitions(term: ControllerTerm, partitions: Iterable[TopicPartition]) -> None:
    """Elect first leaders; partitions without a live replica stay NEW until one joins."""
    new_partitions = list(partitions)
    changes = initial_elections(term.context, new_partitions)
    batch = term.new_batch()
    await term.writes.create_partition_parents(sorted({change.partition.topic for change in changes}))
    for partition in await term.apply(changes, batch):
        if partition in term.context.leadership:
            # Keep the existing state, which an earlier controller wrote before it failed.
            term.context.set_partition_state(partition, PartitionState.ONLINE)
            batch.lead_or_follow(partition, term.context.replicas(partition))
    for partition in new_partitions:
        if partition in term.context.leadership:
            for replica in term.context.replicas(partition):
                state = ReplicaState.ONLINE if replica in term.context.brokers else ReplicaState.OFFLINE
                term.context.set_replica_state(partition, replica, state)
    batch.publish(new_partitions)
    batch.send()
