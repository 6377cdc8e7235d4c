"""Work in a copy of a process."""

from __future__ import annotations

import os

import pytest

from kreplica.testing.storms.child import ChildFailed, in_child


def test_a_result_comes_back_and_nothing_else_changes() -> None:
    """However large it is; what the copy did to its memory is gone with it."""
    left_behind: list[int] = []

    def work() -> tuple[int, bytes]:
        left_behind.append(1)
        return os.getpid(), bytes(1_000_000)

    pid, data = in_child(work)
    assert pid != os.getpid()
    assert len(data) == 1_000_000
    assert left_behind == []


def test_work_that_fails_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    """Its traceback is on standard error."""
    with pytest.raises(ChildFailed, match="ended with 1"):
        in_child(lambda: {}["nothing"])
    assert "KeyError: 'nothing'" in capfd.readouterr().err


def test_a_copy_that_is_killed_is_told() -> None:
    """By the number of the signal."""
    with pytest.raises(ChildFailed, match="ended with -9"):
        in_child(lambda: os.kill(os.getpid(), 9))
