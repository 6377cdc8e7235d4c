"""Checks the responses that the members of one group receive for contradictions.

A fetched offset must be at least the last acknowledged offset.  A commit request without a response may arrive at any
time during its generation, even after later commits, so only such a request may lower the committed offset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kreplica.model import TopicPartition


class Expected(NamedTuple):
    """Offsets that a fetch may return, according to the history when it is sent.

    :param known: last offset known to be committed, by partition.
    :param lowest: smallest possible offset, considering commits without a response.
    :param generation: the latest known generation.
    """

    known: dict[TopicPartition, int]
    lowest: dict[TopicPartition, int]
    generation: int


@dataclass(frozen=True, slots=True)
class _Commit:
    """:param known_generation: the latest generation of any member when the commit was sent."""

    generation: int
    known_generation: int
    offsets: dict[TopicPartition, int]


class GroupHistory:
    """History of one group, filled by its members while they run.

    :param clock: time in seconds, shown with contradictions.
    :ivar acknowledged: last offset known to be committed, by partition.
    :ivar contradictions: descriptions of responses that contradict each other.
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
        """Commits that may still take effect: they were not rejected, and their generation has not ended."""
        self._commit_count = 0

    # --- membership --------------------------------------------------------------------------------------------------

    def joined(self, member_id: str, generation: int, assigned: Collection[TopicPartition]) -> None:
        """Record a member's assignment in a generation.

        :param member_id: member ID, or instance ID of a static member, whose replacement has the same assignment.
        """
        before = self._generations.get(member_id, -1)
        if generation < before:
            self._contradicted(f"{member_id} was in generation {before} and joined {generation} after it")
        self._generations[member_id] = generation
        self._generation = max(self._generation, generation)
        share = sorted(assigned)
        known = self._shares.setdefault((generation, member_id), share)
        if known != share:
            self._contradicted(f"{member_id} was assigned {known} in generation {generation}, and then {share}")
        owners = self._owners.setdefault(generation, {})
        for key in share:
            owner = owners.setdefault(key, member_id)
            if owner != member_id:
                self._contradicted(f"{key} was assigned to {owner} and to {member_id} in generation {generation}")

    # --- offsets -----------------------------------------------------------------------------------------------------

    def committing(self, generation: int, offsets: Mapping[TopicPartition, int]) -> int:
        """Record a request to commit offsets.

        :return: the commit's number, for ``committed`` and ``refused``.
        """
        self._commit_count += 1
        commit = _Commit(generation, self._generation, dict(offsets))
        self._asked[self._commit_count] = self._commits[self._commit_count] = commit
        return self._commit_count

    def committed(self, number: int, *, has_pending_attempt: bool) -> None:
        """Record a successful commit.

        :param has_pending_attempt: true if an earlier attempt received no response.
        """
        commit = self._asked.pop(number)
        if commit.generation < commit.known_generation:
            self._contradicted(f"generation {commit.generation} committed during {commit.known_generation}")
        if number in self._commits:
            self.acknowledged.update(commit.offsets)
        if not has_pending_attempt:
            self._commits.pop(number, None)

    def rejected(self, number: int) -> None:
        """Record that a commit was rejected and will never take effect."""
        del self._asked[number]
        self._commits.pop(number, None)

    def decided(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Record the offsets of a transaction whose producer received its commit."""
        self.acknowledged.update(offsets)

    def expected(self, partitions: Collection[TopicPartition]) -> Expected:
        """Return the lower bounds for the result of a fetch that is sent now."""
        known = {key: self.acknowledged[key] for key in partitions if key in self.acknowledged}
        lowest = dict(known)
        for commit in self._commits.values():
            for key, offset in commit.offsets.items():
                if key in lowest:
                    lowest[key] = min(lowest[key], offset)
        return Expected(known, lowest, self._generation)

    def fetched(self, expected: Expected, offsets: Mapping[TopicPartition, int]) -> None:
        """Record the result of a fetch.  Commits of older generations can no longer take effect."""
        for key, offset in offsets.items():
            if offset < expected.lowest.get(key, 0):
                self._contradicted(f"{key} was committed up to {expected.lowest[key]}, and is now at {offset}")
            if self.acknowledged.get(key) == expected.known.get(key):  # otherwise a later commit was acknowledged
                self.acknowledged[key] = offset
        over = [number for number, commit in self._commits.items() if commit.generation < expected.generation]
        for number in over:
            del self._commits[number]

    def _contradicted(self, text: str) -> None:
        self.contradictions.append(f"at {self._clock():.3f} s: {text}")
