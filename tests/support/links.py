"""What a test may do to the ways between brokers, their coordinator and their clients, by whatever means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from types import TracebackType
from typing import Protocol, Self

COORDINATOR = 0
"""The coordinator, where brokers have their ids."""

CLIENTS = -1
"""Whoever is no broker."""


class Links(Protocol):
    """Ways between nodes, each of which goes in one direction; all are whole at first.

    A context manager: at its end nothing is left of it.  What is sent on a way that is cut is neither delivered nor
    refused: connections stay as they are, and go on when it is whole again, as with TCP.
    """

    def attach(self, pids: Callable[[], Mapping[int, int]]) -> None:
        """Be told how to find the brokers' processes.

        :param pids: process id -> broker id, of those that run.
        """

    def cut_one_way(self, sources: Iterable[int], destinations: Iterable[int]) -> None:
        """Let nothing through from any of the ones to any of the others."""

    def heal(self) -> None:
        """Make all ways whole."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


def cut(links: Links, some: Iterable[int], others: Iterable[int]) -> None:
    """Part two groups of nodes from each other, in both directions."""
    some, others = list(some), list(others)
    links.cut_one_way(some, others)
    links.cut_one_way(others, some)


def ways(sources: Iterable[int], destinations: Iterable[int]) -> list[tuple[int, int]]:
    """Every way from one of the ones to one of the others."""
    return [(source, destination) for source, destination in product(sources, destinations) if source != destination]
