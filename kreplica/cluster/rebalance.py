"""Where replicas go when brokers come, leave or are cordoned, or the replication factor changes: the least data moved.

What is balanced: how many replicas each broker holds (they differ by one at most, where racks allow), and how many
partitions each would lead as the preferred leader.  What is least: the bytes (without sizes: the replicas) that must be
copied to a broker that did not have them.  Leaders are balanced by order alone, with the fewest changes.  Where
partitions are given weights, these are balanced instead of numbers; ``weights`` says how, and promises no least.

Lower bound.  Let ``share`` be what a broker holds in balance.  Each replica on a broker that leaves must be copied, and
each broker with more than its share must give the rest away, so with replicas of one size no plan moves less than

    replicas of those who leave + sum over those who stay of max(0, held - share)

Without leaving brokers and racks a plan meets it exactly: the fuller of two brokers always has a partition that the
other has not.  A replica that must leave may find only brokers below their share that have the partition already; then
a second move is needed, and the bound is that of a minimum-cost flow, whose optimum ``exchanges`` finds.
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
    """A partition's data to be copied to ``target``.

    :param source: the broker that gives its place up; None where the partition gets one more replica.
    """

    partition: TopicPartition
    source: int | None
    target: int


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A plan.

    :param assignments: of every partition, the preferred leader first; survivors keep their order otherwise.
    :param moves: what has to be copied, in the order of the partitions.
    :param replica_counts: by broker, when all is done; ``leader_counts`` the same of preferred leaders.
    """

    assignments: dict[TopicPartition, tuple[int, ...]]
    moves: tuple[ReplicaMove, ...]
    replica_counts: dict[int, int]
    leader_counts: dict[int, int]

    def changed(self, before: Mapping[TopicPartition, Sequence[int]]) -> dict[TopicPartition, tuple[int, ...]]:
        """The assignments that are others than before, if only in order."""
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
    """The plan that reaches balance with the least data moved; the same for the same arguments.

    :param assignments: as they are, each with at least one replica.
    :param brokers: those that shall hold replicas; whoever is assigned something and is not among them was drained or
        lost, and whoever holds nothing yet was added.
    :param cordoned: brokers of these that keep what they have, and get nothing: they stand outside the balance.
    :param sizes: bytes of partitions; 0 where one is not named.  None: all are alike.
    :param replication_factor: what each partition shall have; None leaves each as it is.
    :param weights: what brokers shall hold and lead as much of as the others; 0 where one is not named.  None: they
        shall hold and lead as many partitions.
    :raise KafkaError: INVALID_REPLICATION_FACTOR where there are too few brokers to take what must be placed.
    """
    keys = sorted(assignments, key=lambda key: (0 if sizes is None else sizes.get(key, 0), key))
    costs = [1 if sizes is None else sizes.get(key, 0) for key in keys]
    racks = {broker.broker_id: broker.rack for broker in brokers}
    held = HeldReplicas(racks, [assignments[key] for key in keys], costs, cordoned=cordoned)
    for item, key in enumerate(keys):
        wanted = len(assignments[key]) if replication_factor is None else replication_factor
        _resize(held, item, key, wanted)
    held.spread_over_racks()
    weighed = None if weights is None else [weights.get(key, 0) for key in keys]
    if weighed is not None:
        balance_weights(held, weighed)
    else:
        balance_counts(held, 1 + sum(cost * len(held.replicas(item)) for item, cost in enumerate(costs)))
    chosen = [_in_order(assignments[key], held.replicas(item)) for item, key in enumerate(keys)]
    leaders = PreferredLeaders(list(racks), chosen)
    if weighed is not None:
        balance_weights(leaders, weighed)
    else:
        balance_counts(leaders, 1 + len(keys))
    planned = {key: leaders.ordered(item) for item, key in enumerate(keys)}
    replica_counts = Counter(replica for replicas in planned.values() for replica in replicas)
    leader_counts = Counter(replicas[0] for replicas in planned.values())
    return Rebalance(
        {key: planned[key] for key in sorted(planned)},
        tuple(move for key in sorted(planned) for move in _moves(key, assignments[key], planned[key], racks)),
        {broker: replica_counts[broker] for broker in sorted(racks)},
        {broker: leader_counts[broker] for broker in sorted(racks)},
    )


def _resize(held: HeldReplicas, item: int, key: TopicPartition, wanted: int) -> None:
    """Drop what is too much, place what is missing or stood on a broker that leaves."""
    if wanted < 1:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, f"a replication factor of {wanted} is not above 0")
    while len(held.replicas(item)) > wanted:
        held.drop_one(item)
    while len(held.replicas(item)) < wanted:
        if not held.place_one(item):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR, f"{key} needs {wanted} replicas, and there are too few brokers"
            )


def _in_order(before: Sequence[int], now: Collection[int]) -> tuple[int, ...]:
    """Survivors as they stood, then who is new."""
    return (*(replica for replica in before if replica in now), *sorted(set(now).difference(before)))


def _moves(
    key: TopicPartition, before: Sequence[int], now: Sequence[int], racks: Mapping[int, str | None]
) -> list[ReplicaMove]:
    """Who copies instead of whom; within one rack where that can be."""
    left = [replica for replica in before if replica not in now]
    moves = []
    for target in [replica for replica in now if replica not in before]:
        same_rack = [source for source in left if racks.get(source) == racks.get(target)]
        source = next(iter(same_rack or left), None)
        if source is not None:
            left.remove(source)
        moves.append(ReplicaMove(key, source, target))
    return moves
