"""Pages made from the code say what the code says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
specification = importlib.util.spec_from_file_location("diagrams", DOCS / "diagrams.py")
assert specification is not None
assert specification.loader is not None
diagrams = importlib.util.module_from_spec(specification)
specification.loader.exec_module(diagrams)


@pytest.mark.parametrize("page", diagrams.pages(), ids=lambda page: page.name)
def test_a_page_is_what_the_code_says(page: Path) -> None:
    """Whoever changes a table runs ``python docs/diagrams.py``, and the page tells it."""
    assert page.read_text() == diagrams.written(page)


def test_pages_of_both_wings_have_such_parts() -> None:
    """The controller's and the replicas' pages are made so, and use every part there is."""
    found = {page.name for page in diagrams.pages()}
    assert {"controller.md", "replication.md"} <= found
    used = {part["name"] for page in diagrams.pages() for part in diagrams.PART.finditer(page.read_text())}
    assert used == set(diagrams.PARTS)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Each link to a file of the project has that file."""
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
