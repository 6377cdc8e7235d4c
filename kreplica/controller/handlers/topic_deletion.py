"""Deletes topics: all replicas stop and delete their files, then the znodes and finally the request are removed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.controller.effects.command_batch import CommandBatch
from kreplica.controller.event_types import DeletionsChanged, FinishDeletions
from kreplica.controller.handlers.replica_deletion import begin_deletion, is_deleted
from kreplica.controller.handlers.topic_creation import topics_changed
from kreplica.controller.state.context import ControllerContext
from kreplica.controller.state.states import PartitionState
from kreplica.controller.term import SLICE, ControllerTerm
from kreplica.model import TopicPartition

log = Logger()


async def deletions_changed(term: ControllerTerm) -> None:
    """Start the deletion of requested topics: every replica stops (phase one).

    Stops early for an urgent event; the remaining topics are handled after that event.  Their replicas get no role in
    the meantime: the previous controller may have deleted them, and a leader without records must not start.
    """
    watch = term.watch(znodes.DELETE_TOPICS, DeletionsChanged())
    names = await term.client.get_children(znodes.DELETE_TOPICS, watch)
    context = term.context
    if any(name not in context.topics for name in names):
        await _delete_unknown(term, names)
    requested = [name for name in names if name in context.topics]
    context.deleting.update(requested)
    new = [name for name in requested if name not in context.deletions_started]
    if not new:
        return
    started: list[str] = []
    batch = term.new_batch()
    for topic in new:
        await _begin(term, topic, batch)
        started.append(topic)
        if term.must_stop_early and len(started) < len(new):
            term.put(DeletionsChanged())
            break
    term.history.record_many("topics_deleting", "topic", started, "{what}: deletion started")
    batch.send()
    await finish_deletions(term, started)


async def _begin(term: ControllerTerm, topic: str, batch: CommandBatch) -> None:
    context = term.context
    context.deletions_started.add(topic)
    async for partition in term.in_slices(context.partitions_of(topic)):
        if context.partition_state(partition) is not PartitionState.NON_EXISTENT:
            context.set_partition_state(partition, PartitionState.OFFLINE)
    batch.publish(context.partitions_of(topic))
    replicas = context.replicas_of_topic(topic)
    for start in range(0, len(replicas), SLICE):
        begin_deletion(term, replicas[start : start + SLICE], batch)
        await term.yield_to_reactor()


async def _delete_unknown(term: ControllerTerm, names: Iterable[str]) -> None:
    """Read the topics again, and delete the znodes of those that are still unknown (deleted before, or unreadable)."""
    await topics_changed(term)
    for name in names:
        if name not in term.context.topics:
            await term.writes.delete_topic(name)
            term.context.forget_topic(name)


async def finish_deletions(term: ControllerTerm, topics: Iterable[str]) -> None:
    """Remove the znodes of these topics if all their replicas are gone.

    Stops early for an urgent event; the remaining topics are handled after that event.
    """
    context = term.context
    waiting, deleted = deque(topics), []
    while waiting:
        topic = waiting.popleft()
        if topic in context.deleting and all(is_done(context, *r) for r in context.replicas_of_topic(topic)):
            await term.writes.delete_topic(topic)
            context.forget_topic(topic)
            deleted.append(topic)
            log.info("controller: topic {topic} was deleted", topic=topic)
            if waiting and term.must_stop_early:
                term.put(FinishDeletions(tuple(waiting)))
                break
    term.history.record_many("topics_deleted", "topic", deleted, "{what} deleted, with all files on live brokers")


def is_done(context: ControllerContext, partition: TopicPartition, broker: int) -> bool:
    """Return True if the deletion does not need to wait for that replica.

    A replica that was moved away from a dead broker is ignored: when a broker starts, it deletes the logs of topics
    that do not exist.
    """
    moved_away = broker not in context.replicas(partition)
    return is_deleted(context, partition, broker) or (moved_away and broker not in context.brokers)
