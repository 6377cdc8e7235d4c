"""Computation of the broker's efficiency from CPU times."""

from __future__ import annotations

import os

import pytest

from benchmarks.efficiency import Sample, row, ticks


def samples(*costs: float) -> list[Sample]:
    return [Sample(cpu_us_per_mb=cost, mb_per_s=100.0, user_ticks=1, kernel_ticks=3) for cost in costs]


@pytest.mark.parametrize(
    ("batch_bytes", "broker", "percent", "verdict"),
    [
        (16_384, (900.0, 800.0, 100.0), 50, "pass"),
        (16_384, (820.0, 820.0, 820.0), 400 / 8.2, "missed"),
        (131_072, (615.0, 615.0, 615.0), 400 / 6.15, "pass"),
        (1_000_000, (540.0, 540.0, 540.0), 400 / 5.4, "missed"),
    ],
)
def test_efficiency_is_the_cost_of_c_divided_by_the_cost_of_the_broker(
    batch_bytes: int, broker: tuple[float, ...], percent: float, verdict: str
) -> None:
    """Both costs are medians and include checksums; the kernel's share covers all samples."""
    result = row(
        batch_bytes,
        {"kreplica": samples(*broker), "checked": samples(400.0, 1.0, 9000.0), "unchecked": samples(200.0)},
    )
    assert result["efficiency, %"] == pytest.approx(percent)
    assert result["efficiency without CRC, %"] == pytest.approx(percent / 2)
    assert result["C: in the kernel"] == pytest.approx(300)
    assert result[""] == verdict


def test_the_ticks_of_a_process_are_parsed() -> None:
    """The name of a process may contain any character; the numbers after it are parsed."""
    user, kernel = ticks(os.getpid())
    times = os.times()
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    assert 0 < user * tick_s <= times.user + tick_s
    assert 0 <= kernel * tick_s <= times.system + tick_s
