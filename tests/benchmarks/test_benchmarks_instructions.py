"""The benchmark of instructions compares with the baseline of the same Python build and tolerates 3 %."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import instructions
from benchmarks.instructions import AboveBaseline, compare, read_baseline, write_baseline


@pytest.mark.parametrize(("count", "above"), [(900, False), (1030, False), (1031, True)])
def test_three_percent_more_are_allowed(count: int, above: bool) -> None:
    rows = compare({"Fetch": count, "New": count}, {"Fetch": 1000})
    assert [row["above"] for row in rows] == [above, False]


def test_the_benchmark_fails_above_its_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "measure", lambda: {"Fetch": 1100})
    monkeypatch.setattr(instructions, "read_baseline", lambda: {"Fetch": 1000})
    with pytest.raises(AboveBaseline, match=r"Fetch: \+10.0%"):
        instructions.run()


def test_each_build_of_python_has_its_baseline(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    write_baseline({"Fetch": 1000}, path, "3.11.2, optimized")
    write_baseline({"Fetch": 1300}, path, "3.11.7, not optimized")
    assert read_baseline(path, "3.11.2, optimized") == {"Fetch": 1000}
    assert read_baseline(path, "3.13.5, optimized") == {}


def test_valgrind_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the package."""
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(instructions.NoValgrind, match="apt-get install -y valgrind"):
        instructions.measure()
