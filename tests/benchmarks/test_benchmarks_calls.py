"""The benchmark of calls counts exactly, is reproducible, and fails above the baseline."""

import pytest

from benchmarks import calls
from benchmarks.calls import AboveBaseline, Cost, Leader, compare, count_calls, read_baseline, write_baseline
from kreplica.wire.messages import PRODUCE


def test_calls_are_counted():
    """Two Python functions are called, and two C functions: ``len`` and the one that ends the profiling."""

    def inner():
        return len("abc")

    assert count_calls(lambda: inner()) == Cost(2, 2)


def test_the_cost_of_a_request_is_reproducible():
    one = Leader(brokers=1)
    cost = one.cost(PRODUCE, 9, lambda _: calls.produce_body(1))
    assert cost == one.cost(PRODUCE, 9, lambda _: calls.produce_body(1))
    assert cost.python_calls > 20
    assert cost.c_calls > 20


@pytest.mark.parametrize(
    ("cost", "above"), [(Cost(10, 5), False), (Cost(3, 2), False), (Cost(11, 5), True), (Cost(10, 6), True)]
)
def test_only_more_calls_than_in_the_baseline_are_reported(cost, above):
    assert [row["above"] for row in compare({"Fetch": cost, "New": cost}, {"Fetch": Cost(10, 5)})] == [above, False]


def test_the_benchmark_fails_above_its_baseline(monkeypatch):
    monkeypatch.setattr(calls, "measure", lambda: {"Fetch": Cost(11, 5)})
    monkeypatch.setattr(calls, "read_baseline", lambda: {"Fetch": Cost(10, 5)})
    with pytest.raises(AboveBaseline, match="Fetch: 11 Python and 5 C calls, baseline 10 and 5"):
        calls.run()


def test_each_python_version_has_its_baseline(tmp_path):
    path = tmp_path / "baseline.json"
    write_baseline({"Fetch": Cost(10, 5)}, path, "3.11")
    write_baseline({"Fetch": Cost(9, 5)}, path, "3.13")
    assert read_baseline(path, "3.11") == {"Fetch": Cost(10, 5)}
    assert read_baseline(path, "3.13") == {"Fetch": Cost(9, 5)}
    assert read_baseline(path, "3.12") == {}
