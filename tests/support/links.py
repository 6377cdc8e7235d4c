"""Interface for cutting network links between brokers, their coordinator and their clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from types import TracebackType
from typing import Protocol, Self

COORDINATOR = 0
"""Node number of the coordinator; brokers have their broker IDs."""

CLIENTS = -1
"""Node number of all clients."""


class Links(Protocol):
    """One-way links between nodes, all up at first.

    Use it as a context manager, which removes everything it created at the end.  Packets on a link that is down are
    dropped, not refused: connections stay open and continue when the link is up again, as with TCP.
    """

    def attach(self, pids: Callable[[], Mapping[int, int]]) -> None:
        """Set the function that returns the process ID -> broker ID of all running brokers."""

    def cut_one_way(self, sources: Iterable[int], destinations: Iterable[int]) -> None:
        """Take down all links from the sources to the destinations."""

    def heal(self) -> None:
        """Bring all links up again."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


def cut(links: Links, group: Iterable[int], other_group: Iterable[int]) -> None:
    """Separate two groups of nodes in both directions."""
    group, other_group = list(group), list(other_group)
    links.cut_one_way(group, other_group)
    links.cut_one_way(other_group, group)


def node_pairs(sources: Iterable[int], destinations: Iterable[int]) -> list[tuple[int, int]]:
    """Return all pairs of a source and a different node as destination."""
    return [(source, destination) for source, destination in product(sources, destinations) if source != destination]
