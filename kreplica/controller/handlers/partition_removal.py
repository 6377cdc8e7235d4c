"""Removes a topic's highest-numbered partitions; each znode ``/admin/partitions_remove/T/P`` requests one removal.

1. One multi makes the partition read-only.  Its leader, in a new epoch, rejects records; fetches still work, and
   metadata still contains the partition.
2. After the requested time, one multi removes it from the topic's znode, with its state and the request.  Clients no
   longer see it, and its replicas are stopped and deleted.
3. When all replicas are gone, another multi frees its number (``replica_removal``).

Until step 2, removing the request makes the partition writable again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

from kreplica.cluster import znodes
from kreplica.cluster.partition_requests import decode_removal
from kreplica.controller.decisions import state_changes
from kreplica.controller.decisions.leader_election import Election
from kreplica.controller.decisions.reassignment_plan import placement_of
from kreplica.controller.decisions.state_changes import RulesOf
from kreplica.controller.effects.state_writes import TopicChange
from kreplica.controller.event_types import RemovalDue
from kreplica.controller.handlers.assignment_writes import PARTITIONS_PER_CHANGE_MAX, change_topics
from kreplica.controller.handlers.partition_requests import path, read_requests, reject, remove_parents
from kreplica.controller.state.context import ControllerContext, ReadOnlyPeriod
from kreplica.controller.term import ControllerTerm
from kreplica.model import NO_EPOCH, RemovedPartition, TopicAssignment, TopicPartition

Waits = Mapping[TopicPartition, float]


def is_removal_due(waited_s: float, wait_s: float) -> bool:
    """Return True if a read-only partition has waited long enough to be removed."""
    return waited_s >= wait_s


async def handle_removals(term: ControllerTerm) -> None:
    """Handle new or withdrawn removal requests, and removals that are due."""
    waits, rejections = await _read_waits(term)
    context, batch = term.context, term.new_batch()
    requested: dict[str, set[int]] = defaultdict(set)
    for partition in waits:
        requested[partition.topic].add(partition.partition)
    topics = sorted(requested.keys() | {topic for topic, assignment in context.topics.items() if assignment.read_only})
    for topic in topics:
        for number, reason in rejection_reasons(context, topic, requested[topic]).items():
            rejections[path(znodes.PARTITIONS_REMOVE, TopicPartition(topic, number))] = reason
    rules = term.rules()
    await change_topics(
        term, topics, lambda topic: _read_only_change(context, rules, topic, requested[topic]), batch
    )
    _note_read_only(term, waits)
    now_s = term.now_s()
    await change_topics(term, topics, lambda topic: _removal_change(context, topic, now_s), batch)
    batch.send()
    removed = (partition for partition in waits if context.removed_replicas(partition))
    ended = [partition for partition in removed if not context.replicas(partition)]
    term.history.record_many("partitions_removed", "partition", ended, "{what}: removed, files are being deleted")
    await remove_parents(term, znodes.PARTITIONS_REMOVE, ended)
    await reject(term, rejections)
    _schedule_removals(term, now_s)


async def _read_waits(term: ControllerTerm) -> tuple[dict[TopicPartition, float], dict[str, str]]:
    """Return the requested read-only time of each partition, and the reason for each invalid request, by path."""
    waits: dict[TopicPartition, float] = {}
    rejections: dict[str, str] = {}
    for partition, data in (await read_requests(term, znodes.PARTITIONS_REMOVE)).items():
        request = path(znodes.PARTITIONS_REMOVE, partition)
        try:
            wait_ms = decode_removal(request, data)
            waits[partition] = term.config.removal_wait_s if wait_ms is None else wait_ms / 1000
        except znodes.ZnodeError as error:
            rejections[request] = str(error)
    return waits, rejections


def _note_read_only(term: ControllerTerm, waits: Waits) -> None:
    """Start the read-only period of new read-only partitions, and end that of partitions that are writable again."""
    context, now_s = term.context, term.now_s()
    known = context.read_only
    context.read_only = {
        partition: ReadOnlyPeriod(known[partition].since_s if partition in known else now_s, wait_s)
        for partition, wait_s in waits.items()
        if partition.topic in context.topics and partition.partition in context.topics[partition.topic].read_only
    }


def _schedule_removals(term: ControllerTerm, now_s: float) -> None:
    for partition, period in term.context.read_only.items():
        if not is_removal_due(now_s - period.since_s, period.wait_s):
            term.put_later(RemovalDue(*partition), period.since_s + period.wait_s - now_s)


# --- decisions --------------------------------------------------------------------------------------------------------


def removable_partitions(assignment: TopicAssignment, requested: Collection[int]) -> frozenset[int]:
    """Return the requested partitions that can be removed: from the highest number down, never all partitions."""
    accepted = set()
    number = len(assignment.partitions) - 1
    while number > 0 and number in requested and not placement_of(assignment, number).is_moving:
        accepted.add(number)
        number -= 1
    return frozenset(accepted)


def rejection_reasons(context: ControllerContext, topic: str, requested: Collection[int]) -> dict[int, str]:
    """Return the reason for each rejected request, by partition."""
    if topic not in context.topics or topic in context.deleting:
        return dict.fromkeys(requested, "the topic does not exist or is being deleted")
    assignment = context.topics[topic]
    accepted = removable_partitions(assignment, requested)
    return {number: rejection(assignment, number) for number in sorted(requested) if number not in accepted}


def rejection(assignment: TopicAssignment, number: int) -> str:
    """Return why ``removable_partitions`` omits a requested partition."""
    if number not in assignment.partitions:
        return "the partition does not exist"
    if number == 0:
        return "a topic needs at least one partition: delete the topic instead"
    if placement_of(assignment, number).is_moving:
        return "it is being reassigned"
    return "partitions with higher numbers must be removed first, or together with it"


def _read_only_change(
    context: ControllerContext, rules: RulesOf, topic: str, requested: Collection[int]
) -> TopicChange | None:
    """Return the change for step 1 for requested partitions, or its reversal for withdrawn requests."""
    assignment = context.topics[topic]
    toggled = sorted(removable_partitions(assignment, requested) ^ assignment.read_only)[:PARTITIONS_PER_CHANGE_MAX]
    if not toggled:
        return None
    states = []
    for partition in (TopicPartition(topic, number) for number in toggled):
        state = context.leadership.get(partition)
        if state is not None:
            states.append(state_changes.next_state_change(context, partition, Election(state.leader, state.isr), rules))
    changed = replace(assignment, read_only=assignment.read_only ^ set(toggled))
    return TopicChange(changed, context.topic_versions[topic], tuple(states))


def _removal_change(context: ControllerContext, topic: str, now_s: float) -> TopicChange | None:
    """Return the change for step 2 for partitions that have waited long enough, from the highest number down."""
    assignment = context.topics[topic]
    ending: list[int] = []
    number = len(assignment.partitions) - 1
    while number > 0 and len(ending) < PARTITIONS_PER_CHANGE_MAX:
        period = context.read_only.get(TopicPartition(topic, number))
        if number not in assignment.read_only or period is None:
            break
        if not is_removal_due(now_s - period.since_s, period.wait_s):
            break
        ending.append(number)
        number -= 1
    if not ending:
        return None
    partitions = [TopicPartition(topic, number) for number in ending]
    return TopicChange(
        without_partitions(context, topic, ending),
        context.topic_versions[topic],
        removed_partitions=tuple((p, context.leadership[p]) for p in partitions if p in context.leadership),
        requests=tuple(znodes.partitions_remove_path(topic, number) for number in ending),
    )


def without_partitions(context: ControllerContext, topic: str, numbers: Collection[int]) -> TopicAssignment:
    """Return a topic's assignment in which these partitions are recorded as removed."""
    old = context.topics[topic]
    removed = dict(old.removed)
    for number in numbers:
        partition = TopicPartition(topic, number)
        state = context.leadership.get(partition)
        epoch = state.leader_epoch if state is not None else context.first_leader_epoch(partition) - 1
        holders = (*old.partitions[number], *context.removed_replicas(partition))
        removed[number] = RemovedPartition(max(epoch, NO_EPOCH), holders)
    return replace(
        old,
        partitions={n: replicas for n, replicas in old.partitions.items() if n not in numbers},
        adding={n: replicas for n, replicas in old.adding.items() if n not in numbers},
        removing={n: replicas for n, replicas in old.removing.items() if n not in numbers},
        read_only=old.read_only.difference(numbers),
        removed=removed,
    )
