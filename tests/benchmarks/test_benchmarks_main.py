"""The command `python -m benchmarks`."""

import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_sigterm_stops_the_measuring_process_too() -> None:
    command = [sys.executable, "-m", "benchmarks", "codec", "--scale", "full"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        deadline = time.monotonic() + 20
        while not (children.read_text().split() and _has_started(child := int(children.read_text().split()[0]))):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        assert not Path(f"/proc/{child}").exists()
    finally:
        process.kill()
        process.wait()


def _has_started(pid: int) -> bool:
    """Return True if the process runs the benchmark rather than git, which describes the machine."""
    return b"--rows-to" in Path(f"/proc/{pid}/cmdline").read_bytes()
