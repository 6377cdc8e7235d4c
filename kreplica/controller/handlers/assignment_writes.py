"""Changes of topics' assignments: decided, written in one multi with all that belongs to them, and only then obeyed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kreplica.controller.effects.command_batch import BrokerRequests
from kreplica.controller.effects.state_writes import TopicChange
from kreplica.controller.event_types import PartitionRequestsChanged
from kreplica.controller.handlers.replica_deletion import begin_deletion
from kreplica.controller.handlers.topic_creation import read_assignments
from kreplica.controller.state.states import PartitionState, ReplicaState
from kreplica.controller.term import CONFLICTS_MAX, Office, StatesContested
from kreplica.model import TopicAssignment, TopicPartition

PARTITIONS_PER_CHANGE_MAX = 1000
"""So many partitions of a topic change in one multi, which keeps it below what ZooKeeper takes in one piece."""

Decide = Callable[[str], TopicChange | None]


async def change_topics(office: Office, topics: Iterable[str], decide: Decide, requests: BrokerRequests) -> None:
    """Decide and write, topic by topic, until there is nothing left to decide; anew where somebody else wrote first.

    A change that answers requests in ZooKeeper is decided anew by a later event, which reads them too.

    :param decide: from the context to the next change of a topic, None where it needs none (any more).
    :param requests: where the commands go that follow from what was written.
    :raise StatesContested: others wrote the same znodes ``CONFLICTS_MAX`` times.
    """
    waiting = list(topics)
    for _ in range(CONFLICTS_MAX):
        refused: list[TopicChange] = []
        while waiting:
            changes = [change for topic in waiting if (change := _decided(office, topic, decide)) is not None]
            written = await office.writes.write_topics(changes)
            for change in written:
                _adopt(office, change, requests)
                await office.breathe()
            waiting = [change.assignment.topic for change in written]
            done = set(waiting)
            refused += [change for change in changes if change.assignment.topic not in done]
        await _read_again(office, refused)
        waiting = [change.assignment.topic for change in refused if not change.requests]
        if len(waiting) < len(refused):
            office.put(PartitionRequestsChanged())
        if not waiting:
            return
    raise StatesContested(f"topics were written by others {CONFLICTS_MAX} times, as {waiting[0]}")


def _decided(office: Office, topic: str, decide: Decide) -> TopicChange | None:
    """Topics that are gone or going change no more."""
    return decide(topic) if topic in office.context.topics and topic not in office.context.deleting else None


async def _read_again(office: Office, refused: list[TopicChange]) -> None:
    if not refused:
        return
    partitions = [state.partition for change in refused for state in change.states]
    partitions += [partition for change in refused for partition, _ in change.ends]
    await read_assignments(office, sorted(change.assignment.topic for change in refused))
    await office.read_states(partitions)


def _adopt(office: Office, change: TopicChange, requests: BrokerRequests) -> None:
    """Put what was written into the context, and form the commands that follow."""
    context, topic = office.context, change.assignment.topic
    old, left_before = context.topics[topic], set(context.leaving_of(topic))
    context.topics[topic] = change.assignment
    context.topic_versions[topic] = change.version + 1
    for partition, _ in change.ends:
        context.leadership.pop(partition, None)
    added = _added(old, change.assignment)
    for partition, broker in sorted(added):
        # One that was leaving and comes back is new as well.
        context.forget_replica(partition, broker)
        context.move_replica(partition, broker, ReplicaState.NEW)
        online = context.is_online(partition, broker)
        context.move_replica(partition, broker, ReplicaState.ONLINE if online else ReplicaState.OFFLINE)
    for state in change.states:
        office.adopt(state)
        for broker in context.listeners(state.partition):
            requests.lead_or_follow(state.partition, [broker], is_new=(state.partition, broker) in added)
    leaving = context.leaving_of(topic)
    for partition, broker in left_before.difference(leaving, added):
        context.forget_replica(partition, broker)
    changed = _changed(old, change)
    if changed:
        requests.publish(changed)
    begin_deletion(office, [replica for replica in leaving if replica not in left_before], requests)
    for partition in _ended(old, change.assignment):
        _end(office, partition)


def _added(old: TopicAssignment, new: TopicAssignment) -> set[tuple[TopicPartition, int]]:
    """The replicas that known partitions have now and had not; partitions that are new are started as such."""
    return {
        (TopicPartition(new.topic, number), broker)
        for number, replicas in new.partitions.items()
        if number in old.partitions
        for broker in replicas
        if broker not in old.partitions[number]
    }


def _ended(old: TopicAssignment, new: TopicAssignment) -> list[TopicPartition]:
    return [TopicPartition(old.topic, number) for number in old.partitions if number not in new.partitions]


def _changed(old: TopicAssignment, change: TopicChange) -> list[TopicPartition]:
    """Whose metadata are others now."""
    new = change.assignment
    placed = {n for n, replicas in new.partitions.items() if n in old.partitions and replicas != old.partitions[n]}
    numbers = placed | {state.partition.partition for state in change.states}
    return [TopicPartition(new.topic, number) for number in sorted(numbers)] + _ended(old, new)


def _end(office: Office, partition: TopicPartition) -> None:
    context = office.context
    if context.partition_state(partition) is not PartitionState.NON_EXISTENT:
        context.move_partition(partition, PartitionState.OFFLINE)
        context.move_partition(partition, PartitionState.NON_EXISTENT)
