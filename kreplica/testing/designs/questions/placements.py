"""Placements of replicas compared: loss of partitions when brokers die, and spread of a dead broker's load.

A partition is lost if all its replicas are on dead brokers.  If as many random brokers die at once as a partition has
replicas, the probability that a partition is lost is the part of all sets of brokers that hold a partition.  Fewer sets
lose a partition more rarely, but more partitions at a time, and fewer brokers take over the load of a dead one.
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


def by_shift(brokers: int, partitions: int, replication_factor: int) -> Assignment:
    """Return kreplica's placement, which equals Kafka's if the brokers divide the partitions evenly."""
    places = [BrokerPlace(number) for number in range(brokers)]
    return [*place(places, partitions, replication_factor).values()]


def of_first_design(brokers: int, partitions: int, replication_factor: int) -> Assignment:
    """Return the placement of V1: replica ``j`` of the ``k``-th partition of broker ``i`` on ``(i + j + k) mod n``.

    Taken literally, a follower falls on the leader for some ``k``; such a ``k`` is left out.
    """
    assignment = []
    steps = [k for k in range(brokers) if all((k + j) % brokers for j in range(1, replication_factor))]
    for partition in range(partitions):
        leader, number = partition % brokers, partition // brokers
        k = steps[number % len(steps)]
        assignment.append((leader, *((leader + j + k) % brokers for j in range(1, replication_factor))))
    return assignment


def by_copysets(brokers: int, partitions: int, replication_factor: int) -> Assignment:
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
        chosen, turn = sets[partition % len(sets)], partition // len(sets) % replication_factor
        assignment.append((*chosen[turn:], *chosen[:turn]))
    return assignment


PLACEMENTS: dict[str, Callable[[int, int, int], Assignment]] = {
    "kreplica": by_shift,
    "first design": of_first_design,
    "copysets": by_copysets,
}


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """Properties of one placement.

    :param loss: probability that a partition is lost if as many brokers die at once as a partition has replicas.
    :param lost_partitions: mean number of lost partitions if any is lost, with as many dead brokers as replicas.
    :param successors: mean number of brokers that take over leaderships of a dead broker.
    :param largest_share: largest part of a dead broker's leaderships that one broker takes over.
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

