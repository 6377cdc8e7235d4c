"""How far a group is behind, and whether that is trouble: by its own commits, without a threshold to be set.  Pure.

A partition is watched through a window of its last commits, each with the lag that it left.  What is normal for a
consumer is what it did in that window: one that commits every five minutes is not silent after one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

WINDOW = 10
"""Commits that are looked at."""

_FIELDS = 3


class Status(IntEnum):
    """How a partition, or a whole group, gets on; the worse, the greater."""

    OK = 0
    """It keeps up, or cannot be said to be behind."""

    WARN = 1
    """It commits, and falls behind: over the whole window the lag has grown and never shrunk."""

    STALLED = 2
    """It commits, but never another offset, although there is lag."""

    STOPPED = 3
    """It does not commit any more, although there is lag."""


class Commit(NamedTuple):
    """A commit in the window.

    :param lag: records that it left to be read, when it was seen.
    """

    timestamp_ms: int
    offset: int
    lag: int


class Window:
    """The last commits of one group and partition, the oldest first, as they were seen from time to time.

    :ivar caught_up_ms: when there was no lag for the last time, as far as was seen; -1 for never.
    """

    __slots__ = ("_numbers", "caught_up_ms")

    def __init__(self) -> None:
        self._numbers = array("q")
        self.caught_up_ms = -1

    def __len__(self) -> int:
        return len(self._numbers) // _FIELDS

    def __iter__(self) -> Iterator[Commit]:
        numbers = self._numbers
        return (Commit(*numbers[start : start + _FIELDS]) for start in range(0, len(numbers), _FIELDS))

    def copy(self) -> Window:
        """Another one that has seen the same."""
        other = Window()
        other._numbers = self._numbers[:]
        other.caught_up_ms = self.caught_up_ms
        return other

    def see(self, timestamp_ms: int, offset: int, lag: int, now_ms: int) -> None:
        """What is committed now; a commit that was seen before is not taken for another.

        :param timestamp_ms: of the commit.
        :param lag: as it is now.
        """
        if lag == 0:
            self.caught_up_ms = now_ms
        numbers = self._numbers
        if numbers and numbers[-3] == timestamp_ms and numbers[-2] == offset:
            return
        if len(self) == WINDOW:
            del numbers[:_FIELDS]
        numbers.extend((timestamp_ms, offset, lag))


def lag_between(committed_offset: int, log_end_offset: int) -> int:
    """Records that are left to be read; none where the log has been cut off behind the group."""
    return max(log_end_offset - committed_offset, 0)


def status_of(window: Window, lag: int, now_ms: int, silence_ms_min: int) -> Status:
    """How a partition gets on.

    :param lag: as it is now.
    :param silence_ms_min: a silence that is shorter means nothing: commits are not looked at more often than that.
    """
    commits = list(window)
    if lag == 0 or not commits:
        return Status.OK
    if is_silent(commits, window.caught_up_ms, now_ms, silence_ms_min):
        return Status.STOPPED
    if len(commits) < WINDOW or was_caught_up(commits, window.caught_up_ms):
        return Status.OK
    if not is_advancing(commits):
        return Status.STALLED
    return Status.WARN if is_falling_behind(commits) else Status.OK


def is_silent(commits: list[Commit], caught_up_ms: int, now_ms: int, silence_ms_min: int) -> bool:
    """Whether there has been lag but no commit for longer than all commits of the window took."""
    usual_ms = commits[-1].timestamp_ms - commits[0].timestamp_ms
    return now_ms - max(commits[-1].timestamp_ms, caught_up_ms) > max(usual_ms, silence_ms_min)


def was_caught_up(commits: list[Commit], caught_up_ms: int) -> bool:
    """Whether there was no lag at some time within the window."""
    return caught_up_ms >= commits[0].timestamp_ms or any(commit.lag == 0 for commit in commits)


def is_advancing(commits: list[Commit]) -> bool:
    """Whether some commit is of a later offset than the one before it."""
    return any(later.offset > earlier.offset for earlier, later in pairwise(commits))


def is_falling_behind(commits: list[Commit]) -> bool:
    """Whether the lag has grown over the window and shrunk at no time."""
    shrinks = any(later.lag < earlier.lag for earlier, later in pairwise(commits))
    return commits[-1].lag > commits[0].lag and not shrinks


def worst(statuses: Iterable[Status]) -> Status:
    """The status of a group, by those of its partitions."""
    return max(statuses, default=Status.OK)
