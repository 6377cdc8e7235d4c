"""Generates ``docs/reference/client-matrix.md``: ``python tests/interop/matrix_page.py``; a test compares the two."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from matrix_clusters import NAMES, OURS, VERSIONS
from matrix_scenarios import SCENARIOS
from matrix_table import Scenario

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "client-matrix.md"
PAGE_TEXT = """\
# The Twisted client on several clusters

The library `kreplica.client` is tried on three brokers of kreplica, and on three of Apache Kafka {versions}, in the
same scenarios: each is written once (`tests/interop/matrix_*.py`), and says what is seen. "The same" means: exactly
what the table expects of every cluster. `make test` runs them on kreplica; `make soak` on all three, where Java and
Maven are there. This page is written by `python tests/interop/matrix_page.py`, from that table.

{count} scenarios, of which {same} see the same on every cluster.

{subjects}
## What differs, and why

{differences}
"""


def subject(name: str, scenarios: list[Scenario]) -> str:
    """One table."""
    head = [f"| {name} | {' | '.join(_title(each) for each in NAMES)} |", f"|---|{'---|' * len(NAMES)}"]
    rows = [f"| {each.title} | {' | '.join(_cell(each, cluster) for cluster in NAMES)} |" for each in scenarios]
    return "\n".join([f"## {name.capitalize()}", "", *head, *rows, ""])


def differences() -> str:
    """Each cluster on which something else is seen."""
    lines = [
        f"* {each.subject}, {each.title}, on {_title(cluster)}: `{other.expected!r}` instead of `{each.expected!r}`: "
        f"{other.why}."
        for each in SCENARIOS
        for cluster, other in each.others.items()
    ]
    return "\n".join(lines) or "Nothing."


def text() -> str:
    """The whole page."""
    tables = [subject(name, list(rows)) for name, rows in groupby(SCENARIOS, key=lambda each: each.subject)]
    return PAGE_TEXT.format(
        versions=" and ".join(VERSIONS.values()),
        count=len(SCENARIOS),
        same=sum(not each.others for each in SCENARIOS),
        subjects="\n".join(tables),
        differences=differences(),
    )


def _title(cluster: str) -> str:
    return cluster if cluster == OURS else f"Kafka {VERSIONS[cluster]}"


def _cell(one: Scenario, cluster: str) -> str:
    return "differs" if cluster in one.others else "the same"


if __name__ == "__main__":
    PAGE.write_text(text())
