"""Sets of characters and their complements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Characters:
    """A set of characters.

    :param members: its characters, or if ``others`` is True, all characters that it does not contain.
    """

    members: frozenset[str]
    others: bool = False

    def __contains__(self, character: str) -> bool:
        return (character in self.members) is not self.others

    def complement(self) -> Characters:
        """Return the complement."""
        return Characters(self.members, not self.others)

    def union(self, other: Characters) -> Characters:
        """Return the union."""
        if self.others and other.others:
            return Characters(self.members & other.members, others=True)
        if self.others:
            return Characters(self.members - other.members, others=True)
        if other.others:
            return other.union(self)
        return Characters(self.members | other.members)

    def any_case(self) -> Characters:
        """Return the set extended by the other case of each letter."""
        if not self.others:
            return Characters(frozenset(case for each in self.members for case in _cases(each)))
        kept_out = (each for each in self.members if all(case in self.members for case in _cases(each)))
        return Characters(frozenset(kept_out), others=True)


def these(characters: Iterable[str]) -> Characters:
    """Return the set of the given characters."""
    return Characters(frozenset(characters))


def _cases(character: str) -> Iterable[str]:
    # Some letters have several letters as their other case, which is ignored.
    return [case for case in (character, character.lower(), character.upper()) if len(case) == 1]
