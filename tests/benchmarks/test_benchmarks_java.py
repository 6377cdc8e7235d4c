"""Reports of Kafka's own programs, the search for the highest steady rate, and the selection of rows."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

from benchmarks.broker_process import context_switches
from benchmarks.comparison import java_programs
from benchmarks.comparison.steady import FIRST_RATE, RATE_MAX, MaximumRates, highest_rate
from benchmarks.driver import Measurement

PRODUCED = """25001 records sent, 5000.2 records/sec (4.77 MB/sec), 812.5 ms avg latency, 1304.0 ms max latency.
400000 records sent, 120481.927711 records/sec (114.90 MB/sec), 210.31 ms avg latency, 402.00 ms max latency, 211 ms 50th, 371 ms 95th, 395 ms 99th, 401 ms 99.9th.
"""  # noqa: E501
CONSUMED = """start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2026-11-28 00:40:01:000, 2026-11-28 00:40:05:000, 381.4697, 95.3674, 400000, 100000.0, 400, 3600, 105.9638, 111111.1
"""  # noqa: E501
END_TO_END = "0\t4.81\n1000\t0.43\nAvg latency: 0.5123 ms\nPercentiles: 50th = 0, 99th = 2, 99.9th = 5\n"


def test_produced() -> None:
    """The result is in the last line, converted to MB of 10^6 bytes."""
    figures = java_programs.parse_produced(PRODUCED)
    assert figures == {"MB/s": pytest.approx(120.48, abs=0.01), "average ms": 210.31, "p50 ms": 211, "p99 ms": 395}


def test_consumed() -> None:
    """The rate excludes the time of the rebalance."""
    assert java_programs.parse_consumed(CONSUMED) == {"MB/s": pytest.approx(111.11, abs=0.01)}


def test_end_to_end() -> None:
    figures = java_programs.parse_end_to_end(END_TO_END)
    assert figures == {"average ms": 0.5123, "p50 ms": 0, "p99 ms": 2}


@pytest.mark.parametrize(
    "parse", [java_programs.parse_produced, java_programs.parse_consumed, java_programs.parse_end_to_end]
)
def test_a_report_without_a_result(parse: Callable[[str], object]) -> None:
    """The error contains the output of the program."""
    with pytest.raises(ValueError, match="reported no result: broker unreachable"):
        parse("broker unreachable")


def steady_up_to(limit: int, p99_ms: float = 5.0) -> Callable[[int], Measurement | None]:
    return lambda rate: Measurement({"p99_us": p99_ms * 1000 if rate <= limit else 3e6}, 0.1)


@pytest.mark.parametrize("limit", [FIRST_RATE, 33_000, 200_000])
def test_the_highest_rate_is_found(limit: int) -> None:
    """The rate found is steady and at most a sixteenth below the limit."""
    found = highest_rate(steady_up_to(limit))
    assert limit * 15 / 16 <= found <= limit


def test_a_client_that_cannot_keep_up() -> None:
    """A rate at which the client's queue overflows is too high."""
    assert highest_rate(lambda rate: steady_up_to(RATE_MAX)(rate) if rate <= 40_000 else None) == 40_000


def test_a_system_that_is_too_slow() -> None:
    with pytest.raises(RuntimeError, match="5000 records/s are not steady"):
        highest_rate(steady_up_to(FIRST_RATE, p99_ms=150))


def test_systems_are_compared_at_the_rate_of_the_slower_one() -> None:
    maxima = MaximumRates()
    maxima.add(1, "kreplica", 80_000)
    maxima.add(1, "Kafka", 60_000)
    maxima.add(3, "Kafka", 9_000)
    assert maxima.shared(1) == 60_000
    assert not maxima.has(3, "kreplica")


def test_context_switches() -> None:
    """A process that waits for its children has context switches."""
    before = context_switches(os.getpid())
    for _ in range(50):
        subprocess.run(["true"], check=True)
    assert context_switches(os.getpid()) > before
