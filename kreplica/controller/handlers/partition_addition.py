"""Adds partitions; each znode ``/admin/partitions_add/T/P`` requests one partition.

One multi updates the topic's znode and removes the requests, so each request is executed only once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

from kreplica.cluster import znodes
from kreplica.cluster.partition_requests import decode_addition
from kreplica.controller.decisions.reassignment_plan import placement_of
from kreplica.controller.effects.state_writes import TopicChange
from kreplica.controller.handlers.assignment_writes import PARTITIONS_PER_CHANGE_MAX, change_topics
from kreplica.controller.handlers.partition_requests import path, read_requests, reject, remove_parents
from kreplica.controller.handlers.topic_creation import start_new_partitions
from kreplica.controller.state.context import ControllerContext
from kreplica.controller.term import ControllerTerm
from kreplica.model import TopicAssignment, TopicPartition

Replicas = tuple[int, ...]


async def handle_additions(term: ControllerTerm) -> None:
    """Add the requested partitions that directly follow the existing ones, and reject impossible requests."""
    requests: dict[str, dict[int, Replicas]] = defaultdict(dict)
    rejections: dict[str, str] = {}
    for partition, data in (await read_requests(term, znodes.PARTITIONS_ADD)).items():
        try:
            request = path(znodes.PARTITIONS_ADD, partition)
            requests[partition.topic][partition.partition] = decode_addition(request, data)
        except znodes.ZnodeError as error:
            rejections[request] = str(error)
    context, batch = term.context, term.new_batch()
    for topic, rows in requests.items():
        for number, reason in rejection_reasons(context, topic, rows).items():
            rejections[path(znodes.PARTITIONS_ADD, TopicPartition(topic, number))] = reason
    await change_topics(term, sorted(requests), lambda topic: _growth(context, topic, requests[topic]), batch)
    batch.send()
    await start_new_partitions(term, sorted(requests))
    requested = [TopicPartition(topic, number) for topic, rows in requests.items() for number in rows]
    existing = [partition for partition in requested if context.replicas(partition)]
    await remove_parents(term, znodes.PARTITIONS_ADD, existing)
    await reject(term, rejections)


def _growth(context: ControllerContext, topic: str, requests: Mapping[int, Replicas]) -> TopicChange | None:
    assignment = context.topics[topic]
    new = next_partitions(assignment, requests, context.brokers)
    if not new:
        return None
    fulfilled = tuple(znodes.partitions_add_path(topic, number) for number in new)
    grown = replace(assignment, partitions=assignment.partitions | new)
    return TopicChange(grown, context.topic_versions[topic], requests=fulfilled)


def next_partitions(
    assignment: TopicAssignment, requests: Mapping[int, Replicas], live: Collection[int]
) -> dict[int, Replicas]:
    """Return the requested partitions that follow the existing ones without a gap and can be created."""
    new: dict[int, Replicas] = {}
    number = len(assignment.partitions)
    while number in requests and len(new) < PARTITIONS_PER_CHANGE_MAX:
        if rejection(assignment, number, requests[number], live) is not None:
            break
        new[number] = requests[number]
        number += 1
    return new


def rejection_reasons(context: ControllerContext, topic: str, requests: Mapping[int, Replicas]) -> dict[int, str]:
    """Return the reason for each rejected request, by partition.

    A request waits if the preceding partition neither exists nor is requested.  A request that follows a rejected one
    is also rejected, because it would otherwise wait indefinitely.
    """
    if topic not in context.topics or topic in context.deleting:
        return dict.fromkeys(requests, "the topic does not exist or is being deleted")
    assignment = context.topics[topic]
    found: dict[int, str] = {}
    rejected: int | None = None
    for number in sorted(requests):
        reason = rejection(assignment, number, requests[number], context.brokers)
        if reason is None and rejected is not None:
            reason = f"it follows partition {rejected}, which was rejected"
        if reason is not None:
            found[number] = reason
            if number not in assignment.partitions:
                rejected = number
    return found


def rejection(assignment: TopicAssignment, number: int, replicas: Replicas, live: Collection[int]) -> str | None:
    """Return why a partition with this number cannot be created on these brokers, or None."""
    if number in assignment.partitions:
        return "the partition already exists"
    if assignment.read_only:
        return f"partitions are being removed: {sorted(assignment.read_only)}"
    removed = assignment.removed.get(number)
    if removed is not None and removed.replicas:
        return f"the partition was removed before, and brokers {list(removed.replicas)} may still have its files"
    if len(set(replicas)) != len(replicas):
        return f"duplicate broker in {list(replicas)}"
    dead = [replica for replica in replicas if replica not in live]
    if dead:
        return f"brokers are not live: {dead}"
    factor = len(placement_of(assignment, 0).target)
    if len(replicas) != factor:
        return f"{len(replicas)} replicas were requested, but the topic has replication factor {factor}"
    return None
