"""Writes topic assignments and all dependent changes in one multi, and then applies them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kreplica.controller.effects.command_batch import CommandBatch
from kreplica.controller.effects.state_writes import TopicChange
from kreplica.controller.event_types import PartitionRequestsChanged
from kreplica.controller.handlers.replica_deletion import begin_deletion
from kreplica.controller.handlers.topic_creation import read_assignments
from kreplica.controller.state.states import PartitionState, ReplicaState
from kreplica.controller.term import CONFLICTS_MAX, ControllerTerm, TooManyConflicts
from kreplica.model import TopicAssignment, TopicPartition

PARTITIONS_PER_CHANGE_MAX = 1000
"""Maximum number of a topic's partitions in one multi, so that it stays below ZooKeeper's size limit."""

Decide = Callable[[str], TopicChange | None]


async def change_topics(term: ControllerTerm, topics: Iterable[str], decide: Decide, batch: CommandBatch) -> None:
    """Write changes to each topic until ``decide`` returns None; decide again after a concurrent write.

    A rejected change that fulfils request znodes is not repeated here: a later event reads them again.

    :param decide: returns the next change to a topic, or None if no change is needed.
    :param batch: receives the commands that follow from the written changes.
    :raise TooManyConflicts: after ``CONFLICTS_MAX`` attempts.
    """
    waiting = list(topics)
    for _ in range(CONFLICTS_MAX):
        rejected: list[TopicChange] = []
        while waiting:
            changes = [change for topic in waiting if (change := _decide(term, topic, decide)) is not None]
            written = await term.writes.write_topics(changes)
            for change in written:
                _adopt(term, change, batch)
                await term.yield_to_reactor()
            waiting = [change.assignment.topic for change in written]
            done = set(waiting)
            rejected += [change for change in changes if change.assignment.topic not in done]
        await _read_again(term, rejected)
        waiting = [change.assignment.topic for change in rejected if not change.requests]
        if len(waiting) < len(rejected):
            term.put(PartitionRequestsChanged())
        if not waiting:
            return
    raise TooManyConflicts(f"topics changed concurrently in {CONFLICTS_MAX} attempts, for example {waiting[0]}")


def _decide(term: ControllerTerm, topic: str, decide: Decide) -> TopicChange | None:
    """Return the next change to a topic, unless the topic is deleted or being deleted."""
    return decide(topic) if topic in term.context.topics and topic not in term.context.deleting else None


async def _read_again(term: ControllerTerm, rejected: list[TopicChange]) -> None:
    if not rejected:
        return
    partitions = [state.partition for change in rejected for state in change.states]
    partitions += [partition for change in rejected for partition, _ in change.removed_partitions]
    await read_assignments(term, sorted(change.assignment.topic for change in rejected))
    await term.read_states(partitions)


def _adopt(term: ControllerTerm, change: TopicChange, batch: CommandBatch) -> None:
    """Apply a written change to the context, and add the resulting commands to the batch."""
    context, topic = term.context, change.assignment.topic
    old, removed_before = context.topics[topic], set(context.removed_replicas_of_topic(topic))
    context.topics[topic] = change.assignment
    context.topic_versions[topic] = change.version + 1
    for partition, _ in change.removed_partitions:
        context.leadership.pop(partition, None)
    added = _added_replicas(old, change.assignment)
    for partition, broker in sorted(added):
        # This includes replicas that are added again while their files are being deleted.
        context.forget_replica(partition, broker)
        context.set_replica_state(partition, broker, ReplicaState.NEW)
        online = context.is_online(partition, broker)
        context.set_replica_state(partition, broker, ReplicaState.ONLINE if online else ReplicaState.OFFLINE)
    for state in change.states:
        term.adopt(state)
        for broker in context.state_receivers(state.partition):
            batch.lead_or_follow(state.partition, [broker], is_new=(state.partition, broker) in added)
    removed = context.removed_replicas_of_topic(topic)
    for partition, broker in removed_before.difference(removed, added):
        context.forget_replica(partition, broker)
    changed = _changed_partitions(old, change)
    if changed:
        batch.publish(changed)
    begin_deletion(term, [replica for replica in removed if replica not in removed_before], batch)
    for partition in _removed_partitions(old, change.assignment):
        _mark_removed(term, partition)


def _added_replicas(old: TopicAssignment, new: TopicAssignment) -> set[tuple[TopicPartition, int]]:
    """Return the replicas that existing partitions gained; new partitions are started separately."""
    return {
        (TopicPartition(new.topic, number), broker)
        for number, replicas in new.partitions.items()
        if number in old.partitions
        for broker in replicas
        if broker not in old.partitions[number]
    }


def _removed_partitions(old: TopicAssignment, new: TopicAssignment) -> list[TopicPartition]:
    return [TopicPartition(old.topic, number) for number in old.partitions if number not in new.partitions]


def _changed_partitions(old: TopicAssignment, change: TopicChange) -> list[TopicPartition]:
    """Return the partitions whose metadata changed."""
    new = change.assignment
    placed = {n for n, replicas in new.partitions.items() if n in old.partitions and replicas != old.partitions[n]}
    numbers = placed | {state.partition.partition for state in change.states}
    return [TopicPartition(new.topic, number) for number in sorted(numbers)] + _removed_partitions(old, new)


def _mark_removed(term: ControllerTerm, partition: TopicPartition) -> None:
    context = term.context
    if context.partition_state(partition) is not PartitionState.NON_EXISTENT:
        context.set_partition_state(partition, PartitionState.OFFLINE)
        context.set_partition_state(partition, PartitionState.NON_EXISTENT)
