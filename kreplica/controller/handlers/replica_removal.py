"""Replicas that go, and what follows when they are gone: topics' znodes go, or they are crossed out in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kreplica.controller.decisions.reassignment_plan import Placement, placement_of, with_placements, without_files
from kreplica.controller.effects.state_writes import TopicChange
from kreplica.controller.event_types import ReplicasStopped
from kreplica.controller.handlers import replica_deletion
from kreplica.controller.handlers.assignment_writes import change_topics
from kreplica.controller.handlers.replica_deletion import is_gone
from kreplica.controller.handlers.topic_deletion import finish_deletions
from kreplica.controller.state.context import ControllerContext
from kreplica.controller.term import Office
from kreplica.model import RemovedPartition, TopicPartition


async def replicas_stopped(office: Office, event: ReplicasStopped) -> None:
    """A broker answered for replicas that are to go."""
    replica_deletion.replicas_stopped(office, event)
    topics = sorted({partition.topic for partition, _ in event.results})
    await finish_deletions(office, topics)
    await cross_out(office, topics)


async def retry_deletions(office: Office) -> None:
    """It is time to try again what brokers could not delete."""
    replica_deletion.resume_deletions(office, office.context.brokers)


async def cross_out(office: Office, topics: Iterable[str] | None = None) -> None:
    """Note that replicas of these topics (None: of all) are gone, of those that were to go."""
    context, requests = office.context, office.requests()
    wanted = sorted(context.topics if topics is None else topics)
    leaving = [topic for topic in wanted if context.leaving_of(topic)]
    await change_topics(office, leaving, lambda topic: without_the_gone(context, topic), requests)
    requests.send()


def without_the_gone(context: ControllerContext, topic: str) -> TopicChange | None:
    """The change that crosses out what is gone of a topic; None where nothing is.

    A replica whose broker is down stays noted until that is back and has deleted it: it may be starting just now, and
    have looked at the assignments while it had a place in them.  A partition that was removed waits for all of its
    replicas, since its number may be used again.
    """
    assignment = context.topics[topic]
    placements = _arrived(context, topic)
    removed = dict(assignment.removed)
    for number, gone in assignment.removed.items():
        partition = TopicPartition(topic, number)
        if gone.replicas and all(is_gone(context, partition, broker) for broker in gone.replicas):
            removed[number] = RemovedPartition(gone.leader_epoch)
    if not placements and removed == assignment.removed:
        return None
    changed = replace(with_placements(assignment, placements), removed=removed)
    return TopicChange(changed, context.topic_versions[topic])


def _arrived(context: ControllerContext, topic: str) -> dict[int, Placement]:
    assignment = context.topics[topic]
    placements = {}
    for number in sorted(assignment.removing.keys() & assignment.partitions.keys()):
        partition, now = TopicPartition(topic, number), placement_of(assignment, number)
        gone = [broker for broker in now.dropped if is_gone(context, partition, broker)]
        if gone:
            placements[number] = without_files(now, gone)
    return placements
