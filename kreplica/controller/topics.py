"""Topics that come, grow and go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.controller.decisions import initial_elections
from kreplica.controller.events import (
    AssignmentChanged,
    DeletionsChanged,
    ReplicasStopped,
    RetryDeletions,
    TopicsChanged,
)
from kreplica.controller.office import Office
from kreplica.controller.state_writes import TopicChange
from kreplica.controller.states import PartitionState, ReplicaState
from kreplica.errors import ErrorCode
from kreplica.model import ZERO_UUID, TopicAssignment, TopicPartition
from kreplica.runtime.together import together
from kreplica.zookeeper import NoNode, WatchEvent

log = Logger()

DELETION_RETRY_SECONDS = 10.0


# --- creation and growth --------------------------------------------------------------------------


async def topics_changed(office: Office) -> None:
    """Topics were made (or their znodes removed): choose leaders for the new ones."""
    names = await office.client.get_children(znodes.TOPICS, lambda _: office.put(TopicsChanged()))
    known = office.context.topics.keys() | office.context.unreadable
    for gone in known - set(names):
        office.context.forget_topic(gone)
    new = await read_assignments(office, sorted(set(names) - known))
    await _start_partitions(office, [p for topic in new for p in office.context.partitions_of(topic)])


async def assignment_changed(office: Office, topic: str) -> None:
    """A topic's znode was rewritten: partitions may have been added."""
    known = topic in office.context.topics or topic in office.context.unreadable
    if topic in office.context.deleting or not known:
        return
    await read_assignments(office, [topic])
    # Those that nobody started yet: the znode may have been read before this event, by who wrote to it.
    partitions = office.context.partitions_of(topic)
    new = [p for p in partitions if office.context.partition_state(p) is PartitionState.NON_EXISTENT]
    await _start_partitions(office, new)


async def read_assignments(office: Office, topics: Iterable[str]) -> list[str]:
    """Read topics' znodes into the context, with a watch on each; a topic without an id gets one.

    :return: those that were there and could be read.
    """
    names = list(topics)
    found = await together([_read_topic(office, topic) for topic in names])
    return [topic for topic, there in zip(names, found, strict=True) if there]


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


async def _start_partitions(office: Office, partitions: list[TopicPartition]) -> None:
    partitions = [partition for partition in partitions if partition.topic not in office.context.deleting]
    if not partitions:
        return
    for partition in partitions:
        office.context.move_partition(partition, PartitionState.NEW)
        for replica in office.context.replicas(partition):
            office.context.move_replica(partition, replica, ReplicaState.NEW)
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


# --- deletion -------------------------------------------------------------------------------------


async def deletions_changed(office: Office) -> None:
    """Somebody asked for topics to be deleted: phase one, every replica stops."""
    names = await office.client.get_children(znodes.DELETE_TOPICS, lambda _: office.put(DeletionsChanged()))
    unknown = [name for name in names if name not in office.context.topics]
    if unknown:
        # Made and deleted before we saw it, left over or unreadable: look once more, a topic may be on its way to us.
        await topics_changed(office)
        for name in unknown:
            if name not in office.context.topics:
                await office.writes.delete_topic(name)
                office.context.forget_topic(name)
    new = [name for name in names if name in office.context.topics and name not in office.context.deleting]
    office.context.deleting.update(new)
    requests = office.requests()
    for topic in new:
        for partition in office.context.partitions_of(topic):
            if office.context.partition_state(partition) is not PartitionState.NON_EXISTENT:
                office.context.move_partition(partition, PartitionState.OFFLINE)
        requests.publish(office.context.partitions_of(topic))
        for partition, replica in office.context.replicas_of_topic(topic):
            office.context.move_replica(partition, replica, ReplicaState.OFFLINE)
            requests.stop(partition, replica, delete=False)
    requests.send()
    for topic in new:
        await _finish_when_deleted(office, topic)


async def replicas_stopped(office: Office, event: ReplicasStopped) -> None:
    """A broker answered for replicas of topics that are being deleted: go on to phase two, or finish."""
    requests = office.requests()
    for partition, error in event.results:
        if partition.topic not in office.context.deleting:
            continue
        state = office.context.replica_state(partition, event.broker_id)
        failed = error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if failed:
            log.warn(
                "controller: broker {broker} could not delete {partition}: {error}",
                broker=event.broker_id,
                partition=str(partition),
                error=error.name,
            )
            office.put_later(RetryDeletions(), DELETION_RETRY_SECONDS)
        if not event.delete and state is ReplicaState.OFFLINE and not failed:
            office.context.move_replica(partition, event.broker_id, ReplicaState.DELETION_STARTED)
            requests.stop(partition, event.broker_id, delete=True)
        elif event.delete and state is ReplicaState.DELETION_STARTED:
            done = ReplicaState.DELETION_INELIGIBLE if failed else ReplicaState.DELETION_SUCCESSFUL
            office.context.move_replica(partition, event.broker_id, done)
    requests.send()
    for topic in sorted({partition.topic for partition, _ in event.results}):
        await _finish_when_deleted(office, topic)


async def resume_deletions(office: Office, brokers: set[int]) -> None:
    """Brokers joined, or it is time to try again: their replicas that wait for deletion are stopped first."""
    requests = office.requests()
    for topic in sorted(office.context.deleting):
        for partition, replica in office.context.replicas_of_topic(topic):
            if replica not in brokers:
                continue
            if office.context.replica_state(partition, replica) is ReplicaState.DELETION_INELIGIBLE:
                office.context.move_replica(partition, replica, ReplicaState.OFFLINE)
            if office.context.replica_state(partition, replica) is ReplicaState.OFFLINE:
                requests.stop(partition, replica, delete=False)
    requests.send()


async def _finish_when_deleted(office: Office, topic: str) -> None:
    replicas = office.context.replicas_of_topic(topic)
    if topic not in office.context.deleting or any(
        office.context.replica_state(*replica) is not ReplicaState.DELETION_SUCCESSFUL for replica in replicas
    ):
        return
    await office.writes.delete_topic(topic)
    office.context.forget_topic(topic)
    log.info("controller: topic {topic} is deleted", topic=topic)
