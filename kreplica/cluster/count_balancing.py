"""Balances the number of items that brokers hold, at minimum cost. Pure, exact, and fast enough for 10,000 partitions.

This is a minimum-cost flow: brokers are nodes, possible moves are edges, and edges from and to an outside node
represent changes of a broker's count. A state without a cycle of negative cost is optimal (Klein's theorem), so the
result does not depend on the direct moves made first: counts are as even as the allowed moves permit, at the lowest
cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

OUTSIDE = -1
"""The outside node: an edge from it reduces a broker's count by one, an edge to it increases the count by one."""


class Move(NamedTuple):
    """A possible move of an item and its cost; the cost is negative if it undoes an earlier move."""

    cost: int
    item: int


class Step(NamedTuple):
    """Edge of a cycle; it has no item if it starts or ends at ``OUTSIDE``."""

    source: int
    target: int
    item: int | None


class Holdings(Protocol):
    """Items held by brokers. Costs depend only on the original and the final broker of an item."""

    @property
    def brokers(self) -> Sequence[int]:
        """Participating brokers; their order breaks ties."""

    def count(self, broker: int) -> int:
        """Return the number of items that a broker holds."""

    def cheapest_move(self, source: int, target: int) -> Move | None:
        """Return the cheapest allowed move between two brokers, or None."""

    def cost(self, item: int, source: int, target: int) -> int:
        """Return the cost of a move."""

    def allows(self, item: int, source: int, target: int) -> bool:
        """Return True if the move is allowed now."""

    def move(self, item: int, source: int, target: int) -> None:
        """Move an item."""


def balance_counts(holdings: Holdings, total_cost_max: int) -> None:
    """Move items until counts are as even as possible, at the lowest cost.

    :param total_cost_max: upper bound for the total cost of all moves, used to give evenness priority over cost.
    """
    _move_directly(holdings)
    while _cancel_a_cycle(holdings, total_cost_max):
        pass


def _move_directly(holdings: Holdings) -> None:
    """Move items from the fullest to the emptiest broker while this helps; usually sufficient."""
    while (step := _direct_step(holdings)) is not None:
        assert step.item is not None
        holdings.move(step.item, step.source, step.target)


def _direct_step(holdings: Holdings) -> Step | None:
    order = sorted(holdings.brokers, key=holdings.count)
    for source in reversed(order):
        for target in order:
            if holdings.count(source) - holdings.count(target) < 2:
                break
            move = holdings.cheapest_move(source, target)
            if move is not None:
                return Step(source, target, move.item)
    return None


def _cancel_a_cycle(holdings: Holdings, evenness_weight: int) -> bool:
    """Apply one cycle of negative cost; return False if there is none."""
    cycle = _negative_cycle(_edges(holdings, evenness_weight))
    if cycle is None:
        return False
    cycle = _without_repeats(holdings, cycle, evenness_weight)
    steps = [(step.item, step.source, step.target) for step in cycle if step.item is not None]
    if not all(holdings.allows(*step) for step in steps):
        return False
    for step in steps:
        holdings.move(*step)
    return True


def _outside_cost(holdings: Holdings, step: Step, evenness_weight: int) -> int:
    """Return the change in the sum of squared counts, which is smallest if the counts are even."""
    if step.source == OUTSIDE:
        return -evenness_weight * (2 * holdings.count(step.target) - 1)
    return evenness_weight * (2 * holdings.count(step.source) + 1)


def _edges(holdings: Holdings, evenness_weight: int) -> list[tuple[Step, int]]:
    edges = []
    for source in holdings.brokers:
        for step in (Step(OUTSIDE, source, None), Step(source, OUTSIDE, None)):
            edges.append((step, _outside_cost(holdings, step, evenness_weight)))
        for target in holdings.brokers:
            move = holdings.cheapest_move(source, target) if source != target else None
            if move is not None:
                edges.append((Step(source, target, move.item), move.cost))
    return edges


def _negative_cycle(edges: Sequence[tuple[Step, int]]) -> list[Step] | None:
    """Find a cycle of negative cost with the Bellman-Ford algorithm, starting from all nodes."""
    distance = dict.fromkeys((step.source for step, _ in edges), 0)
    reached_by: dict[int, Step] = {}
    for _ in range(len(distance) + 1):
        last = None
        for step, cost in edges:
            if distance[step.source] + cost < distance[step.target]:
                distance[step.target] = distance[step.source] + cost
                reached_by[step.target] = step
                last = step.target
        if last is None:
            return None
    assert last is not None
    for _ in distance:
        last = reached_by[last].source
    cycle = [reached_by[last]]
    while cycle[-1].source != last:
        cycle.append(reached_by[cycle[-1].source])
    return cycle[::-1]


def _without_repeats(holdings: Holdings, cycle: list[Step], evenness_weight: int) -> list[Step]:
    """Return a negative part of the cycle in which no item moves twice, because one move could rule out the other."""
    while (repeat := _repeat(cycle)) is not None:
        first, second = repeat
        first_step, second_step = cycle[first], cycle[second]
        inner = [Step(second_step.source, first_step.target, first_step.item), *cycle[first + 1 : second]]
        outer = [*cycle[:first], Step(first_step.source, second_step.target, first_step.item), *cycle[second + 1 :]]
        cycle = min(inner, outer, key=lambda part: _cost(holdings, part, evenness_weight))
    return cycle


def _repeat(cycle: Sequence[Step]) -> tuple[int, int] | None:
    seen: dict[int, int] = {}
    for index, step in enumerate(cycle):
        if step.item is not None and seen.setdefault(step.item, index) != index:
            return seen[step.item], index
    return None


def _cost(holdings: Holdings, cycle: Sequence[Step], evenness_weight: int) -> int:
    return sum(
        _outside_cost(holdings, step, evenness_weight)
        if step.item is None
        else holdings.cost(step.item, step.source, step.target)
        for step in cycle
    )
