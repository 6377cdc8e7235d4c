"""Mutated handshakes have no effect except an error or a closed connection."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from handshake_fuzz import Fuzzer

GROWTH_BYTES_MAX = 16 * 1024 * 1024
"""Maximum growth of the process's memory; one connection takes kilobytes."""


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fuzz(certificates: Path, seed: int, count: int) -> str:
    """Run fuzz cases and return a report."""
    fuzzer = Fuzzer(certificates, seed)
    fuzzer.run(count // 20)  # allocates caches
    before, started_s = resident_bytes(), time.monotonic()
    fuzzer.run(count - count // 20)
    grown = resident_bytes() - before
    assert grown < GROWTH_BYTES_MAX, f"{count} connections took {grown} bytes"
    assert min(fuzzer.outcomes.values()) > 0, fuzzer.outcomes
    took_s = time.monotonic() - started_s
    return f"{count} cases in {took_s:.0f} s: {fuzzer.outcomes}; {before} bytes before, {grown} bytes more after"


def test_mutated_handshakes(certificates: Path) -> None:
    fuzz(certificates, 1, 20_000)


@pytest.mark.soak
def test_million_mutated_handshakes(certificates: Path) -> None:
    seed = int(os.environ.get("KREPLICA_FUZZ_SEED", "2"))
    print(fuzz(certificates, seed, 1_000_000))
