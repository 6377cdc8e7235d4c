"""How a classic group's leader shares partitions out: pure, the same answer to the same question.

* ``assignor`` what each of them is asked and answers; ``order`` the order in which all of them look at members
* ``range_assignor`` neighbouring partitions of each topic; ``round_robin`` one after the other
* ``sticky`` equal shares that move little, eagerly and cooperatively; ``sticky_data`` what its members carry with them
* this file: by their names
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
"""By the names that all Kafka clients have for them."""


def by_names(names: Iterable[str]) -> tuple[Assignor, ...]:
    """Those of these names, in their order.

    :raise ValueError: one is not known, or there is none.
    """
    found = tuple(names)
    unknown = [name for name in found if name not in ASSIGNORS]
    if unknown or not found:
        raise ValueError(f"assignors {unknown or '(none)'}: expected are {', '.join(ASSIGNORS)}")
    return tuple(ASSIGNORS[name] for name in found)
