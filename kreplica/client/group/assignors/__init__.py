"""Assignors of classic groups: deterministic functions of topics and members.

* ``assignor``: the interface; ``balancing``: equal shares with few moves
* ``range_assignor``: ranges of each topic; ``round_robin``: partitions in turn
* ``sticky``: equal shares with few moves, eager and cooperative; ``sticky_data``: user data of members
"""

from __future__ import annotations

from collections.abc import Iterable

from kreplica.client.group.assignors.assignor import Assignor, Member, Topics
from kreplica.client.group.assignors.range_assignor import RangeAssignor
from kreplica.client.group.assignors.round_robin import RoundRobinAssignor
from kreplica.client.group.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = ["ASSIGNORS", "Assignor", "Member", "Topics", "by_names"]

ASSIGNORS: dict[str, Assignor] = {
    each.name: each for each in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}
"""Assignors by name; all Kafka clients use these names."""


def by_names(names: Iterable[str]) -> tuple[Assignor, ...]:
    """Return assignors by name, in order.

    :raise ValueError: a name is unknown, or ``names`` is empty.
    """
    found = tuple(names)
    unknown = [name for name in found if name not in ASSIGNORS]
    if unknown or not found:
        raise ValueError(f"unknown assignors {unknown or '(none)'}; the assignors are {', '.join(ASSIGNORS)}")
    return tuple(ASSIGNORS[name] for name in found)
