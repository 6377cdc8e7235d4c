"""The table of the matrix: what is tried on every cluster, and what is seen then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

from matrix_world import World

Run: TypeAlias = Callable[[World], Awaitable[object]]


class Other(NamedTuple):
    """What is seen on a cluster that differs, and why."""

    expected: object
    why: str


class Scenario(NamedTuple):
    """Something that a user does with the library.

    :param subject: of what it is, for the page.
    :param title: what it shows, in a user's words.
    :param expected: what is seen, on every cluster unless ``others`` say something else.
    """

    subject: str
    title: str
    run: Run
    expected: object
    others: Mapping[str, Other]

    @property
    def name(self) -> str:
        return f"{self.subject}: {self.title}".replace(" ", "-")

    def expected_on(self, cluster: str) -> object:
        """What is seen there."""
        other = self.others.get(cluster)
        return self.expected if other is None else other.expected


SCENARIOS: list[Scenario] = []


def scenario(
    subject: str, title: str, expected: object, others: Mapping[str, Other] | None = None
) -> Callable[[Run], Run]:
    """Enters a coroutine function into the table; it returns what it saw.

    :param others: the clusters on which that differs.
    """

    def enter(run: Run) -> Run:
        SCENARIOS.append(Scenario(subject, title, run, expected, others or {}))
        return run

    return enter
