"""The page about performance says what its rows say."""

from __future__ import annotations

import importlib.util
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

ROWS = [
    {"scenario": "produce", "figure": "MB/s", "kreplica": 900.0, "Kafka": 300.0, "ratio": 3.0, "target": ">= 600",
     "target ratio": ">= 1.5", "": "pass"},
    {"scenario": "produce", "figure": "client us/MB", "kreplica": 1234.5, "Kafka": 2.5, "ratio": 493.8, "target": "",
     "target ratio": "", "": ""},
    {"scenario": "start-up", "figure": "s", "kreplica": 2.0, "Kafka": 1.0, "ratio": 2.0, "target": "<= 1",
     "target ratio": "<= 0.3", "": "short"},
]  # fmt: skip


def test_each_figure_is_in_the_table() -> None:
    """A scenario's name stands once, numbers are as people read them."""
    assert list(performance._table(ROWS))[2:] == [
        "| produce | MB/s | 900 | 300 | 3 | >= 600 | >= 1.5 | pass |",
        "|  | client us/MB | 1,234 | 2.5 | 494 |  |  |  |",
        "| start-up | s | 2 | 1 | 2 | <= 1 | <= 0.3 | short |",
    ]


def test_the_chart_has_a_bar_for_each_figure_with_a_target() -> None:
    """It is XML, and says for each how many times better or worse."""
    drawing = ElementTree.fromstring(performance.chart(ROWS))
    texts = [each.text for each in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if text and text.endswith("x") and text not in ("0.5x", "2x")] == ["3x"]
    assert {"produce, MB/s", "start-up, s", "Kafka", "0.5x"} <= set(texts)
    bars = [each.get("class") for each in drawing.iter("{http://www.w3.org/2000/svg}rect")]
    assert bars == ["better", "worse"]


@pytest.mark.parametrize(
    ("figure", "ratio", "better"),
    [("MB/s", 2.0, 2.0), ("p99 ms", 0.5, 2.0), ("s", 0.25, 4.0), ("MB", 0.1, 10.0), ("per core", 3.0, 3.0)],
)
def test_whichever_way_is_better(figure: str, ratio: float, better: float) -> None:
    """Rates are to be high; times and sizes low."""
    assert performance.advantage({"figure": figure, "ratio": ratio}) == better
    assert performance.advantage({"figure": figure, "ratio": None}) is None
