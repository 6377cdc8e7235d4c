"""``Outcomes``: the results of a request for several items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from kreplica.client_core.errors import ClientError

K = TypeVar("K")
V = TypeVar("V")


class Outcomes(Generic[K, V]):
    """Result or error of each item, in request order; ``outcomes[item]`` returns the result or raises the error.

    :ivar succeeded: item -> result.
    :ivar failed: item -> error.
    """

    __slots__ = ("_all", "failed", "succeeded")

    def __init__(self, outcomes: Mapping[K, V | ClientError]) -> None:
        self._all = dict(outcomes)
        self.succeeded: Mapping[K, V] = MappingProxyType(
            {item: outcome for item, outcome in self._all.items() if not isinstance(outcome, ClientError)}
        )
        self.failed: Mapping[K, ClientError] = MappingProxyType(
            {item: outcome for item, outcome in self._all.items() if isinstance(outcome, ClientError)}
        )

    def __getitem__(self, item: K) -> V:
        """Return an item's result.

        :raise KeyError: the item was not requested.
        :raise ClientError: the item's error.
        """
        outcome = self._all[item]
        if isinstance(outcome, ClientError):
            raise outcome
        return outcome

    def __iter__(self) -> Iterator[K]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, item: object) -> bool:
        return item in self._all

    def __repr__(self) -> str:
        return f"<Outcomes {self._all}>"

    def raise_first(self) -> Mapping[K, V]:
        """Return all results.

        :raise ClientError: the first error.
        """
        for error in self.failed.values():
            raise error
        return self.succeeded
