"""Matches texts against an expression: all ways through it at once, so that no text takes longer than its length.

The sets of places that can be reached are found when they are first needed, and remembered (a lazy deterministic
automaton, as in RE2).
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

PLACES_MAX = 2000
"""Of one expression, its repetitions written out."""

REMEMBERED_MAX = 20_000
"""Steps of one automaton that are remembered."""


class Beside(Enum):
    """What stands on one side of a gap between characters."""

    NOTHING = 0
    WORD = 1
    OTHER = 2


@dataclass(slots=True)
class _Step:
    """A place of the automaton: one character of these leads to ``then``; without any, both ways are open at once."""

    then: int
    characters: Characters | None = None
    otherwise: int | None = None
    assertion: Assertion | None = None


_END = -1
"""The place where all is matched."""

class _State:
    """:ivar places: that are reached, sorted; none are a dead end.

    :ivar before: what stands before the gap.
    :ivar following: the states that characters lead to, as far as they were asked for.
    """

    __slots__ = ("before", "following", "places")

    def __init__(self, places: tuple[int, ...], before: Beside) -> None:
        self.places = places
        self.before = before
        self.following: dict[str, _State] = {}


class Automaton:
    """One expression, made ready.

    :param places_max: how large it may be: so many steps a character costs at most, the first time.
    :raise PatternError: it is malformed, or too large.
    """

    def __init__(self, pattern: str, places_max: int = PLACES_MAX) -> None:
        self._places_max = places_max
        self._steps: list[_Step] = []
        self._start = _State((self._build(parse(pattern), _END),), Beside.NOTHING)
        self._states: dict[tuple[tuple[int, ...], Beside], _State] = {}
        self._remembered_count = 0

    def matches(self, text: str) -> bool:
        """Whether the whole text is what the expression says."""
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
        """Whoever is in the middle of a text, in another thread maybe, goes on from the state that it has."""
        for state in (self._start, *self._states.values()):
            state.following = {}
        self._states = {}
        self._remembered_count = 0

    def _reached(self, state: _State, following: Beside) -> dict[int, None]:
        """The places that are reached without another character, if that is what follows."""
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
        if len(self._steps) >= self._places_max:
            raise PatternError("the regular expression is too large, its repetitions written out")
        self._steps.append(step)
        return len(self._steps) - 1

    @singledispatchmethod
    def _build(self, node: Node, then: int) -> int:
        """Add what matches a node and goes on to a place.

        :return: where it starts.
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
                break  # nothing, however often
            then = start
        return then


def _holds(assertion: Assertion, before: Beside, following: Beside) -> bool:
    if assertion is Assertion.START:
        return before is Beside.NOTHING
    if assertion is Assertion.END:
        return following is Beside.NOTHING
    is_boundary = (before is Beside.WORD) != (following is Beside.WORD)
    return is_boundary is (assertion is Assertion.WORD_BOUNDARY)
