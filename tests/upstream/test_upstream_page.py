"""The page about upstream test suites is up to date."""

from __future__ import annotations

from suites import ROOT
from unpublished_suites import UNPUBLISHED
from upstream_page import PAGE, text


def test_the_page_matches_the_tables() -> None:
    """If this test fails after a change of a table, run ``python tests/upstream/upstream_page.py``."""
    assert PAGE.read_text() == text()


def test_equivalent_test_files_exist() -> None:
    """Each file that the page names as an equivalent exists."""
    named = [where for rows in UNPUBLISHED.values() for where in rows.values() if not where.startswith("no: ")]
    assert len(named) > 5
    for where in named:
        for file in where.split(", "):
            assert (ROOT / file).is_file(), file
