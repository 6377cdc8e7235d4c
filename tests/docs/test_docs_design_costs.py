"""The page on the costs of three designs: tables and pictures are generated, and a new run gives the same figures."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from kreplica.testing.designs.layout import Shape
from kreplica.testing.designs.measure import DESIGNS, Case, run_case

ROOT = Path(__file__).parents[2]
specification = importlib.util.spec_from_file_location("design_costs", ROOT / "docs" / "design_costs.py")
assert specification is not None
assert specification.loader is not None
design_costs: Any = importlib.util.module_from_spec(specification)
specification.loader.exec_module(design_costs)


def stored() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(design_costs.STORED.read_text())
    return document


def test_page_and_pictures_are_generated() -> None:
    """Page and pictures equal the generator's output, and no other picture exists."""
    page = design_costs.PAGE.read_text()
    files = design_costs.generated(page, design_costs.STORED.read_text())
    assert {path: path.read_text() for path in files} == files
    assert {*design_costs.PICTURES.glob("*.svg")} == {path for path in files if path.suffix == ".svg"}
    assert {match[1] for match in design_costs.BLOCK.finditer(page)} == set(design_costs.TABLES)


def test_a_changed_figure_changes_the_page() -> None:
    """The tables show the stored figures."""
    document = stored()
    row = design_costs.Figures(document).of("broker dies", "race", 100_000)
    row["watches_set"] = 123_456_789
    page = design_costs.generated(design_costs.PAGE.read_text(), json.dumps(document))[design_costs.PAGE]
    assert "| broker dies | race | 123,456,789 |" in page


def test_a_fit() -> None:
    """Points on a line are fitted exactly; for other points, the error is that of the farthest one."""
    exact = design_costs.fit([(10, 25), (100, 205), (1000, 2005)])
    assert exact == pytest.approx((5, 2, 0), abs=1e-9)
    other = design_costs.fit([(10, 25), (100, 205), (1000, 2305)])
    assert 0.03 < other.error < 0.08


@pytest.mark.parametrize("design", DESIGNS)
def test_a_new_run_gives_the_stored_figures(design: str) -> None:
    """A run of all events on the smallest cluster gives the stored counts, bytes and virtual times."""
    rows = run_case(Case(design, Shape(10, 3, 2), 1.0)).rows()
    measured = json.loads(design_costs.compact({"events": rows, "design_texts": []}))["events"]
    cases = [row for row in stored()["events"] if row["design"] == design and row["partitions"] == 10]
    assert measured == cases
    assert len(cases) == len(design_costs.EVENTS)
