"""Sets of characters and their complements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Characters:
    """A set of characters.

    :param members: its characters, or if ``is_complement`` is True, all characters that it does not contain.
    """

    members: frozenset[str]
    is_complement: bool = False

    def __contains__(self, character: str) -> bool:
        return (character in self.members) is not self.is_complement

    def complement(self) -> Characters:
        """Return the complement."""
        return Characters(self.members, not self.is_complement)

    def union(self, other: Characters) -> Characters:
        """Return the union."""
        if self.is_complement and other.is_complement:
            return Characters(self.members & other.members, is_complement=True)
        if self.is_complement:
            return Characters(self.members - other.members, is_complement=True)
        if other.is_complement:
            return other.union(self)
        return Characters(self.members | other.members)

    def any_case(self) -> Characters:
        """Return the set extended by the other case of each letter."""
        if not self.is_complement:
            return Characters(frozenset(case for each in self.members for case in _cases(each)))
        kept_out = (each for each in self.members if all(case in self.members for case in _cases(each)))
        return Characters(frozenset(kept_out), is_complement=True)


def character_set(characters: Iterable[str]) -> Characters:
    """Return the set of the given characters."""
    return Characters(frozenset(characters))


def _cases(character: str) -> Iterable[str]:
    # Some letters have several letters as their other case, which is ignored.
    return [case for case in (character, character.lower(), character.upper()) if len(case) == 1]
