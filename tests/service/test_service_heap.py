"""A process returns free memory to the operating system even if a live block is above it in the C heap."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from twisted.internet import reactor
from kreplica.runtime.process_usage import process_usage
from kreplica.service.process import heap

heap.CHECK_INTERVAL_S = 0.2
trimmer = heap.HeapTrimmer(reactor)
before = process_usage().resident_bytes
if sys.argv[1] == "trimmed":
    trimmer.start()
blocks = [bytearray(b"x") * 60_000 for _ in range(2000)]
live = blocks.pop()
# A check while the memory is in use must not prevent a trim after it is freed.
reactor.callLater(1.0, blocks.clear)
reactor.callLater(2.0, reactor.stop)
reactor.run()
trimmer.stop()
print(process_usage().resident_bytes - before)
"""


def resident_growth_bytes(mode: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="malloc_trim is a function of glibc")
def test_heap_trimmer_returns_memory_below_a_live_block() -> None:
    assert resident_growth_bytes("untrimmed") > 100 << 20
    assert resident_growth_bytes("trimmed") < 16 << 20
