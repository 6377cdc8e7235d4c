"""Topics that are deleted: every replica stops and deletes its files, then the znodes go, and last the request."""

from __future__ import annotations

from collections.abc import Iterable

from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.controller.event_types import DeletionsChanged
from kreplica.controller.handlers.replica_deletion import begin_deletion, is_gone
from kreplica.controller.handlers.topic_creation import topics_changed
from kreplica.controller.state.context import ControllerContext
from kreplica.controller.state.states import PartitionState
from kreplica.controller.term import Office
from kreplica.model import TopicPartition

log = Logger()


async def deletions_changed(office: Office) -> None:
    """Somebody asked for topics to be deleted: phase one, every replica stops."""
    watch = office.watch(znodes.DELETE_TOPICS, DeletionsChanged())
    names = await office.client.get_children(znodes.DELETE_TOPICS, watch)
    context = office.context
    if any(name not in context.topics for name in names):
        await _delete_unknown(office, names)
    new = [name for name in names if name in context.topics and name not in context.deleting]
    if not new:
        return
    context.deleting.update(new)
    office.memory.tell_of_many("topics_deleting", "topic", new, "{what}: being deleted")
    requests = office.requests()
    for topic in new:
        for partition in context.partitions_of(topic):
            if context.partition_state(partition) is not PartitionState.NON_EXISTENT:
                context.move_partition(partition, PartitionState.OFFLINE)
        requests.publish(context.partitions_of(topic))
        begin_deletion(office, context.replicas_of_topic(topic), requests)
        await office.breathe()
    requests.send()
    await finish_deletions(office, new)


async def _delete_unknown(office: Office, names: Iterable[str]) -> None:
    """Made and deleted before we saw it, left over or unreadable: look once more, a topic may be on its way to us."""
    await topics_changed(office)
    for name in names:
        if name not in office.context.topics:
            await office.writes.delete_topic(name)
            office.context.forget_topic(name)


async def finish_deletions(office: Office, topics: Iterable[str]) -> None:
    """Remove the znodes of those of these topics whose replicas are all gone."""
    context = office.context
    gone = []
    for topic in topics:
        if topic in context.deleting and all(is_done(context, *r) for r in context.replicas_of_topic(topic)):
            await office.writes.delete_topic(topic)
            context.forget_topic(topic)
            gone.append(topic)
            log.info("controller: topic {topic} is deleted", topic=topic)
    office.memory.tell_of_many("topics_deleted", "topic", gone, "{what}: gone, with all files of live brokers")


def is_done(context: ControllerContext, partition: TopicPartition, broker: int) -> bool:
    """Whether the deletion need not wait for that replica.

    One that was moved away from a broker which died holds up nobody: a broker deletes at its start the logs of topics
    that do not exist.
    """
    moved_away = broker not in context.replicas(partition)
    return is_gone(context, partition, broker) or (moved_away and broker not in context.brokers)
