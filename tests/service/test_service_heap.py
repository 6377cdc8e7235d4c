"""A process gives freed memory back to the operating system."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from kreplica.service.process.heap import return_freed_memory

def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

if sys.argv[1] == "fixed":
    return_freed_memory()
large = bytearray(31 << 20)
del large
before = resident_bytes()
blocks = [bytearray(b"x") * (1 << 20) for _ in range(48)]
del blocks
print(resident_bytes() - before)
"""


def _kept_bytes(mode: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_freed_memory_is_given_back() -> None:
    """A large block that was freed once does not make the process keep tens of megabytes; glibc's default does."""
    assert _kept_bytes("default") > 40 << 20
    assert _kept_bytes("fixed") < 20 << 20
