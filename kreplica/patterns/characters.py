"""Sets of characters, which may be all but a few."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Characters:
    """:param members: the characters themselves; or, where ``others`` is true, those that do not belong to it."""

    members: frozenset[str]
    others: bool = False

    def __contains__(self, character: str) -> bool:
        return (character in self.members) is not self.others

    def complement(self) -> Characters:
        """All other characters."""
        return Characters(self.members, not self.others)

    def union(self, other: Characters) -> Characters:
        """What belongs to either."""
        if self.others and other.others:
            return Characters(self.members & other.members, others=True)
        if self.others:
            return Characters(self.members - other.members, others=True)
        if other.others:
            return other.union(self)
        return Characters(self.members | other.members)

    def any_case(self) -> Characters:
        """What belongs to it as a capital or as a small letter."""
        if not self.others:
            return Characters(frozenset(case for each in self.members for case in _cases(each)))
        kept_out = (each for each in self.members if all(case in self.members for case in _cases(each)))
        return Characters(frozenset(kept_out), others=True)


def these(characters: Iterable[str]) -> Characters:
    """Exactly these."""
    return Characters(frozenset(characters))


def _cases(character: str) -> Iterable[str]:
    # Some have several letters as their other case: that is none.
    return [case for case in (character, character.lower(), character.upper()) if len(case) == 1]
