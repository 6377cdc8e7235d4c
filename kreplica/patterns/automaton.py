"""Matches texts by a lazy deterministic automaton, as RE2 does, so that the time is linear in the length of the text.

Each state is the set of positions in the expression that are reachable. States are computed when first needed and
cached.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import singledispatchmethod

from kreplica.patterns.characters import Characters
from kreplica.patterns.parser import PatternError, parse
from kreplica.patterns.syntax import (
    WORD,
    Assertion,
    Choice,
    Node,
    OneOf,
    Repeat,
    Sequence,
)

STATES_MAX = 2000
"""Maximum size of an expression with its repetitions expanded."""

REMEMBERED_MAX = 20_000
"""Maximum number of cached transitions of one automaton."""


class Beside(Enum):
    """Kind of the character on one side of a gap between characters."""

    NOTHING = 0
    WORD = 1
    OTHER = 2


@dataclass(slots=True)
class _Step:
    """A position: one of ``characters`` leads to ``then``; without ``characters``, both exits are free."""

    then: int
    characters: Characters | None = None
    otherwise: int | None = None
    assertion: Assertion | None = None


_END = -1
"""The position at which the whole expression has matched."""

class _State:
    """State of the deterministic automaton.

    :ivar places: reachable positions, sorted; empty if no match is possible.
    :ivar before: kind of the previous character.
    :ivar following: character -> next state, for the characters seen so far.
    """

    __slots__ = ("before", "following", "places")

    def __init__(self, places: tuple[int, ...], before: Beside) -> None:
        self.places = places
        self.before = before
        self.following: dict[str, _State] = {}


class Automaton:
    """A compiled expression.

    :param states_max: maximum number of positions; computing one new transition takes at most this number of steps.
    :raise PatternError: the expression is malformed or too large.
    """

    def __init__(self, pattern: str, states_max: int = STATES_MAX) -> None:
        self._states_max = states_max
        self._steps: list[_Step] = []
        self._start = _State((self._build(parse(pattern), _END),), Beside.NOTHING)
        self._states: dict[tuple[tuple[int, ...], Beside], _State] = {}
        self._remembered_count = 0

    def matches(self, text: str) -> bool:
        """Return True if the expression matches the whole text."""
        state = self._start
        for character in text:
            following = state.following.get(character)
            if following is None:
                following = self._advance(state, character)
            state = following
            if not state.places:
                return False
        return _END in self._reached(state, Beside.NOTHING)

    def _advance(self, state: _State, character: str) -> _State:
        beside = Beside.WORD if character in WORD else Beside.OTHER
        places: dict[int, None] = {}
        for place in self._reached(state, beside):
            characters = self._steps[place].characters if place != _END else None
            if characters is not None and character in characters:
                places[self._steps[place].then] = None
        if self._remembered_count >= REMEMBERED_MAX:
            self._forget()
        key = tuple(sorted(places)), beside
        following = self._states.get(key)
        if following is None:
            following = self._states[key] = _State(*key)
        state.following[character] = following
        self._remembered_count += 1
        return following

    def _forget(self) -> None:
        """Clear the cache; a match in progress, also in another thread, continues from its own state."""
        for state in (self._start, *self._states.values()):
            state.following = {}
        self._states = {}
        self._remembered_count = 0

    def _reached(self, state: _State, following: Beside) -> dict[int, None]:
        """Return the positions reachable without consuming a character, given the kind of the next one."""
        found: dict[int, None] = {}
        waiting = list(state.places)
        while waiting:
            place = waiting.pop()
            if place in found:
                continue
            found[place] = None
            step = self._steps[place] if place != _END else None
            if step is None or step.characters is not None:
                continue
            if step.assertion is None or _holds(step.assertion, state.before, following):
                waiting.append(step.then)
                if step.otherwise is not None:
                    waiting.append(step.otherwise)
        return found

    # --- building ----------------------------------------------------------------------------------------------------

    def _add(self, step: _Step) -> int:
        if len(self._steps) >= self._states_max:
            raise PatternError("the regular expression is too large, its repetitions written out")
        self._steps.append(step)
        return len(self._steps) - 1

    @singledispatchmethod
    def _build(self, node: Node, then: int) -> int:
        """Add the positions that match a node and then lead to ``then``.

        :return: the first position.
        """
        raise TypeError(node)

    @_build.register
    def _one_of(self, node: OneOf, then: int) -> int:
        return self._add(_Step(then, characters=node.characters))

    @_build.register
    def _assertion(self, node: Assertion, then: int) -> int:
        return self._add(_Step(then, assertion=node))

    @_build.register
    def _sequence(self, node: Sequence, then: int) -> int:
        for part in reversed(node.parts):
            then = self._build(part, then)
        return then

    @_build.register
    def _choice(self, node: Choice, then: int) -> int:
        start, *others = (self._build(branch, then) for branch in node.branches)
        for other in others:
            start = self._add(_Step(start, otherwise=other))
        return start

    @_build.register
    def _repeat(self, node: Repeat, then: int) -> int:
        if node.most is None:
            loop = self._add(_Step(then))
            self._steps[loop].otherwise = self._build(node.part, loop)
            then = loop
        else:
            end = then
            for _ in range(node.most - node.least):
                then = self._add(_Step(self._build(node.part, then), otherwise=end))
        for _ in range(node.least):
            start = self._build(node.part, then)
            if start == then:
                break  # a repetition of the empty expression is empty
            then = start
        return then


def _holds(assertion: Assertion, before: Beside, following: Beside) -> bool:
    if assertion is Assertion.START:
        return before is Beside.NOTHING
    if assertion is Assertion.END:
        return following is Beside.NOTHING
    is_boundary = (before is Beside.WORD) != (following is Beside.WORD)
    return is_boundary is (assertion is Assertion.WORD_BOUNDARY)
