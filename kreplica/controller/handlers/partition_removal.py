"""Partitions that are removed by a request znode each, ``/admin/partitions_remove/T/P``: the highest-numbered ones.

1. One multi makes the partition read-only: its leader, in a new epoch, refuses records; it is read and listed as ever.
2. When it has been so for long enough, one multi takes it out of the topic's znode, with its state and the request:
   clients are told that it is gone, and its replicas are stopped and deleted.
3. When all of them are gone, another multi frees its number (``departures``).

Until step 2 it is enough to remove the request, and the partition takes records again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

from kreplica.cluster import znodes
from kreplica.cluster.partition_requests import decode_removal
from kreplica.controller.decisions import decisions
from kreplica.controller.decisions.decisions import RulesOf
from kreplica.controller.decisions.elections import Election
from kreplica.controller.decisions.reassignment_plan import placement_of
from kreplica.controller.effects.state_writes import TopicChange
from kreplica.controller.event_types import RemovalDue
from kreplica.controller.handlers.assignment_writes import PARTITIONS_PER_CHANGE_MAX, change_topics
from kreplica.controller.handlers.partition_requests import path, read_requests, refuse, tidy
from kreplica.controller.state.context import ControllerContext, ReadOnly
from kreplica.controller.term import Office
from kreplica.model import NO_EPOCH, RemovedPartition, TopicAssignment, TopicPartition

Waits = Mapping[TopicPartition, float]


def may_go(waited_s: float, wait_s: float) -> bool:
    """Whether a read-only partition may be removed."""
    return waited_s >= wait_s


async def removals_asked(office: Office) -> None:
    """Somebody may have asked for partitions to be removed, or no longer does, or one has waited long enough."""
    waits, refused = await _read_waits(office)
    context, requests = office.context, office.requests()
    asked: dict[str, set[int]] = defaultdict(set)
    for partition in waits:
        asked[partition.topic].add(partition.partition)
    topics = sorted(asked.keys() | {topic for topic, assignment in context.topics.items() if assignment.read_only})
    for topic in topics:
        for number, reason in refusals(context, topic, asked[topic]).items():
            refused[path(znodes.PARTITIONS_REMOVE, TopicPartition(topic, number))] = reason
    rules = office.rules()
    await change_topics(office, topics, lambda topic: _reading_only(context, rules, topic, asked[topic]), requests)
    _note_read_only(office, waits)
    now_s = office.now_s()
    await change_topics(office, topics, lambda topic: _ending(context, topic, now_s), requests)
    requests.send()
    ended = [partition for partition in waits if context.leaving(partition) and not context.replicas(partition)]
    office.memory.tell_of_many("partitions_removed", "partition", ended, "{what}: removed, files are being deleted")
    await tidy(office, znodes.PARTITIONS_REMOVE, ended)
    await refuse(office, refused)
    _wake_when_due(office, now_s)


async def _read_waits(office: Office) -> tuple[dict[TopicPartition, float], dict[str, str]]:
    """By partition how long it is to be read-only; by path why its request cannot be understood."""
    waits: dict[TopicPartition, float] = {}
    refused: dict[str, str] = {}
    for partition, data in (await read_requests(office, znodes.PARTITIONS_REMOVE)).items():
        request = path(znodes.PARTITIONS_REMOVE, partition)
        try:
            wait_ms = decode_removal(request, data)
            waits[partition] = office.config.removal_wait_s if wait_ms is None else wait_ms / 1000
        except znodes.ZnodeError as error:
            refused[request] = str(error)
    return waits, refused


def _note_read_only(office: Office, waits: Waits) -> None:
    """Begin to count for partitions that are read-only now, and stop for those that are not."""
    context, now_s = office.context, office.now_s()
    known = context.read_only
    context.read_only = {
        partition: ReadOnly(known[partition].since_s if partition in known else now_s, wait_s)
        for partition, wait_s in waits.items()
        if partition.topic in context.topics and partition.partition in context.topics[partition.topic].read_only
    }


def _wake_when_due(office: Office, now_s: float) -> None:
    for partition, reading in office.context.read_only.items():
        if not may_go(now_s - reading.since_s, reading.wait_s):
            office.put_later(RemovalDue(*partition), reading.since_s + reading.wait_s - now_s)


# --- decisions --------------------------------------------------------------------------------------------------------


def removable(assignment: TopicAssignment, asked: Collection[int]) -> frozenset[int]:
    """Those of the asked partitions that can be removed: from the highest number down, never all of them."""
    accepted = set()
    number = len(assignment.partitions) - 1
    while number > 0 and number in asked and not placement_of(assignment, number).is_moving:
        accepted.add(number)
        number -= 1
    return frozenset(accepted)


def refusals(context: ControllerContext, topic: str, asked: Collection[int]) -> dict[int, str]:
    """Why requests will not be met, by partition."""
    if topic not in context.topics or topic in context.deleting:
        return dict.fromkeys(asked, "there is no such topic, or it is being deleted")
    assignment = context.topics[topic]
    accepted = removable(assignment, asked)
    return {number: refusal(assignment, number) for number in sorted(asked) if number not in accepted}


def refusal(assignment: TopicAssignment, number: int) -> str:
    """Why a partition cannot be removed now."""
    if number not in assignment.partitions:
        return "there is no such partition"
    if number == 0:
        return "a topic keeps at least one partition: delete the topic instead"
    if placement_of(assignment, number).is_moving:
        return "it is being reassigned"
    return "partitions with higher numbers have to be removed first, or together with it"


def _reading_only(context: ControllerContext, rules: RulesOf, topic: str, asked: Collection[int]) -> TopicChange | None:
    """Step one, for all that were asked for; and its undoing for those that are asked for no more."""
    assignment = context.topics[topic]
    turning = sorted(removable(assignment, asked) ^ assignment.read_only)[:PARTITIONS_PER_CHANGE_MAX]
    if not turning:
        return None
    states = []
    for partition in (TopicPartition(topic, number) for number in turning):
        state = context.leadership.get(partition)
        if state is not None:
            states.append(decisions.changed(context, partition, Election(state.leader, state.isr), rules))
    changed = replace(assignment, read_only=assignment.read_only ^ set(turning))
    return TopicChange(changed, context.topic_versions[topic], tuple(states))


def _ending(context: ControllerContext, topic: str, now_s: float) -> TopicChange | None:
    """Step two, for those that have waited long enough and have none above them that has not."""
    assignment = context.topics[topic]
    ending: list[int] = []
    number = len(assignment.partitions) - 1
    while number > 0 and len(ending) < PARTITIONS_PER_CHANGE_MAX:
        reading = context.read_only.get(TopicPartition(topic, number))
        if number not in assignment.read_only or reading is None or not may_go(now_s - reading.since_s, reading.wait_s):
            break
        ending.append(number)
        number -= 1
    if not ending:
        return None
    partitions = [TopicPartition(topic, number) for number in ending]
    return TopicChange(
        without_partitions(context, topic, ending),
        context.topic_versions[topic],
        ends=tuple((p, context.leadership[p]) for p in partitions if p in context.leadership),
        requests=tuple(znodes.partitions_remove_path(topic, number) for number in ending),
    )


def without_partitions(context: ControllerContext, topic: str, numbers: Collection[int]) -> TopicAssignment:
    """A topic's assignment without these partitions, and with what has to be remembered of them."""
    old = context.topics[topic]
    removed = dict(old.removed)
    for number in numbers:
        partition = TopicPartition(topic, number)
        state = context.leadership.get(partition)
        epoch = state.leader_epoch if state is not None else context.first_leader_epoch(partition) - 1
        holders = (*old.partitions[number], *context.leaving(partition))
        removed[number] = RemovedPartition(max(epoch, NO_EPOCH), holders)
    return replace(
        old,
        partitions={n: replicas for n, replicas in old.partitions.items() if n not in numbers},
        adding={n: replicas for n, replicas in old.adding.items() if n not in numbers},
        removing={n: replicas for n, replicas in old.removing.items() if n not in numbers},
        read_only=old.read_only.difference(numbers),
        removed=removed,
    )
