"""The model of the rate on many cores."""

from __future__ import annotations

import os

import pytest

from benchmarks.roofline import BYTES_MOVED, Costs, memory_limits, one_core, predicted_rate, row

COSTS = Costs(broker_us=400.0, client_us=600.0, one_core_copy=7_000.0, machine_copy=10_500.0)


@pytest.mark.parametrize(("cores", "together", "apart"), [(1, 1_000, 2_500), (2, 2_000, 5_000), (16, 16_000, 40_000)])
def test_rates_grow_with_the_cores(cores: int, together: float, apart: float) -> None:
    assert predicted_rate(COSTS, cores, has_clients=True) == pytest.approx(together)
    assert predicted_rate(COSTS, cores, has_clients=False) == pytest.approx(apart)


def test_the_memory_limit_is_a_range() -> None:
    """With one core it is the measured bandwidth; with more, the bandwidth may grow with them."""
    assert memory_limits(COSTS, 1) == (10_500 / BYTES_MOVED, 10_500 / BYTES_MOVED)
    assert memory_limits(COSTS, 16) == (10_500 / BYTES_MOVED, 16_000)


def test_measured_rates_are_compared_with_the_prediction() -> None:
    measured = row(16_384, COSTS, 2, 1_800.0)
    assert measured["measured / predicted"] == pytest.approx(0.9)
    assert row(16_384, COSTS, 8, None)["measured / predicted"] is None


def test_one_core() -> None:
    before = os.sched_getaffinity(0)
    with one_core():
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before
