"""Sets of characters and their complements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Characters:
    """A set of characters.

    :param members: the characters in the set, or those not in it if ``is_complement`` is True.
    """

    members: frozenset[str]
    is_complement: bool = False

    def __contains__(self, character: str) -> bool:
        return (character in self.members) is not self.is_complement

    def complement(self) -> Characters:
        return Characters(self.members, not self.is_complement)

    def union(self, other: Characters) -> Characters:
        if self.is_complement and other.is_complement:
            return Characters(self.members & other.members, is_complement=True)
        if self.is_complement:
            return Characters(self.members - other.members, is_complement=True)
        if other.is_complement:
            return other.union(self)
        return Characters(self.members | other.members)

    def any_case(self) -> Characters:
        """Return the set with both cases of each of its letters."""
        if not self.is_complement:
            return Characters(frozenset(case for member in self.members for case in _cases(member)))
        excluded = (member for member in self.members if all(case in self.members for case in _cases(member)))
        return Characters(frozenset(excluded), is_complement=True)


def character_set(characters: Iterable[str]) -> Characters:
    """Return the set of the given characters."""
    return Characters(frozenset(characters))


def _cases(character: str) -> Iterable[str]:
    # The other case of some letters is several letters long; it is ignored.
    return [case for case in (character, character.lower(), character.upper()) if len(case) == 1]
