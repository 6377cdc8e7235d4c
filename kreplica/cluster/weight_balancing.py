"""Balances the weights (data or traffic) that brokers hold. Pure functions.

An exact solution is NP-hard, so this is a local search: it moves or swaps single partitions between the most loaded
brokers and less loaded ones as long as this reduces the difference. It ends when all brokers are within the tolerance
or no move helps. Partitions without a weight are not moved.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple, Protocol

TOLERANCE = 0.05
"""Tolerated difference between two brokers, as a fraction of the mean: nothing is moved if it is smaller."""

STEPS_MAX = 100_000


class Exchange(NamedTuple):
    """A move of one item, possibly in exchange for another."""

    item: int
    back: int | None


class WeighedHoldings(Protocol):
    """Items held by brokers, whose weights are balanced."""

    @property
    def brokers(self) -> Sequence[int]:
        """Participating brokers; their order breaks ties."""

    def items(self, broker: int) -> Iterable[int]:
        """Return the items that a broker holds."""

    def allows(self, item: int, source: int, target: int) -> bool:
        """Return True if the move is allowed now."""

    def move(self, item: int, source: int, target: int) -> None:
        """Move an item."""


def balance_weights(holdings: WeighedHoldings, weights: Sequence[int]) -> None:
    """Move items until all brokers hold about the same weight.

    :param weights: weight of each item; 0 or more.
    """
    loads = {broker: sum(weights[item] for item in holdings.items(broker)) for broker in holdings.brokers}
    if not loads:
        return
    gap_tolerated = TOLERANCE * sum(loads.values()) / len(loads)
    for _ in range(STEPS_MAX):
        if not _step(holdings, weights, loads, gap_tolerated):
            return


def _step(holdings: WeighedHoldings, weights: Sequence[int], loads: dict[int, int], gap_tolerated: float) -> bool:
    """Apply the first exchange that helps, for the pair of brokers that differ most."""
    order = sorted(holdings.brokers, key=lambda broker: (-loads[broker], broker))
    pairs = sorted(combinations(order, 2), key=lambda pair: loads[pair[1]] - loads[pair[0]])
    for source, target in pairs:
        gap = loads[source] - loads[target]
        if gap <= gap_tolerated:
            return False
        found = _best(holdings, weights, source, target, gap)
        if found is not None:
            holdings.move(found.item, source, target)
            if found.back is not None:
                holdings.move(found.back, target, source)
            net = weights[found.item] - (0 if found.back is None else weights[found.back])
            loads[source] -= net
            loads[target] += net
            return True
    return False


def _best(holdings: WeighedHoldings, weights: Sequence[int], source: int, target: int, gap: int) -> Exchange | None:
    """Return the best exchange between two brokers.

    A swap is considered only if no single move achieves half of the largest possible gain.
    """
    outgoing = _movable(holdings, weights, source, target)
    single = max(outgoing, key=lambda item: _gain(weights[item], gap), default=None)
    gain = 0 if single is None else max(0, _gain(weights[single], gap))
    best = None if single is None or not gain else Exchange(single, None)
    if 8 * gain >= gap * gap:
        return best
    incoming = _movable(holdings, weights, target, source)
    sizes = [weights[item] for item in incoming]
    for item in outgoing:
        nearest = bisect_left(sizes, weights[item] - gap / 2)
        for index in (nearest - 1, nearest):
            if 0 <= index < len(incoming) and _gain(weights[item] - sizes[index], gap) > gain:
                gain = _gain(weights[item] - sizes[index], gap)
                best = Exchange(item, incoming[index])
    return best


def _movable(holdings: WeighedHoldings, weights: Sequence[int], source: int, target: int) -> list[int]:
    """Return the movable items, lightest first."""
    items = (item for item in holdings.items(source) if weights[item] and holdings.allows(item, source, target))
    return sorted(items, key=lambda item: (weights[item], item))


def _gain(net: int, gap: int) -> int:
    """Return half the reduction of the sum of squared loads; negative if it grows."""
    return net * (gap - net)
