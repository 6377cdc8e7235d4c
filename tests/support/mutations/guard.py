"""A rule on which replication stands, and what it would be like without: so the tests themselves are tested.

A guard is a small predicate with a name of its own, called through its module.  ``without`` replaces it by what a
program has that lacks it (mostly: always true); a storm or a scenario must then find something broken.  Where one guard
covers for another, both go together.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce
from importlib import import_module
from typing import Any, NamedTuple


class Place(NamedTuple):
    """One function or property, and what stands in its place.

    :param where: ``module:attribute``, dots for what belongs to a class.
    """

    where: str
    mutant: Any


class Guard(NamedTuple):
    """One rule.

    :param places: what goes together.
    :param scenario: the order of events in which its absence shows, whatever the seed.
    :param breaks: what it says then, as a regular expression.
    :param covered_by: why more than the rule itself is taken away; empty where it is not.
    """

    name: str
    places: tuple[Place, ...]
    scenario: Callable[[int], None]
    breaks: str
    covered_by: str = ""


@contextmanager
def without(guard: Guard) -> Iterator[None]:
    """Have all programs of this process lack a guard for a while."""
    with ExitStack() as stack:
        for place in guard.places:
            stack.enter_context(_replaced(place))
        yield


@contextmanager
def _replaced(place: Place) -> Iterator[None]:
    module, _, attribute = place.where.partition(":")
    *path, name = attribute.split(".")
    owner = reduce(getattr, path, import_module(module))
    before = inspect.getattr_static(owner, name)
    setattr(owner, name, place.mutant)
    try:
        yield
    finally:
        setattr(owner, name, before)


# --- what stands in a guard's place --------------------------------------------------------------------------------


def always(*_: Any, **__: Any) -> bool:
    return True


def never(*_: Any, **__: Any) -> bool:
    return False


def nothing(*_: Any, **__: Any) -> None:
    return None
