"""Handles deleted replicas: removes them from the topic znodes, or removes the znodes of deleted topics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kreplica.controller.decisions.reassignment_plan import Placement, placement_of, with_placements, without_deleted
from kreplica.controller.effects.state_writes import TopicChange
from kreplica.controller.event_types import ReplicasStopped
from kreplica.controller.handlers import replica_deletion
from kreplica.controller.handlers.assignment_writes import change_topics
from kreplica.controller.handlers.replica_deletion import is_deleted
from kreplica.controller.handlers.topic_deletion import finish_deletions
from kreplica.controller.state.context import ControllerContext
from kreplica.controller.term import ControllerTerm
from kreplica.model import RemovedPartition, TopicPartition


async def replicas_stopped(term: ControllerTerm, event: ReplicasStopped) -> None:
    """Handle a broker's response to StopReplica for replicas that must be deleted."""
    await replica_deletion.replicas_stopped(term, event)
    topics = sorted({partition.topic for partition, _ in event.results})
    await finish_deletions(term, topics)
    await remove_deleted_replicas(term, topics)


async def retry_deletions(term: ControllerTerm) -> None:
    """Retry failed deletions on all live brokers."""
    await replica_deletion.resume_deletions(term, term.context.brokers)


async def remove_deleted_replicas(term: ControllerTerm, topics: Iterable[str] | None = None) -> None:
    """Remove deleted replicas of these topics (of all if None) from the topic znodes."""
    context, batch = term.context, term.new_batch()
    selected = sorted(context.topics if topics is None else topics)
    with_removed = [topic for topic in selected if context.removed_replicas_of_topic(topic)]
    await change_topics(term, with_removed, lambda topic: without_deleted_replicas(context, topic), batch)
    batch.send()


def without_deleted_replicas(context: ControllerContext, topic: str) -> TopicChange | None:
    """Return the change that removes a topic's deleted replicas, or None if there are none.

    A replica on a dead broker stays until the broker has deleted it: the broker may just be starting, with an
    assignment that it read earlier.  A removed partition waits for all its replicas, because its number may be reused.
    """
    assignment = context.topics[topic]
    placements = _placements_without_deleted(context, topic)
    removed = dict(assignment.removed)
    for number, former in assignment.removed.items():
        partition = TopicPartition(topic, number)
        if former.replicas and all(is_deleted(context, partition, broker) for broker in former.replicas):
            removed[number] = RemovedPartition(former.leader_epoch)
    if not placements and removed == assignment.removed:
        return None
    changed = replace(with_placements(assignment, placements), removed=removed)
    return TopicChange(changed, context.topic_versions[topic])


def _placements_without_deleted(context: ControllerContext, topic: str) -> dict[int, Placement]:
    assignment = context.topics[topic]
    placements = {}
    for number in sorted(assignment.removing.keys() & assignment.partitions.keys()):
        partition, current = TopicPartition(topic, number), placement_of(assignment, number)
        deleted = [broker for broker in current.dropped if is_deleted(context, partition, broker)]
        if deleted:
            placements[number] = without_deleted(current, deleted)
    return placements
