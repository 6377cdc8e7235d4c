"""A process ends with its parent at any time."""

from __future__ import annotations

import subprocess
import sys

CHILD = "import os, sys, time; from kreplica.runtime.parent_process import exit_with_parent; exit_with_parent({}); {}"
PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {child!r}.format(os.getpid(), {then!r})], stdout=subprocess.PIPE)
sys.stdout.write(child.stdout.readline().decode())
sys.stdout.flush()
os.kill(os.getpid(), 9)
"""


def test_parent_has_already_ended() -> None:
    """If another process is the parent by now, the child ends immediately."""
    program = CHILD.format(1, "print('alive')")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (-9, b"")


def test_parent_is_killed() -> None:
    """When the parent is killed, the child ends even if it was stopped by SIGSTOP."""
    then = "print('ready', flush=True); os.kill(os.getpid(), 19); time.sleep(600)"
    program = PARENT.format(child=CHILD, then=then)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-9, b"ready\n", b"")
