"""Ctrl-C at any time during a start ends the process, even if settings are invalid.

Before ``makeService`` is called, Twisted's search for plugins may swallow the interrupt, as for every plugin of twistd.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TWISTD = str(Path(sys.executable).with_name("twistd"))
PORTS = ["--port", "0", "--admin-port", "0", "--zookeeper-port", "0"]
DELAYS_S = [0.1 * step for step in range(10)]
MORE_DELAYS_S = [0.05 + delay_s for delay_s in DELAYS_S]
"""Delays between the others, for the soak test."""
INVALID = ["--override", "num.partitions=none"]
STARTED_S_MAX = 30.0
POLL_S = 0.002


def wait_for_make_service(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process has restored SIGINT's default action in place of Python's handler, or has ended."""
    deadline_s = time.monotonic() + STARTED_S_MAX
    was_handled = False
    while process.poll() is None:
        assert time.monotonic() < deadline_s, "makeService was not called"
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except FileNotFoundError:
            return
        handled_mask = int(status.partition("SigCgt:")[2].split()[0], 16)
        is_handled = bool(handled_mask >> (signal.SIGINT - 1) & 1)
        if was_handled and not is_handled:
            return
        was_handled = was_handled or is_handled
        time.sleep(POLL_S)


def status_after_interrupt(directory: Path, arguments: list[str], delay_s: float) -> int | None:
    """Start a process, send SIGINT, and return the exit status, or None if the process still runs 20 s later."""
    with subprocess.Popen(
        [TWISTD, "-n", "--pidfile=", "kreplica", *arguments],
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        wait_for_make_service(process)
        try:
            process.wait(delay_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        try:
            return process.wait(20.0)
        except subprocess.TimeoutExpired:
            process.kill()
            return None


@pytest.mark.parametrize(
    ("override", "delays_s"),
    [
        pytest.param([], DELAYS_S, id="valid-coarse"),
        pytest.param([], MORE_DELAYS_S, id="valid-fine", marks=pytest.mark.soak),
        pytest.param(INVALID, DELAYS_S, id="invalid-coarse", marks=pytest.mark.soak),
        pytest.param(INVALID, MORE_DELAYS_S, id="invalid-fine", marks=pytest.mark.soak),
    ],
)
def test_ctrl_c_during_a_start(tmp_path: Path, override: list[str], delays_s: list[float]) -> None:
    """After one SIGINT, the process ends by the signal or, with an invalid setting, with status 1."""
    statuses = {}
    for number, delay_s in enumerate(delays_s):
        directory = tmp_path / str(number)
        directory.mkdir()
        statuses[delay_s] = status_after_interrupt(
            directory, ["standalone", "--data-dir", "data", *PORTS, *override], delay_s
        )
    assert set(statuses.values()) <= ({-signal.SIGINT, 1} if override else {-signal.SIGINT, 0}), statuses
