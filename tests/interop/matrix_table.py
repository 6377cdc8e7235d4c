"""Scenarios that run on every cluster, with their expected results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

from matrix_world import World

Run: TypeAlias = Callable[[World], Awaitable[object]]


class Difference(NamedTuple):
    """A different result on one cluster, and the reason."""

    expected: object
    why: str


class Scenario(NamedTuple):
    """One use of the library.

    :param subject: the heading on the page.
    :param title: the row on the page.
    :param expected: the result on every cluster that is not in ``others``.
    """

    subject: str
    title: str
    run: Run
    expected: object
    others: Mapping[str, Difference]

    @property
    def name(self) -> str:
        return f"{self.subject}: {self.title}".replace(" ", "-")

    def expected_on(self, cluster: str) -> object:
        """Return the expected result on a cluster."""
        other = self.others.get(cluster)
        return self.expected if other is None else other.expected


SCENARIOS: list[Scenario] = []


def scenario(
    subject: str, title: str, expected: object, others: Mapping[str, Difference] | None = None
) -> Callable[[Run], Run]:
    """Add a coroutine function, which returns its result, to the table.

    :param others: clusters with another result.
    """

    def register(run: Run) -> Run:
        SCENARIOS.append(Scenario(subject, title, run, expected, others or {}))
        return run

    return register
