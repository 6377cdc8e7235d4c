"""Ctrl-C at any instant of a start ends the process, whether or not its settings are right."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

TWISTD = str(Path(sys.executable).with_name("twistd"))
PORTS = ["--port", "0", "--admin-port", "0", "--coordinator-port", "0"]
DELAYS_S = [0.1 + 0.07 * step for step in range(20)]


def interrupted(directory: Path, arguments: list[str], delay_s: float) -> int | None:
    """The exit status after SIGINT; None if the process still ran 20 s later."""
    with subprocess.Popen(
        [TWISTD, "-n", "--pidfile=", "kreplica", *arguments],
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            process.wait(delay_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        try:
            return process.wait(20.0)
        except subprocess.TimeoutExpired:
            process.kill()
            return None


@pytest.mark.parametrize("override", [[], ["--override", "num.partitions=none"]], ids=["right", "wrong"])
def test_ctrl_c_during_a_start(tmp_path: Path, override: list[str]) -> None:
    """The process ends after one SIGINT, by the signal or (with a setting that is wrong) with status 1."""
    ends = {}
    for number, delay_s in enumerate(DELAYS_S):
        directory = tmp_path / str(number)
        directory.mkdir()
        ends[delay_s] = interrupted(directory, ["standalone", "--data-dir", "data", *PORTS, *override], delay_s)
    assert set(ends.values()) <= ({-signal.SIGINT, 1} if override else {-signal.SIGINT, 0}), ends
