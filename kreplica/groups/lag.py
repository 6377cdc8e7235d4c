"""Lag status of partitions and groups, derived without thresholds from their commits; pure functions.

For each partition, a window contains the last commits and the lag after each of them. The window shows the consumer's
normal commit interval: a consumer that commits every five minutes has not stopped after one minute without a commit.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

WINDOW = 10
"""Number of commits in the window."""

_FIELDS = 3


class Status(IntEnum):
    """Status of a partition or group; a higher value is worse."""

    OK = 0
    """Keeps up, or there is not enough data."""

    WARN = 1
    """Commits but falls behind: over the whole window, the lag grew and never shrank."""

    STALLED = 2
    """Commits the same offset repeatedly although there is lag."""

    STOPPED = 3
    """Has no consumer, or has stopped committing, although there is lag."""


class Commit(NamedTuple):
    """A commit in the window.

    :param lag: number of unread records when the commit was sampled.
    """

    timestamp_ms: int
    offset: int
    lag: int


class Window:
    """The last sampled commits of one group in one partition, oldest first.

    :ivar caught_up_ms: time of the last sample without lag; -1 if there was none.
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
        other = Window()
        other._numbers = self._numbers[:]
        other.caught_up_ms = self.caught_up_ms
        return other

    def add(self, timestamp_ms: int, offset: int, lag: int, now_ms: int) -> None:
        """Add a sample; do nothing if the commit has already been sampled.

        :param timestamp_ms: timestamp of the commit.
        :param lag: current lag.
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
    """Return the number of unread records; 0 if the log was truncated below the committed offset.

    Negative committed offsets, which clients may send, are treated as 0.
    """
    return max(log_end_offset - max(committed_offset, 0), 0)


def status_of(window: Window, lag: int, now_ms: int, silence_ms_min: int) -> Status:
    """Return the status of a partition.

    :param lag: current lag.
    :param silence_ms_min: shorter gaps between commits are ignored, because commits are only sampled.
    """
    commits = list(window)
    if lag == 0 or not commits:
        return Status.OK
    if has_stopped(commits, window.caught_up_ms, now_ms, silence_ms_min):
        return Status.STOPPED
    if len(commits) < WINDOW or was_caught_up(commits, window.caught_up_ms):
        return Status.OK
    if not is_advancing(commits):
        return Status.STALLED
    return Status.WARN if is_falling_behind(commits) else Status.OK


def has_several_commits(window: Window) -> bool:
    """Return True if the commits come from a running client; an offset reset commits only once."""
    commits = list(window)
    return len(commits) == WINDOW or is_advancing(commits)


def has_stopped(commits: list[Commit], caught_up_ms: int, now_ms: int, silence_ms_min: int) -> bool:
    """Return True if there was lag but no commit for longer than the time span of the window."""
    usual_ms = commits[-1].timestamp_ms - commits[0].timestamp_ms
    return now_ms - max(commits[-1].timestamp_ms, caught_up_ms) > max(usual_ms, silence_ms_min)


def was_caught_up(commits: list[Commit], caught_up_ms: int) -> bool:
    """Return True if the lag was 0 at some time within the window."""
    return caught_up_ms >= commits[0].timestamp_ms or any(commit.lag == 0 for commit in commits)


def is_advancing(commits: list[Commit]) -> bool:
    """Return True if any commit has a higher offset than the previous one."""
    return any(later.offset > earlier.offset for earlier, later in pairwise(commits))


def is_falling_behind(commits: list[Commit]) -> bool:
    """Return True if the lag grew over the window and never shrank."""
    shrinks = any(later.lag < earlier.lag for earlier, later in pairwise(commits))
    return commits[-1].lag > commits[0].lag and not shrinks


def worst(statuses: Iterable[Status]) -> Status:
    """Return the status of a group: the worst status of its partitions."""
    return max(statuses, default=Status.OK)
