"""Generated parts of pages are up to date."""

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
def test_generated_parts_are_up_to_date(page: Path) -> None:
    """The page equals the output of its generators; ``python docs/diagrams.py`` updates it."""
    assert page.read_text() == diagrams.written(page)


def test_all_generators_are_used() -> None:
    """Every generator is used, on the pages about the controller and about replication."""
    found = {page.name for page in diagrams.pages()}
    assert {"controller.md", "replication.md"} <= found
    used = {part["name"] for page in diagrams.pages() for part in diagrams.PART.finditer(page.read_text())}
    assert used == set(diagrams.PARTS)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_links_have_a_target(page: Path) -> None:
    """Each link to a file of the project has a target."""
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_linked_tests_exist(page: Path) -> None:
    """A link whose text is the name of a test leads to the file that defines it."""
    for name, target in re.findall(r"\[`(test_\w+)`\]\(([^)#]+)\)", page.read_text()):
        source = (page.parent / target).read_text()
        assert re.search(rf"def {name}\(", source), f"{page.name}: {target} does not define {name}"


def test_each_mechanism_of_the_designs_has_a_link() -> None:
    """Each row of the tables has a link to code or to a test."""
    rows = [line for line in (DOCS / "explanation/designs.md").read_text().splitlines() if line.startswith("| ")]
    mechanisms = [row for row in rows if not row.startswith(("| ---", "| mechanism"))]
    assert len(mechanisms) > 80
    for row in mechanisms:
        assert "](" in row, row
