"""A guard: a rule in the product, together with the mutants that disable it.

A guard is a small named function that is called through its module.  ``without`` replaces it with the behaviour of a
program that lacks the rule (usually "always true"); a storm or a scenario must then fail.  If one guard makes another
redundant, both are disabled together.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce
from importlib import import_module
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A function or property, and its replacement.

    :param where: ``module:attribute``, or ``module:Class.attribute``.
    """

    where: str
    mutant: Any


class Guard(NamedTuple):
    """One rule.

    :param places: functions that are replaced together.
    :param scenario: scenario that fails without the rule, for every seed.
    :param breaks: regular expression that matches the failure's message.
    :param covered_by: reason why other rules must be disabled too; empty if none must.
    """

    name: str
    places: tuple[Place, ...]
    scenario: Callable[[int], None]
    breaks: str
    covered_by: str = ""


@contextmanager
def without(guard: Guard) -> Iterator[None]:
    """Disable a guard in all simulated programs in this process."""
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


# --- replacements --------------------------------------------------------------------------------------------------


def always(*_: Any, **__: Any) -> bool:
    return True


def never(*_: Any, **__: Any) -> bool:
    return False


def nothing(*_: Any, **__: Any) -> None:
    return None
