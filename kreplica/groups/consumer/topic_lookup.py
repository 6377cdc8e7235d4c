"""Finds the topics that match the regular expressions of all groups and keeps the matches up to date."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Protocol

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.consumer.state import MatchedTopics
from kreplica.patterns.automaton import Automaton
from kreplica.patterns.parser import PatternError
from kreplica.runtime import Runtime
from kreplica.runtime.time_slice import TimeSlice

EXPRESSIONS_MAX = 1000
"""Maximum number of cached expressions; the least recently used ones are evicted."""


class AllTopics(Protocol):
    """The part of ``ClusterView`` that the lookup uses."""

    def topics(self) -> Iterable[str]:
        """Return the names of all topics, sorted."""

    def on_change(self, callback: Callable[[], None]) -> None:
        """Register a callback for topic changes."""


class _Entry:
    """One expression: ``names`` are the topics that it was matched against, ``matching`` those that matched."""

    __slots__ = ("automaton", "matching", "names", "version")

    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        self.names: frozenset[str] = frozenset()
        self.matching: frozenset[str] = frozenset()
        self.version = -1


class TopicLookup:
    """Cache of the topics that match each expression; owned by the coordinator and shared by all its groups.

    :ivar version: incremented when names, ids or partition counts of topics may have changed.
    """

    def __init__(self, runtime: Runtime, cluster: AllTopics) -> None:
        self._runtime = runtime
        self._cluster = cluster
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._names: frozenset[str] = frozenset()
        self._names_version = -1
        self.version = 0
        cluster.on_change(self._on_topics_changed)

    def _on_topics_changed(self) -> None:
        self.version += 1

    def check(self, expression: str) -> None:
        """Raise an error if this is not a valid regular expression.

        :raise KafkaError: INVALID_REGULAR_EXPRESSION, with the reason.
        """
        self._entry(expression)

    def can_read(self, expression: str) -> bool:
        """Return True if this broker accepts the expression, which may come from a broker of another version."""
        try:
            self.check(expression)
        except KafkaError:
            return False
        return True

    async def resolve(self, expressions: Iterable[str]) -> dict[str, MatchedTopics]:
        """Return the topics that match the expressions; only topics that are new since the last call are matched.

        :raise KafkaError: INVALID_REGULAR_EXPRESSION.
        """
        time_slice = TimeSlice(self._runtime.reactor)
        return {expression: await self._resolve(expression, time_slice) for expression in expressions}

    async def _resolve(self, expression: str, time_slice: TimeSlice) -> MatchedTopics:
        entry = self._entry(expression)
        if entry.version != self.version:
            version, names = self.version, self._all_names()
            matching = set(entry.matching & names)
            for name in sorted(names - entry.names):
                if entry.automaton.matches(name):
                    matching.add(name)
                if time_slice.is_over:
                    await time_slice.next()
            entry.names, entry.matching, entry.version = names, frozenset(matching), version
        return MatchedTopics(tuple(sorted(entry.matching)), entry.version, self._runtime.wall_clock_ms())

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
