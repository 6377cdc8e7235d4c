"""Which brokers hold the replicas of new partitions: pure, the same answer for the same arguments.

Leaders go round robin over the brokers; the followers of one broker's partitions spread evenly over all others, since
the distance from leader to first follower grows by one each time the leaders have gone round.  With racks the brokers
are put in an order that alternates racks, and a partition's replicas avoid racks and brokers that have one while others
have none (as in Apache Kafka).  What that leaves uneven (a last round that is not full, racks of unequal size) is
evened out afterwards, by moving as few followers as can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kreplica.cluster.count_balancing import balance_counts
from kreplica.cluster.held_replicas import HeldReplicas
from kreplica.errors import ErrorCode, KafkaError


class BrokerPlace(NamedTuple):
    """A broker that can hold replicas, and where it stands."""

    broker_id: int
    rack: str | None = None


def place(
    brokers: Sequence[BrokerPlace],
    partitions: int,
    replication_factor: int,
    *,
    start_index: int = 0,
    shift: int = 0,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Replicas for ``partitions`` new partitions, the preferred leader first.

    :param start_index: which broker leads the first partition; drawn at random, so that topics of one partition spread.
    :param shift: the distance from the first leader to its first follower.
    :param first_partition: the number of the first new partition.
    :return: leaders differ by one at most, and so do replicas, where racks allow; a partition's replicas stand in as
        many racks as there are, and no rack has two more of them than another could have.
    :raise KafkaError: INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, or INVALID_REPLICA_ASSIGNMENT where some brokers
        name their rack and others do not.
    """
    check_numbers(brokers, partitions, replication_factor)
    order = _alternating_racks(brokers)
    racks = {broker.broker_id: broker.rack for broker in brokers}
    replicas_of = _replicas_by_rack if brokers[0].rack is not None else _replicas_by_shift
    assignment = {}
    for i in range(partitions):
        partition = first_partition + i
        if partition > 0 and partition % len(order) == 0:
            shift += 1
        leader = (partition + start_index) % len(order)
        assignment[partition] = replicas_of(order, racks, leader, shift, replication_factor)
    return _evened_out(assignment, racks)


def _evened_out(assignment: dict[int, tuple[int, ...]], racks: dict[int, str | None]) -> dict[int, tuple[int, ...]]:
    held = HeldReplicas(racks, list(assignment.values()), [1] * len(assignment), leaders_stay=True)
    held.spread_over_racks()
    balance_counts(held, 1 + sum(map(len, assignment.values())))
    evened = {}
    for item, (partition, replicas) in enumerate(assignment.items()):
        now = held.replicas(item)
        evened[partition] = (*(r for r in replicas if r in now), *sorted(set(now).difference(replicas)))
    return evened


def _replicas_by_shift(
    order: Sequence[int], racks: dict[int, str | None], leader: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    count = len(order)
    replicas = [order[leader]]
    for j in range(replication_factor - 1):
        distance = 1 + (shift + j) % (count - 1)
        replicas.append(order[(leader + distance) % count])
    return tuple(replicas)


def _replicas_by_rack(
    order: Sequence[int], racks: dict[int, str | None], leader: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    count = len(order)
    rack_count = len(set(racks.values()))
    replicas = [order[leader]]
    candidate = 0
    while len(replicas) < replication_factor:
        distance = 1 + (shift * rack_count + candidate) % (count - 1)
        broker = order[(leader + distance) % count]
        candidate += 1
        used = {racks[replica] for replica in replicas}
        # A rack is used again only when every rack has one; then a broker only when it has none.
        if broker not in replicas and (racks[broker] not in used or len(used) == rack_count):
            replicas.append(broker)
    return tuple(replicas)


def _alternating_racks(brokers: Sequence[BrokerPlace]) -> list[int]:
    """The brokers' ids, those of one rack as far apart as can be."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(brokers):
        by_rack.setdefault(broker.rack or "", []).append(broker.broker_id)
    order: list[int] = []
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    while any(queues):
        order += [queue.pop(0) for queue in queues if queue]
    return order


def check_numbers(brokers: Sequence[BrokerPlace], partitions: int, replication_factor: int) -> None:
    """:raise KafkaError: as ``place``, for what no placement can make good."""
    if partitions <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions were asked for; at least 1 is needed")
    if not 0 < replication_factor <= len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a replication factor of {replication_factor} was asked for; there are {len(brokers)} live brokers",
        )
    named = [broker for broker in brokers if broker.rack is not None]
    if named and len(named) != len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "some brokers name their rack (broker.rack) and others do not: either all of them do or none",
        )
