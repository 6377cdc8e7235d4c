"""Evening out what brokers hold, at the least cost: pure, exact, and quick enough for 10,000 partitions.

It is a minimum-cost flow whose nodes are the brokers: an item that may move from one broker to another is an edge, and
an outside node stands for brokers that hold one more or one less.  A state from which no cycle of edges has a negative
cost cannot be made better (Klein's theorem), so whatever the quick direct moves do first, the end is an optimum: the
counts as even as the allowed moves let them be, and among such ends the cheapest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

OUTSIDE = -1
"""The node beside the brokers: a step from it takes one from a broker's count, a step to it adds one."""


class Move(NamedTuple):
    """An item that may go from one broker to another, and what that adds to the cost (refunds are negative)."""

    cost: int
    item: int


class Step(NamedTuple):
    """One edge of a cycle; without an item where it begins or ends at ``OUTSIDE``."""

    source: int
    target: int
    item: int | None


class Holdings(Protocol):
    """Items held by brokers.  Costs depend on where an item was and goes to, never on the way between."""

    @property
    def brokers(self) -> Sequence[int]:
        """Those that give and take, in an order that decides between equals."""

    def count(self, broker: int) -> int:
        """How many items it holds."""

    def cheapest_move(self, source: int, target: int) -> Move | None:
        """The cheapest that is allowed between these two."""

    def cost(self, item: int, source: int, target: int) -> int:
        """What that move adds to the cost."""

    def allows(self, item: int, source: int, target: int) -> bool:
        """Whether that move is allowed now."""

    def move(self, item: int, source: int, target: int) -> None:
        """Do it."""


def balance_counts(holdings: Holdings, total_cost_max: int) -> None:
    """Move items until the counts are as even as can be, and no cheaper way leads there.

    :param total_cost_max: more than all moves together may cost: one step of evenness is worth more than that.
    """
    _move_directly(holdings)
    while _cancel_a_cycle(holdings, total_cost_max):
        pass


def _move_directly(holdings: Holdings) -> None:
    """From the fullest to the emptiest, as long as that helps: nearly always all there is to do."""
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


def _cancel_a_cycle(holdings: Holdings, evenness: int) -> bool:
    """Go round one cycle of negative cost, if there is any."""
    cycle = _negative_cycle(_edges(holdings, evenness))
    if cycle is None:
        return False
    cycle = _without_repeats(holdings, cycle, evenness)
    steps = [(step.item, step.source, step.target) for step in cycle if step.item is not None]
    if not all(holdings.allows(*step) for step in steps):
        return False
    for step in steps:
        holdings.move(*step)
    return True


def _outside_cost(holdings: Holdings, step: Step, evenness: int) -> int:
    """The change of the sum of squared counts, which is least where the counts are most even."""
    if step.source == OUTSIDE:
        return -evenness * (2 * holdings.count(step.target) - 1)
    return evenness * (2 * holdings.count(step.source) + 1)


def _edges(holdings: Holdings, evenness: int) -> list[tuple[Step, int]]:
    edges = []
    for source in holdings.brokers:
        for step in (Step(OUTSIDE, source, None), Step(source, OUTSIDE, None)):
            edges.append((step, _outside_cost(holdings, step, evenness)))
        for target in holdings.brokers:
            move = holdings.cheapest_move(source, target) if source != target else None
            if move is not None:
                edges.append((Step(source, target, move.item), move.cost))
    return edges


def _negative_cycle(edges: Sequence[tuple[Step, int]]) -> list[Step] | None:
    """Bellman and Ford's search, from everywhere at once."""
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


def _without_repeats(holdings: Holdings, cycle: list[Step], evenness: int) -> list[Step]:
    """A part of the cycle, negative too, in which no item moves twice: one's move could forbid the other's."""
    while (repeat := _repeat(cycle)) is not None:
        first, second = repeat
        one, other = cycle[first], cycle[second]
        inner = [Step(other.source, one.target, one.item), *cycle[first + 1 : second]]
        outer = [*cycle[:first], Step(one.source, other.target, one.item), *cycle[second + 1 :]]
        cycle = min(inner, outer, key=lambda part: _cost(holdings, part, evenness))
    return cycle


def _repeat(cycle: Sequence[Step]) -> tuple[int, int] | None:
    seen: dict[int, int] = {}
    for index, step in enumerate(cycle):
        if step.item is not None and seen.setdefault(step.item, index) != index:
            return seen[step.item], index
    return None


def _cost(holdings: Holdings, cycle: Sequence[Step], evenness: int) -> int:
    return sum(
        _outside_cost(holdings, step, evenness)
        if step.item is None
        else holdings.cost(step.item, step.source, step.target)
        for step in cycle
    )
