"""Hooks of the documentation site (``mkdocs.yml``): links to source files, the list of decisions, the API reference."""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s]+)(?:#[^)\s]*)?\)")
API_DIRECTORY = "reference/api"
API_VARIABLE = "KREPLICA_DOCS_WITHOUT_API"
"""Set this environment variable to build the site without the API reference, which takes most of the time."""


def on_config(config: Any) -> Any:
    """Replace the navigation entry of the decision records with one entry per record."""
    for part in config["nav"]:
        for pages in part.values():
            if isinstance(pages, list):
                for number, page in enumerate(pages):
                    if "Decision records" in page:
                        pages[number] = {"Decision records": ["decisions/index.md", *decision_pages()]}
    return config


def decision_pages() -> list[str]:
    return [f"decisions/{path.name}" for path in sorted((DOCS / "decisions").glob("0*.md"))]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Show links that leave ``docs/`` as file names: the site does not contain the source code."""

    def replaced(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), link["target"]))
        if not (is_outside(target) or target.startswith("plugins/")) or "://" in link["target"]:
            return link[0]
        text = link["text"]
        return text if text.startswith("`") else f"{text} (`{source_path(target)}`)"

    return LINK.sub(replaced, markdown)


def is_outside(target: str) -> bool:
    return target.startswith("../")


def source_path(target: str) -> str:
    """Return the path of a link's target from the root of the repository."""
    return os.path.relpath(DOCS / target, ROOT)


def on_post_build(config: Any, **_: Any) -> None:
    """Write the API reference into the site."""
    if not os.environ.get(API_VARIABLE):
        output = Path(config["site_dir"]) / API_DIRECTORY
        subprocess.run([sys.executable, DOCS / "reference.py", output], check=True)
