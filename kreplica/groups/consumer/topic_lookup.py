"""Which topics the regular expressions of all groups name, kept up to date as topics come and go."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Protocol

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.consumer.state import Resolved
from kreplica.patterns.automaton import Automaton
from kreplica.patterns.parser import PatternError
from kreplica.runtime import Runtime
from kreplica.runtime.turns import Turns

EXPRESSIONS_MAX = 1000
"""So many are kept ready, those asked for last."""


class AllTopics(Protocol):
    """What of ``ClusterView`` the lookup needs."""

    def topics(self) -> Iterable[str]:
        """The names of all topics, sorted."""

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back whenever they may be others."""


class _Entry:
    """One expression; ``names`` are all topics that it was tried on, ``matching`` those of them that it names."""

    __slots__ = ("automaton", "matching", "names", "version")

    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        self.names: frozenset[str] = frozenset()
        self.matching: frozenset[str] = frozenset()
        self.version = -1


class TopicLookup:
    """Owned by the coordinator; shared by all its groups.

    :ivar version: grows whenever anything of the cluster's topics may be another: names, ids, counts of partitions.
    """

    def __init__(self, runtime: Runtime, cluster: AllTopics) -> None:
        self._runtime = runtime
        self._cluster = cluster
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._names: frozenset[str] = frozenset()
        self._names_version = -1
        self.version = 0
        cluster.on_change(self._changed)

    def _changed(self) -> None:
        self.version += 1

    def check(self, expression: str) -> None:
        """Refuse what is no regular expression.

        :raise KafkaError: INVALID_REGULAR_EXPRESSION; it says what is wrong.
        """
        self._entry(expression)

    def can_read(self, expression: str) -> bool:
        """Whether it is a regular expression here: another broker may have accepted what this one would refuse."""
        try:
            self.check(expression)
        except KafkaError:
            return False
        return True

    async def resolve(self, expressions: Iterable[str]) -> dict[str, Resolved]:
        """Look up the topics that expressions name; only topics that are new since the last time are tried.

        :raise KafkaError: INVALID_REGULAR_EXPRESSION.
        """
        turns = Turns(self._runtime.reactor)
        return {expression: await self._resolve(expression, turns) for expression in expressions}

    async def _resolve(self, expression: str, turns: Turns) -> Resolved:
        entry = self._entry(expression)
        if entry.version != self.version:
            version, names = self.version, self._all_names()
            matching = set(entry.matching & names)
            for name in sorted(names - entry.names):
                if entry.automaton.matches(name):
                    matching.add(name)
                if turns.is_over:
                    await turns.next()
            entry.names, entry.matching, entry.version = names, frozenset(matching), version
        return Resolved(tuple(sorted(entry.matching)), entry.version, self._runtime.wall_clock_ms())

    def _entry(self, expression: str) -> _Entry:
        entry = self._entries.get(expression)
        if entry is None:
            try:
                entry = self._entries[expression] = _Entry(Automaton(expression))
            except PatternError as error:
                raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
            if len(self._entries) > EXPRESSIONS_MAX:
                self._entries.popitem(last=False)
        self._entries.move_to_end(expression)
        return entry

    def _all_names(self) -> frozenset[str]:
        if self._names_version != self.version:
            self._names, self._names_version = frozenset(self._cluster.topics()), self.version
        return self._names
