"""What the members of one group were told, and whether that can be.

Offsets that were acknowledged are what is fetched next, or later ones are.  An attempt to commit that got no answer may
arrive at any time while its generation lasts, behind later commits even: only then may offsets go back, to its.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kreplica.model import TopicPartition


class Expected(NamedTuple):
    """What may be fetched, as far as was known when it was asked for.

    :param known: by partition, what was last known to be committed; what is not named never was.
    :param lowest: the same, or what an attempt without answer may have made of it.
    :param generation: the last that was known.
    """

    known: dict[TopicPartition, int]
    lowest: dict[TopicPartition, int]
    generation: int


@dataclass(frozen=True, slots=True)
class _Commit:
    """:param known_generation: the last that any member had come into when it was asked for."""

    generation: int
    known_generation: int
    offsets: dict[TopicPartition, int]


class GroupHistory:
    """Filled by members while they run; one group.

    :param clock: seconds, for what is told of contradictions.
    :ivar acknowledged: by partition, the offset that was last known to be committed.
    :ivar contradictions: where members were told what cannot be, as sentences.
    """

    def __init__(self, clock: Callable[[], float] = float) -> None:
        self.acknowledged: dict[TopicPartition, int] = {}
        self.contradictions: list[str] = []
        self._clock = clock
        self._owners: dict[int, dict[TopicPartition, str]] = {}
        self._shares: dict[tuple[int, str], list[TopicPartition]] = {}
        self._generations: dict[str, int] = {}
        self._generation = -1
        self._asked: dict[int, _Commit] = {}
        self._commits: dict[int, _Commit] = {}
        """Those that may still come to count: of no generation that is over, and not refused."""
        self._commits_count = 0

    # --- membership --------------------------------------------------------------------------------------------------

    def joined(self, member_id: str, generation: int, assigned: Collection[TopicPartition]) -> None:
        """A member was told what it reads in a generation.

        :param member_id: or the instance id of a static one: who replaces it has the same share.
        """
        before = self._generations.get(member_id, -1)
        if generation < before:
            self._contradicted(f"{member_id} was in generation {before}, and came into {generation}")
        self._generations[member_id] = generation
        self._generation = max(self._generation, generation)
        share = sorted(assigned)
        known = self._shares.setdefault((generation, member_id), share)
        if known != share:
            self._contradicted(f"{member_id} was given {known} in generation {generation}, and then {share}")
        owners = self._owners.setdefault(generation, {})
        for key in share:
            owner = owners.setdefault(key, member_id)
            if owner != member_id:
                self._contradicted(f"{key} was given to {owner} and to {member_id} in generation {generation}")

    # --- offsets -----------------------------------------------------------------------------------------------------

    def committing(self, generation: int, offsets: Mapping[TopicPartition, int]) -> int:
        """A member asks to commit offsets.

        :return: by which ``committed`` and ``refused`` know it.
        """
        self._commits_count += 1
        commit = _Commit(generation, self._generation, dict(offsets))
        self._asked[self._commits_count] = self._commits[self._commits_count] = commit
        return self._commits_count

    def committed(self, number: int, *, is_doubtful: bool) -> None:
        """It was told that they are committed.

        :param is_doubtful: whether an earlier attempt got no answer.
        """
        commit = self._asked.pop(number)
        if commit.generation < commit.known_generation:
            self._contradicted(f"generation {commit.generation} has committed in {commit.known_generation}")
        if number in self._commits:
            self.acknowledged.update(commit.offsets)
        if not is_doubtful:
            self._commits.pop(number, None)

    def refused(self, number: int) -> None:
        """It was told that they are not, and will not be."""
        del self._asked[number]
        self._commits.pop(number, None)

    def decided(self, offsets: Mapping[TopicPartition, int]) -> None:
        """A transaction that commits offsets is committed, as its producer was told."""
        self.acknowledged.update(offsets)

    def expected(self, partitions: Collection[TopicPartition]) -> Expected:
        """What is asked for now must be answered with these offsets or later ones."""
        known = {key: self.acknowledged[key] for key in partitions if key in self.acknowledged}
        lowest = dict(known)
        for commit in self._commits.values():
            for key, offset in commit.offsets.items():
                if key in lowest:
                    lowest[key] = min(lowest[key], offset)
        return Expected(known, lowest, self._generation)

    def fetched(self, expected: Expected, offsets: Mapping[TopicPartition, int]) -> None:
        """A member was told what is committed; what may come later is of the generations since."""
        for key, offset in offsets.items():
            if offset < expected.lowest.get(key, 0):
                self._contradicted(f"{key} was committed up to {expected.lowest[key]}, and is now up to {offset}")
            if self.acknowledged.get(key) == expected.known.get(key):  # else somebody was told of more meanwhile
                self.acknowledged[key] = offset
        over = [number for number, commit in self._commits.items() if commit.generation < expected.generation]
        for number in over:
            del self._commits[number]

    def _contradicted(self, text: str) -> None:
        self.contradictions.append(f"at {self._clock():.3f} s: {text}")
