"""Functions that run in a forked process."""

from __future__ import annotations

import os

import pytest

from kreplica.testing.storms.child import ChildFailed, call_in_child


def test_only_the_result_of_the_child_is_returned() -> None:
    """A child returns a result of any size, and its changes to memory have no effect on the parent."""
    left_behind: list[int] = []

    def work() -> tuple[int, bytes]:
        left_behind.append(1)
        return os.getpid(), bytes(1_000_000)

    pid, data = call_in_child(work)
    assert pid != os.getpid()
    assert len(data) == 1_000_000
    assert left_behind == []


def test_failed_work_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    """If the function raises, the error has the exit status, and the traceback is printed on standard error."""
    with pytest.raises(ChildFailed, match="ended with status 1"):
        call_in_child(lambda: {}["nothing"])
    assert "KeyError: 'nothing'" in capfd.readouterr().err


def test_a_killed_child_is_reported() -> None:
    """If a child is killed, the error contains the signal number."""
    with pytest.raises(ChildFailed, match="ended with status -9"):
        call_in_child(lambda: os.kill(os.getpid(), 9))
