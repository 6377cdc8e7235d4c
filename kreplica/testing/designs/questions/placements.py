"""Compares placements of replicas: partitions lost when brokers die, and the spread of a dead broker's load.

A partition is lost if all its replicas are on dead brokers.  If as many random brokers die at once as a partition has
replicas, the loss probability is the fraction of all sets of that many brokers that hold all replicas of a partition.
With fewer such sets, losses are rarer but affect more partitions, and fewer brokers take over a dead broker's load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import comb
from random import Random

from kreplica.cluster.placement import BrokerPlace, place

PARTITIONS_PER_BROKER = 20
REPLICATION_FACTORS = (2, 3)
BROKERS = (3, 10, 50)

Assignment = Sequence[tuple[int, ...]]


def kreplica_placement(brokers: int, partitions: int, replication_factor: int) -> Assignment:
    """Return kreplica's placement, which equals Kafka's if the brokers divide the partitions evenly."""
    places = [BrokerPlace(number) for number in range(brokers)]
    return [*place(places, partitions, replication_factor).values()]


def first_design_placement(brokers: int, partitions: int, replication_factor: int) -> Assignment:
    """Place replica ``j`` of the ``k``-th partition of broker ``i`` on ``(i + j + k) mod n``, as the first design does.

    For some ``k``, the formula places a follower on the leader's broker; these ``k`` are skipped.
    """
    assignment = []
    steps = [k for k in range(brokers) if all((k + j) % brokers for j in range(1, replication_factor))]
    for partition in range(partitions):
        leader, number = partition % brokers, partition // brokers
        k = steps[number % len(steps)]
        assignment.append((leader, *((leader + j + k) % brokers for j in range(1, replication_factor))))
    return assignment


def copyset_placement(brokers: int, partitions: int, replication_factor: int) -> Assignment:
    """Return a placement on few sets of brokers: two random permutations, cut into sets (Cidon et al., 2013)."""
    random, sets = Random(1), []
    for _ in range(2):
        order = random.sample(range(brokers), brokers)
        sets += [
            tuple(order[(first + index) % brokers] for index in range(replication_factor))
            for first in range(0, brokers, replication_factor)
        ]
    assignment = []
    for partition in range(partitions):
        chosen, rotation = sets[partition % len(sets)], partition // len(sets) % replication_factor
        assignment.append((*chosen[rotation:], *chosen[:rotation]))
    return assignment


PLACEMENTS: dict[str, Callable[[int, int, int], Assignment]] = {
    "kreplica": kreplica_placement,
    "first design": first_design_placement,
    "copysets": copyset_placement,
}


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """Properties of one placement.

    :param sets: number of different sets of brokers that hold all replicas of a partition.
    :param loss: probability that a partition is lost if as many brokers die at once as a partition has replicas.
    :param lost_partitions: mean number of lost partitions if any is lost, with as many dead brokers as replicas.
    :param successors: mean number of brokers that become leaders of a dead broker's partitions.
    :param largest_share: largest fraction of these partitions that one broker takes over.
    """

    placement: str
    brokers: int
    replication_factor: int
    sets: int
    loss: float
    lost_partitions: float
    successors: float
    largest_share: float


def placement_results() -> Iterator[PlacementResult]:
    """Yield the properties of each placement, for each number of replicas and brokers."""
    for replication_factor in REPLICATION_FACTORS:
        for brokers in BROKERS:
            for name, assign in PLACEMENTS.items():
                assignment = assign(brokers, brokers * PARTITIONS_PER_BROKER, replication_factor)
                yield _result(name, brokers, replication_factor, assignment)


def _result(name: str, brokers: int, replication_factor: int, assignment: Assignment) -> PlacementResult:
    sets = {frozenset(replicas) for replicas in assignment}
    successors = [
        Counter(replicas[1] for replicas in assignment if replicas[0] == dead) for dead in range(brokers)
    ]
    return PlacementResult(
        name,
        brokers,
        replication_factor,
        len(sets),
        len(sets) / comb(brokers, replication_factor),
        len(assignment) / len(sets),
        sum(map(len, successors)) / brokers,
        max(max(counts.values()) / counts.total() for counts in successors),
    )

