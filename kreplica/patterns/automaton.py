"""Matches text with a lazily built DFA, as RE2 does, so that the time is linear in the length of the text.

Each DFA state is a set of reachable NFA states. DFA states are computed when first needed, and cached.
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

NFA_STATES_MAX = 2000
"""Maximum number of NFA states of an expression, with its repetitions expanded."""

CACHED_TRANSITIONS_MAX = 20_000
"""Maximum number of cached DFA transitions of one automaton."""


class CharacterKind(Enum):
    """Character classes that assertions distinguish; ``NONE`` is the start or the end of the text."""

    NONE = 0
    WORD = 1
    OTHER = 2


@dataclass(slots=True)
class _NfaState:
    """NFA state; each of ``characters`` leads to ``next_state``.

    Without ``characters``, it has epsilon transitions to ``next_state`` and ``alternative`` if its assertion holds.
    """

    next_state: int
    characters: Characters | None = None
    alternative: int | None = None
    assertion: Assertion | None = None


_END = -1
"""Number of the NFA state in which the whole expression has matched."""


class _DfaState:
    """DFA state.

    :ivar nfa_states: numbers of the reachable NFA states, sorted; empty if no match is possible.
    :ivar previous_kind: kind of the previous character.
    :ivar transitions: character -> next state, for the characters seen so far.
    """

    __slots__ = ("nfa_states", "previous_kind", "transitions")

    def __init__(self, nfa_states: tuple[int, ...], previous_kind: CharacterKind) -> None:
        self.nfa_states = nfa_states
        self.previous_kind = previous_kind
        self.transitions: dict[str, _DfaState] = {}


class Automaton:
    """A compiled expression.

    :param states_max: maximum number of NFA states; computing a new transition takes at most this many steps.
    :raise PatternError: the expression is malformed or too large.
    """

    def __init__(self, pattern: str, states_max: int = NFA_STATES_MAX) -> None:
        self._states_max = states_max
        self._nfa_states: list[_NfaState] = []
        self._start = _DfaState((self._build(parse(pattern), _END),), CharacterKind.NONE)
        self._dfa_states: dict[tuple[tuple[int, ...], CharacterKind], _DfaState] = {}
        self._cached_count = 0

    def matches(self, text: str) -> bool:
        """Return True if the expression matches the whole text."""
        state = self._start
        for character in text:
            following = state.transitions.get(character)
            if following is None:
                following = self._advance(state, character)
            state = following
            if not state.nfa_states:
                return False
        return _END in self._epsilon_closure(state, CharacterKind.NONE)

    def _advance(self, state: _DfaState, character: str) -> _DfaState:
        kind = CharacterKind.WORD if character in WORD else CharacterKind.OTHER
        reached: dict[int, None] = {}
        for number in self._epsilon_closure(state, kind):
            characters = self._nfa_states[number].characters if number != _END else None
            if characters is not None and character in characters:
                reached[self._nfa_states[number].next_state] = None
        if self._cached_count >= CACHED_TRANSITIONS_MAX:
            self._clear_cache()
        key = tuple(sorted(reached)), kind
        following = self._dfa_states.get(key)
        if following is None:
            following = self._dfa_states[key] = _DfaState(*key)
        state.transitions[character] = following
        self._cached_count += 1
        return following

    def _clear_cache(self) -> None:
        """Clear the cache; a match in progress, even in another thread, continues from its own state."""
        for state in (self._start, *self._dfa_states.values()):
            state.transitions = {}
        self._dfa_states = {}
        self._cached_count = 0

    def _epsilon_closure(self, state: _DfaState, next_kind: CharacterKind) -> dict[int, None]:
        """Return the NFA states reachable without consuming a character, given the kind of the next character."""
        reachable: dict[int, None] = {}
        pending = list(state.nfa_states)
        while pending:
            number = pending.pop()
            if number in reachable:
                continue
            reachable[number] = None
            nfa_state = self._nfa_states[number] if number != _END else None
            if nfa_state is None or nfa_state.characters is not None:
                continue
            if nfa_state.assertion is None or _holds(nfa_state.assertion, state.previous_kind, next_kind):
                pending.append(nfa_state.next_state)
                if nfa_state.alternative is not None:
                    pending.append(nfa_state.alternative)
        return reachable

    # --- building ----------------------------------------------------------------------------------------------------

    def _add(self, state: _NfaState) -> int:
        if len(self._nfa_states) >= self._states_max:
            raise PatternError("the regular expression is too large after its repetitions are expanded")
        self._nfa_states.append(state)
        return len(self._nfa_states) - 1

    @singledispatchmethod
    def _build(self, node: Node, next_state: int) -> int:
        """Add NFA states that match a node and then lead to ``next_state``.

        :return: the number of the first NFA state.
        """
        raise TypeError(node)

    @_build.register
    def _one_of(self, node: OneOf, next_state: int) -> int:
        return self._add(_NfaState(next_state, characters=node.characters))

    @_build.register
    def _assertion(self, node: Assertion, next_state: int) -> int:
        return self._add(_NfaState(next_state, assertion=node))

    @_build.register
    def _sequence(self, node: Sequence, next_state: int) -> int:
        for part in reversed(node.parts):
            next_state = self._build(part, next_state)
        return next_state

    @_build.register
    def _choice(self, node: Choice, next_state: int) -> int:
        start, *alternatives = (self._build(branch, next_state) for branch in node.branches)
        for alternative in alternatives:
            start = self._add(_NfaState(start, alternative=alternative))
        return start

    @_build.register
    def _repeat(self, node: Repeat, next_state: int) -> int:
        if node.most is None:
            loop = self._add(_NfaState(next_state))
            self._nfa_states[loop].alternative = self._build(node.part, loop)
            next_state = loop
        else:
            end = next_state
            for _ in range(node.most - node.least):
                next_state = self._add(_NfaState(self._build(node.part, next_state), alternative=end))
        for _ in range(node.least):
            start = self._build(node.part, next_state)
            if start == next_state:
                break  # a repetition of the empty expression is empty
            next_state = start
        return next_state


def _holds(assertion: Assertion, previous_kind: CharacterKind, next_kind: CharacterKind) -> bool:
    if assertion is Assertion.START:
        return previous_kind is CharacterKind.NONE
    if assertion is Assertion.END:
        return next_kind is CharacterKind.NONE
    is_boundary = (previous_kind is CharacterKind.WORD) != (next_kind is CharacterKind.WORD)
    return is_boundary is (assertion is Assertion.WORD_BOUNDARY)
