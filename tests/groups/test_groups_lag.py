"""Lag status of a consumer, derived from its commits."""

from __future__ import annotations

import pytest

from kreplica.groups.lag import WINDOW, Commit, Status, Window, lag_between, status_of, worst

OK, WARN, STALLED, STOPPED = Status.OK, Status.WARN, Status.STALLED, Status.STOPPED
SILENCE_MS_MIN = 30_000
SECOND = 1000


def window_of(lags: list[int], *, interval_ms: int, advance: int, start_offset: int = 1000) -> Window:
    """Return a window of commits at equal intervals, starting at time 0."""
    window = Window()
    for index, lag in enumerate(lags):
        now_ms = index * interval_ms
        window.add(now_ms, start_offset + index * advance, lag, now_ms)
    return window


STEADY = [5] * 10
GROWING = [5, 6, 6, 8, 9, 10, 11, 20, 21, 22]
CASES = {
    # name: lag at each commit, seconds between commits, offsets per commit, lag now, seconds since the last one, status
    "nothing is left to read": (GROWING, 10, 5, 0, 10, OK),
    "it keeps up with a steady lag": (STEADY, 10, 5, 5, 10, OK),
    "it catches up": (GROWING[::-1], 10, 5, 4, 10, OK),
    "it falls behind continuously": (GROWING, 10, 5, 30, 10, WARN),
    "it fell behind except once": ([5, 6, 7, 6, 9, 10, 11, 20, 21, 22], 10, 5, 30, 10, OK),
    "it fell behind but caught up once": ([5, 6, 0, 8, 9, 10, 11, 20, 21, 22], 10, 5, 30, 10, OK),
    "it commits the same offset repeatedly": (STEADY, 10, 0, 5, 10, STALLED),
    "it is stuck while records come in": (GROWING, 10, 0, 30, 10, STALLED),
    "its offset decreases": (GROWING, 10, -5, 30, 10, STALLED),
    "it is idle at the end": ([0] * 10, 10, 0, 0, 10, OK),
    "it was idle and has records to read now": ([0] * 10, 10, 0, 3, 10, OK),
    "it has been silent for as long as the window": (STEADY, 10, 5, 50, 90, OK),
    "it has been silent for longer than the window": (STEADY, 10, 5, 50, 91, STOPPED),
    "it was up to date and has been silent since": ([0] * 10, 10, 5, 50, 91, STOPPED),
    "it commits every five minutes": (STEADY, 300, 5, 50, 299, OK),
    "it commits every five minutes and has been silent for an hour": (STEADY, 300, 5, 50, 3600, STOPPED),
    "it commits often and has been silent for 30 seconds": (STEADY, 1, 5, 50, 30, OK),
    "it commits often and has been silent for 31 seconds": (STEADY, 1, 5, 50, 31, STOPPED),
    "it is stuck but has too few commits": (STEADY[:9], 10, 0, 5, 10, OK),
    "it falls behind but has too few commits": (GROWING[:9], 10, 5, 30, 10, OK),
    "it committed once, 31 seconds ago": ([5], 10, 0, 5, 31, STOPPED),
    "it committed once, 30 seconds ago": ([5], 10, 0, 5, 30, OK),
}


@pytest.mark.parametrize("name", CASES)
def test_status_of_a_partition(name: str) -> None:
    """The status depends on the consumer's own commit interval."""
    lags, interval_s, advance, lag, since_s, expected = CASES[name]
    window = window_of(lags, interval_ms=interval_s * SECOND, advance=advance)
    now_ms = (len(lags) - 1) * interval_s * SECOND + since_s * SECOND
    assert status_of(window, lag, now_ms, SILENCE_MS_MIN) is expected


def test_partition_without_commits_is_ok() -> None:
    assert status_of(Window(), 100, 10**9, SILENCE_MS_MIN) is OK


def test_idle_consumer_is_not_stopped() -> None:
    """An idle consumer is not STOPPED when the first new record arrives."""
    window = window_of([5, 0], interval_ms=10 * SECOND, advance=5)
    last_ms, hour_ms = 10 * SECOND, 3600 * SECOND
    window.add(last_ms, 1005, 0, hour_ms)
    assert status_of(window, 1, hour_ms + 10 * SECOND, SILENCE_MS_MIN) is OK
    assert status_of(window, 1, hour_ms + 31 * SECOND, SILENCE_MS_MIN) is STOPPED


def test_samples_between_commits_are_used() -> None:
    """A consumer that caught up between two commits is not behind."""
    window = window_of(GROWING, interval_ms=10 * SECOND, advance=5)
    last = list(window)[-1]
    assert status_of(window, 30, 95 * SECOND, SILENCE_MS_MIN) is WARN
    window.add(last.timestamp_ms, last.offset, 0, 95 * SECOND)
    assert status_of(window, 30, 96 * SECOND, SILENCE_MS_MIN) is OK


def test_window_slides() -> None:
    """The window keeps the last commits, each of them once."""
    window = Window()
    for number in range(WINDOW + 3):
        for _ in range(2):
            window.add(number, number * 10, number, number)
    assert len(window) == WINDOW
    assert list(window) == [Commit(number, number * 10, number) for number in range(3, WINDOW + 3)]


def test_repeated_commit_of_an_offset() -> None:
    """A repeated commit of the same offset is added to the window."""
    window = Window()
    window.add(1, 10, 5, 1)
    window.add(2, 10, 5, 2)
    assert len(window) == 2


def test_lag_is_never_negative() -> None:
    """The lag is 0 if the committed offset exceeds the log end offset, as after an unclean election."""
    assert lag_between(10, 15) == 5
    assert lag_between(15, 10) == 0


def test_group_has_the_status_of_its_worst_partition() -> None:
    assert worst([OK, STALLED, WARN]) is STALLED
    assert worst([STOPPED, OK]) is STOPPED
    assert worst([]) is OK
