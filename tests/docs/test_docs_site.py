"""The documentation site: MkDocs builds it without warnings, and every link in it has a target."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
API = "reference/api/"
"""Directory of the API reference, which docs/reference.py writes and test_docs_reference.py checks."""


class Page(HTMLParser):
    """Link targets and anchors of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        for name in ("href", "src"):
            if target := found.get(name):
                self.targets.append(target)
        if anchor := found.get("id") or found.get("name"):
            self.anchors.add(anchor)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site without the API reference, which would take most of the time."""
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory)]
    variables = {**os.environ, "KREPLICA_DOCS_WITHOUT_API": "1", "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return directory


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text()) for path in site.rglob("*.html")}


def test_site_has_every_page(site: Path) -> None:
    for source in (ROOT / "docs").rglob("*.md"):
        path = source.relative_to(ROOT / "docs").with_suffix(".html")
        if "notes" not in path.parts:
            assert (site / path).exists(), path
    assert (site / "search" / "search_index.json").exists()
    assert not list(site.rglob("*.py"))


def test_every_link_has_a_target(site: Path, pages: dict[Path, Page]) -> None:
    """For each link, the file exists and has an element with the link's anchor."""
    missing = []
    for path, page in pages.items():
        for target in page.targets if path.name != "404.html" else ():
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            file = file / "index.html" if file.is_dir() else file
            if file.is_relative_to(site / API):
                continue
            if not file.exists() or (parts.fragment and file in pages and parts.fragment not in pages[file].anchors):
                missing.append(f"{path.relative_to(site)}: {target}")
    assert not missing


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    """All style sheets, fonts and scripts are files of the site."""
    for path in site.rglob("*.html"):
        for tag in re.findall(r"<(?:script|link)\b[^>]*>", path.read_text()):
            assert "https://" not in tag or "canonical" in tag, tag
