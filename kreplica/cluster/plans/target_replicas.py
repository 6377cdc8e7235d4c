"""Computes the target replicas for each kind of plan.

Balancing moves no replicas of dead brokers, because a short outage does not justify copying all data. An operator must
drain a broker that will not return.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kreplica.cluster.count_balancing import balance_counts
from kreplica.cluster.held_replicas import HeldReplicas
from kreplica.cluster.placement import BrokerPlace, place
from kreplica.cluster.plans.cluster_state import ClusterState
from kreplica.cluster.plans.requests import AddPartitions, ChangeReplicationFactor, Drain, Reassign
from kreplica.cluster.rebalance import rebalance
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition

NEW_PARTITIONS_MAX = 10_000
"""Maximum number of partitions added by one plan."""

Replicas = tuple[int, ...]
Assignments = dict[TopicPartition, Replicas]


def reassigned(work: Reassign, cluster: ClusterState) -> Assignments:
    """Return the replicas given in the request.

    :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT.
    """
    for partition, replicas in work.assignments.items():
        before = cluster.replicas(partition)
        _check_replicas(partition, before, replicas, cluster)
    return dict(work.assignments)


def _check_replicas(partition: TopicPartition, before: Replicas, replicas: Replicas, cluster: ClusterState) -> None:
    if not replicas:
        raise _bad_assignment(f"{partition}: the list of replicas is empty: specify at least one broker")
    if len(set(replicas)) != len(replicas):
        raise _bad_assignment(f"{partition}: duplicate broker in {list(replicas)}")
    new = [replica for replica in replicas if replica not in before]
    dead = [replica for replica in new if replica not in cluster.brokers]
    if dead:
        raise _bad_assignment(
            f"{partition}: brokers {dead} are not alive and cannot get replicas: start them, or use other brokers"
        )
    cordoned = [replica for replica in new if replica in cluster.cordoned]
    if cordoned:
        raise _bad_assignment(
            f"{partition}: brokers {cordoned} are cordoned and cannot get replicas: uncordon them, or use other brokers"
        )


def with_factor(work: ChangeReplicationFactor, cluster: ClusterState) -> Assignments:
    """Return assignments with a new replication factor; dead and out-of-sync replicas are removed first.

    :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICATION_FACTOR.
    """
    targets, factor = cluster.assignments(work.topics), work.replication_factor
    if factor > len(cluster.receivers) and any(len(replicas) < factor for replicas in targets.values()):
        raise _too_few(f"replication factor {factor} was requested", cluster)
    held, keys, assignments = _held_replicas(cluster, without=())
    held.pin()
    for item, key in enumerate(keys):
        while key in targets and len(held.replicas(item)) > factor:
            held.drop_one(item, _droppable(key, assignments[key], held.replicas(item), cluster))
        while key in targets and len(held.replicas(item)) < factor:
            if not held.place_one(item):
                raise _too_few(f"{key} needs {factor} replicas", cluster)
    _even_out_placed(held, keys)
    return {key: _in_place(assignments[key], held.replicas(item)) for item, key in enumerate(keys) if key in targets}


def _droppable(
    partition: TopicPartition, before: Replicas, current: Collection[int], cluster: ClusterState
) -> Sequence[int]:
    """Return the replicas that should be removed first: dead, then out-of-sync ones, the preferred leader last."""
    remaining = [replica for replica in before if replica in current]
    in_sync = cluster.in_sync.get(partition, remaining)
    dead = [replica for replica in remaining if replica not in cluster.brokers]
    behind = [replica for replica in remaining if replica not in in_sync]
    useful = [replica for replica in remaining if replica in in_sync and replica in cluster.brokers]
    # Keep a dead replica if it is the only one in sync: no other may have the latest records.
    return [replica for replica in dead if useful or replica not in in_sync] or behind or remaining[1:] or remaining


def drained(work: Drain, cluster: ClusterState) -> Assignments:
    """Return assignments in which other brokers replace the drained ones, at the same positions in the replica lists.

    They contain only partitions that have a replica on a drained broker.

    :raise KafkaError: INVALID_REPLICATION_FACTOR if the other brokers cannot hold the replicas.
    """
    held, keys, assignments = _held_replicas(cluster, without=work.brokers)
    held.pin()
    affected = {key: item for item, key in enumerate(keys) if not set(work.brokers).isdisjoint(assignments[key])}
    for key, item in affected.items():
        while len(held.replicas(item)) < len(assignments[key]):
            if not held.place_one(item):
                raise _no_room(key, len(assignments[key]), work.brokers, cluster)
    _even_out_placed(held, keys)
    return {key: _in_place(assignments[key], held.replicas(item)) for key, item in affected.items()}


def balanced(
    topics: Collection[str] | None, cluster: ClusterState, weights: Mapping[TopicPartition, int] | None = None
) -> Assignments:
    """Return the changed assignments that balance replicas and preferred leaders with the fewest bytes moved.

    :param weights: weights to balance instead of counts; None to balance counts.
    :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
    """
    for partition in weights or ():
        cluster.replicas(partition)
    assignments = cluster.assignments(topics)
    racks = cluster.holders(assignments)
    if not assignments or not cluster.receivers:
        return {}
    staying = [broker for broker in racks if broker not in cluster.receivers]
    places = [BrokerPlace(broker, rack) for broker, rack in racks.items()]
    result = rebalance(assignments, places, cordoned=staying, sizes=cluster.sizes or None, weights=weights)
    return result.changed(assignments)


def added(work: AddPartitions, cluster: ClusterState) -> Assignments:
    """Return the replicas of new partitions.

    :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR.
    """
    topic = cluster.topic(work.topic)
    known, count = len(topic.partitions), work.partitions
    if count <= known:
        raise _bad_count(f"{work.topic} already has {known} partitions: request a larger number")
    if count - known > NEW_PARTITIONS_MAX:
        raise _bad_count(f"{count - known} partitions are too many for one plan: add at most {NEW_PARTITIONS_MAX}")
    for number in range(known, count):
        former = topic.removed.get(number)
        if former is not None and former.replicas:
            raise _bad_count(
                f"partition {number} of {work.topic} was removed, and brokers {list(former.replicas)} may still have "
                "its files: wait until they have deleted them (start those that are down)"
            )
    places = [BrokerPlace(broker, cluster.brokers[broker]) for broker in cluster.receivers]
    factor = len([r for r in topic.partitions[0] if r not in topic.removing.get(0, ())])
    if factor > len(places):
        raise _too_few(f"the partitions of {work.topic} have {factor} replicas", cluster)
    start = next((i for i, each in enumerate(places) if each.broker_id == topic.partitions[0][0]), 0)
    new = place(places, count - known, factor, start_index=start, shift=known, first_partition=known)
    return {TopicPartition(work.topic, number): replicas for number, replicas in new.items()}


def _held_replicas(
    cluster: ClusterState, without: Collection[int]
) -> tuple[HeldReplicas, list[TopicPartition], Mapping[TopicPartition, Replicas]]:
    """Return the replicas of all topics, so that new replicas are placed on the least loaded brokers."""
    assignments = cluster.assignments()
    racks = {broker: rack for broker, rack in cluster.holders(assignments).items() if broker not in without}
    keys = list(assignments)
    staying = [broker for broker in racks if broker not in cluster.receivers]
    held = HeldReplicas(racks, [assignments[key] for key in keys], [1] * len(keys), cordoned=staying)
    return held, keys, assignments


def _even_out_placed(held: HeldReplicas, keys: Sequence[TopicPartition]) -> None:
    """Balance the newly placed replicas; existing ones stay."""
    held.spread_over_racks()
    balance_counts(held, 1 + sum(len(held.replicas(item)) for item in range(len(keys))))


def _in_place(before: Replicas, current: Collection[int]) -> Replicas:
    """Return remaining replicas at their positions, then new ones at the positions of replaced ones and at the end."""
    new = [replica for replica in sorted(current) if replica not in before]
    row = []
    for replica in before:
        if replica in current:
            row.append(replica)
        elif new:
            row.append(new.pop(0))
    return (*row, *new)


def _no_room(partition: TopicPartition, factor: int, drained: Collection[int], cluster: ClusterState) -> KafkaError:
    remaining = [broker for broker in cluster.receivers if broker not in drained]
    return KafkaError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"{partition} has {factor} replicas, but without brokers {list(drained)} only {len(remaining)} live brokers "
        f"may hold them: {remaining}; add or uncordon brokers, drain fewer, or lower the replication factor",
    )


def _too_few(requirement: str, cluster: ClusterState) -> KafkaError:
    cordoned = [broker for broker in sorted(cluster.brokers) if broker in cluster.cordoned]
    cordoned_text = f" (cordoned: {', '.join(map(str, cordoned))})" if cordoned else ""
    return KafkaError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"{requirement}, but only {len(cluster.receivers)} live brokers can receive replicas: "
        f"{cluster.receivers}{cordoned_text}; "
        "start or uncordon brokers, or use a lower replication factor",
    )


def _bad_assignment(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


def _bad_count(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_PARTITIONS, text)
