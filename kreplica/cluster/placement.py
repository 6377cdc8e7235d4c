"""Assigns replicas of new partitions to brokers. Pure and deterministic.

Leaders are assigned round robin. The distance from leader to first follower grows by one after each round, so that the
followers of one broker's partitions spread over all other brokers. With racks, brokers are ordered so that racks
alternate, and replicas avoid used racks and brokers while unused ones exist (as in Apache Kafka). The remaining
imbalance (an incomplete last round, racks of different size) is removed by moving as few followers as possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kreplica.cluster.count_balancing import balance_counts
from kreplica.cluster.held_replicas import HeldReplicas
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import Endpoint


class BrokerPlace(NamedTuple):
    """A broker that can hold replicas, and its rack or another failure domain (``failure_domains``)."""

    broker_id: int
    rack: str | None = None


def failure_domains(
    racks: Mapping[int, str | None], endpoints: Mapping[int, Iterable[Endpoint]]
) -> dict[int, str | None]:
    """Return the failure domain of each broker: its rack, or the host of its first listener if no broker has a rack.

    Broker processes on one machine fail together, so it is treated as a rack.

    :return: domains by broker ID; all None if no broker has a rack and the hosts all differ or are all the same.
    """
    if any(rack is not None for rack in racks.values()):
        return dict(racks)
    hosts = {broker: next((each.host for each in endpoints[broker]), "") for broker in racks}
    count = len(set(hosts.values()))
    return {broker: host if 1 < count < len(hosts) else None for broker, host in hosts.items()}


def place(
    brokers: Sequence[BrokerPlace],
    partitions: int,
    replication_factor: int,
    *,
    start_index: int = 0,
    shift: int = 0,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Return the replicas of new partitions, preferred leader first.

    :param partitions: number of new partitions.
    :param start_index: index of the first leader; random, so that topics with one partition spread over brokers.
    :param shift: distance from the first leader to its first follower.
    :param first_partition: number of the first new partition.
    :return: replicas by partition. The leader counts of any two brokers differ by at most one; so do their replica
        counts if the racks permit. The replicas of a partition are spread over as many racks as possible, as evenly as
        possible.
    :raise KafkaError: INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR; INVALID_REPLICA_ASSIGNMENT if only some brokers
        have a rack.
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
    balanced = {}
    for item, (partition, replicas) in enumerate(assignment.items()):
        current = held.replicas(item)
        balanced[partition] = (*(r for r in replicas if r in current), *sorted(set(current).difference(replicas)))
    return balanced


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
        # Use a rack again only after all racks are used; never use a broker twice.
        if broker not in replicas and (racks[broker] not in used or len(used) == rack_count):
            replicas.append(broker)
    return tuple(replicas)


def _alternating_racks(brokers: Sequence[BrokerPlace]) -> list[int]:
    """Return broker ids, ordered so that brokers in one rack are as far apart as possible."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(brokers):
        by_rack.setdefault(broker.rack or "", []).append(broker.broker_id)
    order: list[int] = []
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    while any(queues):
        order += [queue.pop(0) for queue in queues if queue]
    return order


def check_numbers(brokers: Sequence[BrokerPlace], partitions: int, replication_factor: int) -> None:
    """Check the arguments of ``place``.

    :raise KafkaError: see ``place``.
    """
    if partitions <= 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"invalid number of partitions: {partitions}; at least 1 is required"
        )
    if not 0 < replication_factor <= len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is not between 1 and the number of live brokers ({len(brokers)})",
        )
    with_rack = [broker for broker in brokers if broker.rack is not None]
    if with_rack and len(with_rack) != len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "some brokers have a rack (broker.rack) and others do not: set it for all brokers or for none",
        )
