"""Tests of the performance page and its generator."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
specification = importlib.util.spec_from_file_location("performance_page", ROOT / "docs" / "performance.py")
assert specification is not None
assert specification.loader is not None
performance: Any = importlib.util.module_from_spec(specification)
specification.loader.exec_module(performance)

SVG = "{http://www.w3.org/2000/svg}"
KAFKA = [
    {"scenario": "produce", "figure": "MB/s", "kreplica": 900.0, "Kafka": 300.0, "ratio": 3.0, "target": ">= 600",
     "target ratio": ">= 1.5", "": "pass"},
    {"scenario": "produce", "figure": "client us/MB", "kreplica": 1234.5, "Kafka": 2.5, "ratio": 493.8, "target": "",
     "target ratio": "", "": ""},
    {"scenario": "start-up", "figure": "s", "kreplica": 2.0, "Kafka": None, "ratio": 2.0, "target": "<= 1",
     "target ratio": "<= 0.3", "": "missed"},
]  # fmt: skip
GROWTH = [
    {"partitions": 10, "produce us": 20.0, "fetch us": 31.5, "memory MB": 90.0},
    {"partitions": 1000, "produce us": 22.0, "fetch us": 36.0, "memory MB": 101.4},
    {"data MB": 5, "start s": 1.5},
]
MACHINE = {"commit": "0123456789", "cpus": 2, "kernel": "6.1", "python": "3.11.7", "time": "2026-01-02T03:04:05+0000"}


def results(**rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return benchmark results in the format of ``python -m benchmarks --json``."""
    benchmarks = {name: {"rows": each, "problem": None if each else "it failed"} for name, each in rows.items()}
    return {"machine": MACHINE, "scale": "full", "benchmarks": benchmarks}


def write(path: Path, **rows: list[dict[str, Any]]) -> str:
    """Write a file of results and return its path."""
    path.write_text(json.dumps(results(**rows)))
    return str(path)


def texts(chart: str) -> list[str | None]:
    """Return the texts of a chart."""
    return [each.text for each in ElementTree.fromstring(chart).iter(f"{SVG}text")]


def test_page_and_charts_are_generated() -> None:
    """Page and charts equal the generator's output, and no other chart exists."""
    files = performance.written()
    assert {path: path.read_text() for path in files if path.exists()} == files
    docs = ROOT / "docs" / "reference"
    assert {*docs.glob("performance.md"), *docs.glob("performance/*.svg")} == set(files)


def test_a_section_for_each_benchmark(tmp_path: Path) -> None:
    """There is a section for each benchmark, in the page's order, with machine, charts, tables and notes."""
    notes = tmp_path / "performance" / "notes"
    notes.mkdir(parents=True)
    (notes / "growth.md").write_text("Memory is short of the target.\n")
    performance.main([write(tmp_path / "rows.json", growth=GROWTH, kafka=KAFKA, unknown=GROWTH)], tmp_path)
    page = (tmp_path / "performance.md").read_text()
    kafka, growth = page.split("\n## ")[1:]
    assert kafka.startswith("Comparison with Apache Kafka\n\nRates, latencies, CPU time and memory")
    assert "\n2 cores, Linux 6.1, Python 3.11.7, commit `0123456`, scale full, 2026-01-02.\n" in growth
    assert "![Memory, MB, by partitions](performance/growth-partitions-memory-mb.svg)\n" in growth
    assert "\n| partitions | produce us | fetch us | memory MB |\n| --: | --: | --: | --: |\n" in growth
    assert "\n| 10 | 20 | 31.5 | 90 |\n| 1,000 | 22 | 36 | 101 |\n\n" in growth
    assert "\n\n![Time, s, by data MB](performance/growth-data-mb-time-s.svg)\n\n| data MB | start s |\n" in growth
    assert growth.endswith("\n\nMemory is short of the target.\n")


def test_results_of_one_benchmark_are_replaced(tmp_path: Path) -> None:
    """NAME=FILE replaces only this benchmark's results; charts without rows are deleted."""
    performance.main([write(tmp_path / "rows.json", growth=GROWTH, kafka=KAFKA)], tmp_path)
    charts = {path.name for path in tmp_path.glob("performance/*.svg")}
    assert charts == {"kafka.svg", "growth-partitions-cpu-time-us.svg", "growth-partitions-memory-mb.svg",
                      "growth-data-mb-time-s.svg"}  # fmt: skip
    again = write(tmp_path / "again.json", growth=GROWTH[2:], kafka=KAFKA[:1])
    performance.main([f"growth={again}"], tmp_path)
    assert {path.name for path in tmp_path.glob("performance/*.svg")} == {"kafka.svg", "growth-data-mb-time-s.svg"}
    page = (tmp_path / "performance.md").read_text()
    assert "| start-up | s |" in page
    assert "| produce us |" not in page


@pytest.mark.parametrize("name", ["growth=", "", "controller="])
def test_failed_or_absent_benchmark_changes_nothing(tmp_path: Path, name: str) -> None:
    """A failed benchmark, or one that is not in the file, raises an error before any file is written."""
    path = write(tmp_path / "rows.json", growth=[], kafka=KAFKA)
    with pytest.raises(ValueError, match=r"it failed|no rows of controller"):
        performance.main([name + path], tmp_path)
    assert not list(tmp_path.glob("performance/*"))


def test_table_formats_numbers_and_omits_repeated_names() -> None:
    """A repeated scenario name is omitted; numbers have three digits or thousands separators."""
    assert list(performance._table(KAFKA)) == [
        "| scenario | figure | kreplica | Kafka | ratio | target | target ratio |  |",
        "| --- | --- | --: | --: | --: | --- | --- | --- |",
        "| produce | MB/s | 900 | 300 | 3 | >= 600 | >= 1.5 | pass |",
        "|  | client us/MB | 1,234 | 2.5 | 494 |  |  |  |",
        "| start-up | s | 2 |  | 2 | <= 1 | <= 0.3 | missed |",
    ]


def test_repeated_numbers_in_the_first_column_are_shown() -> None:
    """Only repeated names are omitted."""
    assert list(performance._table([{"size": 16, "GB/s": 1.0}] * 2))[2:] == ["| 16 | 1 |"] * 2


def test_the_chart_has_a_bar_for_each_figure_with_a_target() -> None:
    """The chart is valid XML, and each bar is labelled with its factor."""
    chart = performance.bars("Better", KAFKA)
    found = texts(chart)
    assert [text for text in found if text and text.endswith("x") and text not in ("0.5x", "2x")] == ["3x"]
    assert {"produce, MB/s", "start-up, s", "Kafka", "0.5x"} <= set(found)
    drawn = [each.get("class") for each in ElementTree.fromstring(chart).iter(f"{SVG}rect")]
    assert drawn == ["better", "worse"]


@pytest.mark.parametrize(
    ("target", "target_ratio", "ratio", "better"),
    [(">= 600", "", 2.0, 2.0), ("<= 1.5", "<= 0.5", 0.5, 2.0), ("<= 1", "", 0.25, 4.0), ("", "<= 0.3", 0.1, 10.0)],
)
def test_advantage_in_the_direction_of_the_target(target: str, target_ratio: str, ratio: float, better: float) -> None:
    """If the target is an upper limit, the advantage is the inverse of the ratio."""
    row = {"ratio": ratio, "target": target, "target ratio": target_ratio}
    assert performance.advantage(row) == better
    assert performance.advantage({**row, "ratio": None}) is None


def test_line_chart_of_growth() -> None:
    """A line chart has a logarithmic horizontal scale, and zero at the bottom."""
    rows = [{"partitions": count, "produce us": 25.0 * count, "fetch us": 0.0} for count in (10, 100, 1000)]
    chart = performance.lines("Cost", "partitions", ["produce us", "fetch us"], rows)
    produce, fetch = ElementTree.fromstring(chart).iter(f"{SVG}polyline")
    points = [
        [tuple(map(float, point.split(","))) for point in line.get("points", "").split()] for line in (produce, fetch)
    ]
    (low, middle, high), flat = points
    assert middle[0] - low[0] == pytest.approx(high[0] - middle[0], abs=0.2)
    assert low[1] > middle[1] > high[1]
    bottom = {down for _, down in flat}
    assert len(bottom) == 1
    assert min(bottom) > low[1]
    assert {"Cost", "partitions", "10", "100", "1,000", "produce", "fetch", "0", "40,000"} <= set(texts(chart))


def test_chart_of_a_single_step() -> None:
    """A chart of a single row does not cause a division by zero."""
    assert {"5", "2"} <= set(texts(performance.lines("Start", "data MB", ["start s"], GROWTH[2:])))
