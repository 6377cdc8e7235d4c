"""The page about other people's tests says what is so."""

from __future__ import annotations

from suites import ROOT
from unpublished_suites import UNPUBLISHED
from upstream_page import PAGE, text


def test_the_page_is_what_the_tables_say() -> None:
    """Whoever changes a table runs ``python tests/upstream/upstream_page.py``, and the page tells it."""
    assert PAGE.read_text() == text()


def test_what_is_asked_here_is_here() -> None:
    """Each file that the page names in place of somebody's test is one."""
    named = [where for rows in UNPUBLISHED.values() for where in rows.values() if not where.startswith("no: ")]
    assert len(named) > 5
    for where in named:
        for file in where.split(", "):
            assert (ROOT / file).is_file(), file
