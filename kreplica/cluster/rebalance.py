"""Computes balanced assignments with the fewest bytes moved.

Used after brokers join, leave or are cordoned, and after the replication factor changes. It balances the number of
replicas of each broker (they differ by at most one if racks permit) and the number of preferred leaders, while copying
the fewest bytes (or replicas, if sizes are unknown). Leaders are balanced only by reordering replicas, with the fewest
changes. If weights are given, they are balanced instead of counts, by a heuristic (``weight_balancing``).

Lower bound. Let ``share`` be the number of replicas that a broker has in a balanced cluster. Every replica on a leaving
broker must be copied, and every broker above its share must give up the excess. If replicas have equal sizes, no plan
can move fewer than

    replicas of leaving brokers + sum over remaining brokers of max(0, held - share)

If there are no leaving brokers and no racks, this bound is reached: the fuller of two brokers always has a partition
that the other lacks. If a broker leaves, all brokers below their share may already hold a partition of the leaving
broker. A second move is then needed, and the bound is that of a minimum-cost flow, which ``count_balancing`` reaches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kreplica.cluster.count_balancing import balance_counts
from kreplica.cluster.held_replicas import HeldReplicas, PreferredLeaders
from kreplica.cluster.placement import BrokerPlace
from kreplica.cluster.weight_balancing import balance_weights
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition


class ReplicaMove(NamedTuple):
    """Data of a partition to be copied to ``target``.

    :param source: the broker whose replica is replaced; None if the partition gets an additional replica.
    """

    partition: TopicPartition
    source: int | None
    target: int


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Result of a rebalance.

    :param assignments: replicas of every partition, preferred leader first; other remaining replicas keep their order.
    :param moves: data to be copied, in partition order.
    :param replica_counts: replicas by broker after all moves.
    :param leader_counts: preferred leaders by broker after all moves.
    """

    assignments: dict[TopicPartition, tuple[int, ...]]
    moves: tuple[ReplicaMove, ...]
    replica_counts: dict[int, int]
    leader_counts: dict[int, int]

    def changed(self, before: Mapping[TopicPartition, Sequence[int]]) -> dict[TopicPartition, tuple[int, ...]]:
        """Return the assignments that differ from ``before``, including those that differ only in order."""
        return {key: replicas for key, replicas in self.assignments.items() if replicas != tuple(before[key])}


def rebalance(
    assignments: Mapping[TopicPartition, Sequence[int]],
    brokers: Sequence[BrokerPlace],
    *,
    cordoned: Collection[int] = (),
    sizes: Mapping[TopicPartition, int] | None = None,
    replication_factor: int | None = None,
    weights: Mapping[TopicPartition, int] | None = None,
) -> Rebalance:
    """Return the balanced assignment with the fewest bytes moved. Deterministic.

    :param assignments: current replicas of each partition; at least one.
    :param brokers: brokers that may hold replicas. A broker that has replicas but is not listed is leaving; a listed
        broker without replicas is new.
    :param cordoned: listed brokers that keep their replicas, get no new ones, and do not take part in the balance.
    :param sizes: bytes by partition; 0 for missing partitions. None if all partitions have the same size.
    :param replication_factor: new replication factor of each partition; None to keep the current ones.
    :param weights: weights to balance instead of counts; 0 for missing partitions. None to balance counts.
    :raise KafkaError: INVALID_REPLICATION_FACTOR if there are too few brokers.
    """
    keys = sorted(assignments, key=lambda key: (0 if sizes is None else sizes.get(key, 0), key))
    costs = [1 if sizes is None else sizes.get(key, 0) for key in keys]
    racks = {broker.broker_id: broker.rack for broker in brokers}
    held = HeldReplicas(racks, [assignments[key] for key in keys], costs, cordoned=cordoned)
    for item, key in enumerate(keys):
        target_size = len(assignments[key]) if replication_factor is None else replication_factor
        _resize(held, item, key, target_size)
    held.spread_over_racks()
    item_weights = None if weights is None else [weights.get(key, 0) for key in keys]
    if item_weights is not None:
        balance_weights(held, item_weights)
    else:
        balance_counts(held, 1 + sum(cost * len(held.replicas(item)) for item, cost in enumerate(costs)))
    chosen = [_in_order(assignments[key], held.replicas(item)) for item, key in enumerate(keys)]
    leaders = PreferredLeaders(list(racks), chosen)
    if item_weights is not None:
        balance_weights(leaders, item_weights)
    else:
        balance_counts(leaders, 1 + len(keys))
    planned = {key: leaders.replicas_in_order(item) for item, key in enumerate(keys)}
    replica_counts = Counter(replica for replicas in planned.values() for replica in replicas)
    leader_counts = Counter(replicas[0] for replicas in planned.values())
    return Rebalance(
        {key: planned[key] for key in sorted(planned)},
        tuple(move for key in sorted(planned) for move in _moves(key, assignments[key], planned[key], racks)),
        {broker: replica_counts[broker] for broker in sorted(racks)},
        {broker: leader_counts[broker] for broker in sorted(racks)},
    )


def _resize(held: HeldReplicas, item: int, key: TopicPartition, target_size: int) -> None:
    """Remove excess replicas, and place additional ones and those of leaving brokers."""
    if target_size < 1:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {target_size} is not above 0")
    while len(held.replicas(item)) > target_size:
        held.drop_one(item)
    while len(held.replicas(item)) < target_size:
        if not held.place_one(item):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR, f"there are too few brokers for {target_size} replicas of {key}"
            )


def _in_order(before: Sequence[int], after: Collection[int]) -> tuple[int, ...]:
    """Return remaining replicas in their previous order, then new ones."""
    return (*(replica for replica in before if replica in after), *sorted(set(after).difference(before)))


def _moves(
    key: TopicPartition, before: Sequence[int], after: Sequence[int], racks: Mapping[int, str | None]
) -> list[ReplicaMove]:
    """Pair new replicas with replaced ones, within the same rack if possible."""
    replaced = [replica for replica in before if replica not in after]
    moves = []
    for target in [replica for replica in after if replica not in before]:
        same_rack = [source for source in replaced if racks.get(source) == racks.get(target)]
        source = next(iter(same_rack or replaced), None)
        if source is not None:
            replaced.remove(source)
        moves.append(ReplicaMove(key, source, target))
    return moves
